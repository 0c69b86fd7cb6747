"""The linear assignment problem, solved exactly, from any dual potentials: a library call that needs no torch.

>>> from graphmill.assignment import solve
>>> solution = solve([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]])
>>> solution.cols.tolist(), solution.cost
([1, 0, 2], 5.0)
"""

from graphmill.assignment.changes import solve_changed
from graphmill.assignment.ranked import RankedAssignment, solve_best
from graphmill.assignment.solution import Certificate, Duals, InvalidCostsError, Solution
from graphmill.assignment.solver import solve, solve_many, solve_sequence

__all__ = [
    "Certificate",
    "Duals",
    "InvalidCostsError",
    "RankedAssignment",
    "Solution",
    "solve",
    "solve_best",
    "solve_changed",
    "solve_many",
    "solve_sequence",
]
