"""Mini-batches of assignment problems of one size, cut out of the prepared data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.graph.sampled import AnySeeds
from graphmill.tasks.assignment.features import Instances
from graphmill.tasks.assignment.store import AssignmentStore


@dataclass(frozen=True, slots=True)
class AssignmentBatch:
    """Instances to learn from. `costs`, `optimum` are less the minima of the rows."""

    seeds: AnySeeds
    instances: Instances
    optimum: Tensor  # float32 [B]
    oracle_v: Tensor  # float32 [B, m]: optimal potentials of the columns; [B, 0]: not asked for

    @property
    def num_seeds(self) -> int:
        """Instances of this batch."""
        return len(self.seeds.ids)

    def to(self, device: torch.device) -> "AssignmentBatch":
        """The same on `device`."""
        given = self.instances
        moved = Instances(*(each.to(device, non_blocking=True) for each in _tensors(given)))
        optimum, oracle = (each.to(device, non_blocking=True) for each in (self.optimum, self.oracle_v))
        return replace(self, instances=moved, optimum=optimum, oracle_v=oracle)


def _tensors(given: Instances) -> tuple[Tensor, Tensor, Tensor]:
    return given.costs, given.num_rows, given.num_columns


@dataclass(frozen=True, slots=True)
class Problem:
    """One prepared instance with rows ≤ columns: transposed if it has more rows than columns."""

    costs: NDArray[np.floating]  # [n, m], mapped
    u: NDArray[np.float64]  # [n], optimal
    v: NDArray[np.float64]  # [m], optimal
    optimum: float
    is_transposed: bool

    @classmethod
    def of(cls, store: AssignmentStore, instance: int) -> "Problem":
        """By its id."""
        costs, u, v, optimum = store.cost(instance), store.u(instance), store.v(instance), store.optimum(instance)
        if costs.shape[0] > costs.shape[1]:
            return cls(costs.T, v, u, optimum, True)
        return cls(costs, u, v, optimum, False)


@dataclass(frozen=True, slots=True)
class Collector:
    """Cuts batches out of a store. `with_oracle`: with optimal potentials, for a supervised loss."""

    store: AssignmentStore
    with_oracle: bool
    pinned: bool = False

    def collect(self, seeds: AnySeeds) -> AssignmentBatch:
        """The instances of `seeds`, in their order."""
        problems = [Problem.of(self.store, int(i)) for i in seeds.ids]
        matrices = [problem.costs for problem in problems]
        instances, minima = reduced(
            matrices, pinned=self.pinned, done=lambda place: self.store.forget(int(seeds.ids[place]))
        )
        optima = np.array([problem.optimum for problem in problems], dtype=np.float64)
        columns = instances.costs.shape[2]
        oracle = np.zeros((len(problems), columns if self.with_oracle else 0), dtype=np.float32)
        if self.with_oracle:
            for row, problem in zip(oracle, problems, strict=True):
                row[: len(problem.v)] = problem.v
        optimum = torch.from_numpy((optima - minima).astype(np.float32))
        return AssignmentBatch(seeds, instances, optimum, torch.from_numpy(oracle))


def reduced(
    matrices: Sequence[NDArray[np.floating]],
    *,
    pinned: bool = False,
    done: Callable[[int], None] | None = None,
) -> tuple[Instances, NDArray[np.float64]]:
    """Matrices [n ≤ m] as a batch, the minima of their rows taken off in float64; and the sums of those minima [B].

    Smaller ones are filled up. Rows without any pair keep their infinite costs, and have no minimum. `done`: called
    with the place of each matrix that is not read any more.
    """
    shapes = np.array([matrix.shape for matrix in matrices], dtype=np.int64).reshape(-1, 2)
    rows, columns = (int(side) for side in shapes.max(axis=0, initial=0))
    is_filled = all(matrix.shape == (rows, columns) for matrix in matrices)
    costs = torch.empty(len(matrices), rows, columns, pin_memory=pinned)
    if not is_filled:
        costs.fill_(torch.inf)
    totals = np.zeros(len(matrices))
    for place, matrix in enumerate(matrices):
        given = np.ascontiguousarray(matrix)[None]
        minima = np.empty((1, len(matrix)))
        _native.row_minima(given, minima)
        minima[~np.isfinite(minima)] = 0.0
        totals[place] = minima.sum()
        if is_filled:
            _native.reduce_costs(given, costs[place : place + 1], minima)
        else:
            whole = np.empty((1, *matrix.shape), dtype=np.float32)
            _native.reduce_costs(given, whole, minima)
            costs[place, : matrix.shape[0], : matrix.shape[1]] = torch.from_numpy(whole[0])
        if done is not None:
            done(place)
    sides = torch.tensor([matrix.shape for matrix in matrices], dtype=torch.float32).view(-1, 2)
    return Instances(costs, sides[:, 0].contiguous(), sides[:, 1].contiguous()), totals
