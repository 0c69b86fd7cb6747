"""What a partitioner is given: a graph in both directions, what its nodes weigh, and into how many parts it goes."""

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.topology import Topology

Balance = Literal["all", "nodes", "edges", "train", "weighted"]
BALANCES: Final[tuple[Balance, ...]] = get_args(Balance)

Parts = NDArray[np.int32]  # [num_nodes]: the part of each node; -1: not assigned yet
Amounts = NDArray[np.uint32]  # [num_nodes, num_amounts]: what each node adds to a part, in each thing that is balanced
Seeds = NDArray[Any]  # bool or uint32 [num_nodes]: seeds of an epoch that each node answers for
Ids = NDArray[np.int64]

DEFAULT_FANOUTS: Final = (15, 10, 5)
"""Fan-outs of the sampling that hotness and the expected remote rows are computed for, if no other is asked for."""


def default_balance(method: str) -> Balance:
    """What a method balances if nothing else is asked for; those of equally many nodes balance nothing else."""
    return "nodes" if method in ("random", "hotness") else "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProblem:
    """A graph to be split. Methods return the part of each node; nodes without neighbours may stay at -1."""

    graph: Topology  # the union of both directions, duplicates merged; there may be self-loops
    amounts: Amounts
    limits: Ids  # [num_amounts]: what a part should hold at most
    weights: NDArray[np.int64]  # [num_nodes]: the one weight that partitioners balance which know only one
    train: Ids  # ascending
    num_parts: int
    rng_seed: int
    fanouts: tuple[int, ...] = DEFAULT_FANOUTS

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the graph."""
        return self.graph.num_nodes


def nothing_assigned(num_nodes: int) -> Parts:
    """Assignment of no node: -1 for each."""
    return np.full(num_nodes, -1, dtype=np.int32)
