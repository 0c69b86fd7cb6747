"""Mini-batches of assignment problems of one size, cut out of the prepared data."""

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.graph.sampled import AnySeeds
from graphmill.tasks.assignment.data.features import First, Instances
from graphmill.tasks.assignment.data.store import AssignmentStore

_PAIRS_AT_ONCE: Final = 2**18  # of a matrix that is read: what is copied of it stays in a cache


@dataclass(frozen=True, slots=True)
class AssignmentBatch:
    """Instances to learn from. `costs`, `optimum` are less the minima of the rows."""

    seeds: AnySeeds
    instances: Instances
    optimum: Tensor  # float32 [B]
    oracle_v: Tensor  # float32 [B, m]: optimal potentials of the columns; [B, 0]: not asked for
    first: First | None = None  # what the model sees first; None: it is left to the model

    @property
    def num_seeds(self) -> int:
        """Instances of this batch."""
        return len(self.seeds.ids)

    def to(self, device: torch.device) -> "AssignmentBatch":
        """Copy of the batch on `device`."""
        given = self.instances
        moved = Instances(*(each.to(device, non_blocking=True) for each in _tensors(given)))
        optimum, oracle = (each.to(device, non_blocking=True) for each in (self.optimum, self.oracle_v))
        return replace(self, instances=moved, optimum=optimum, oracle_v=oracle)


def _tensors(given: Instances) -> tuple[Tensor, Tensor, Tensor]:
    return given.costs, given.num_rows, given.num_columns


@dataclass(frozen=True, slots=True)
class PreparedInstance:
    """One prepared instance with rows ≤ columns: transposed if it has more rows than columns."""

    costs: NDArray[np.floating]  # [n, m], mapped
    u: NDArray[np.float64]  # [n], optimal
    v: NDArray[np.float64]  # [m], optimal
    optimum: float
    is_transposed: bool

    @classmethod
    def of(cls, store: AssignmentStore, instance: int) -> "PreparedInstance":
        """Read the instance with this id."""
        costs, u, v, optimum = store.cost(instance), store.u(instance), store.v(instance), store.optimum(instance)
        if costs.shape[0] > costs.shape[1]:
            return cls(costs.T, v, u, optimum, True)
        return cls(costs, u, v, optimum, False)


@dataclass(frozen=True, slots=True)
class CostBuffers:
    """Memory for the costs of batches, used again as soon as a batch is released.

    The allocator would serve batches of several sizes, made by one thread and released by another, from memory that
    grows from epoch to epoch, for each leaves a hole that the next does not fit into.
    """

    largest: int  # numbers of the largest batch: pages that smaller ones never touch take no memory
    pinned: bool = False  # page-locked memory is torch's own, which knows when a GPU has read it
    _free: list[NDArray[np.float32]] = field(default_factory=list, init=False, repr=False)

    def allocate(self, shape: tuple[int, int, int]) -> Tensor:
        """Uninitialised float32 [B, n, m]."""
        if self.pinned:
            return torch.empty(shape, pin_memory=True)
        count = math.prod(shape)
        try:
            buffer = self._free.pop()  # the one released last: the caches may still know it
        except IndexError:
            buffer = np.empty(0, np.float32)
        if len(buffer) < count:
            buffer = np.empty(max(count, self.largest), np.float32)
        taken = buffer[:count]
        weakref.finalize(taken, self._free.append, buffer).atexit = False
        return torch.from_numpy(taken).view(shape)


@dataclass(frozen=True, slots=True)
class InstanceCollector:
    """Cuts batches out of a store."""

    store: AssignmentStore
    with_oracle: bool  # with optimal potentials, for a supervised loss
    buffers: CostBuffers
    first_of: Callable[[Instances], First] | None = None  # what the model sees first, if it is made with the batch

    def collect(self, seeds: AnySeeds) -> AssignmentBatch:
        """The instances of `seeds`, in their order."""
        problems = [PreparedInstance.of(self.store, int(i)) for i in seeds.ids]
        matrices = [problem.costs for problem in problems]
        instances, minima = reduced(
            matrices, buffers=self.buffers, done=lambda place: self.store.evict(int(seeds.ids[place]))
        )
        optima = np.array([problem.optimum for problem in problems], dtype=np.float64)
        columns = instances.costs.shape[2]
        oracle = np.zeros((len(problems), columns if self.with_oracle else 0), dtype=np.float32)
        if self.with_oracle:
            for row, problem in zip(oracle, problems, strict=True):
                row[: len(problem.v)] = problem.v
        optimum = torch.from_numpy((optima - minima).astype(np.float32))
        first = self.first_of(instances) if self.first_of is not None and problems else None
        return AssignmentBatch(seeds, instances, optimum, torch.from_numpy(oracle), first)


def reduced(
    matrices: Sequence[NDArray[np.floating]],
    *,
    buffers: CostBuffers | None = None,
    done: Callable[[int], None] | None = None,
) -> tuple[Instances, NDArray[np.float64]]:
    """Matrices [n ≤ m] as a batch, the minima of their rows taken off in float64; and the sums of those minima [B].

    Smaller ones are filled up. Rows without any pair keep their infinite costs, and have no minimum. `done`: called
    with the place of each matrix that is not read any more.
    """
    shapes = np.array([matrix.shape for matrix in matrices], dtype=np.int64).reshape(-1, 2)
    rows, columns = (int(side) for side in shapes.max(axis=0, initial=0))
    costs = (buffers or CostBuffers(0)).allocate((len(matrices), rows, columns))
    totals = np.zeros(len(matrices))
    for place, matrix in enumerate(matrices):
        totals[place] = _reduce(matrix, costs[place].numpy())
        if done is not None:
            done(place)
    sides = torch.tensor([matrix.shape for matrix in matrices], dtype=torch.float32).view(-1, 2)
    return Instances(costs, sides[:, 0].contiguous(), sides[:, 1].contiguous()), totals


def _reduce(matrix: NDArray[np.floating], out: NDArray[np.float32]) -> float:
    """Write a matrix less the minima of its rows into `out` [rows, columns], infinity beside it; the sum of the minima.

    Some rows at a time: a transposed matrix is copied, and no copy of a whole one takes memory.
    """
    rows, columns = matrix.shape
    minima = np.empty((1, rows))
    for part in _parts(matrix):
        given = np.ascontiguousarray(matrix[part])[None]
        of_part = minima[:, part]
        _native.row_minima(given, of_part)
        of_part[~np.isfinite(of_part)] = 0.0
        if columns == out.shape[1]:
            _native.reduce_costs(given, out[None, part], of_part)
        else:
            less = np.empty(given.shape, dtype=np.float32)
            _native.reduce_costs(given, less, of_part)
            out[part, :columns] = less[0]
    out[rows:] = np.inf
    out[:, columns:] = np.inf
    return float(minima.sum())


def _parts(matrix: NDArray[np.floating]) -> Iterator[slice]:
    """Rows of a matrix, some at a time."""
    rows, columns = matrix.shape
    at_once = max(1, _PAIRS_AT_ONCE // max(1, columns))
    yield from (slice(begin, min(begin + at_once, rows)) for begin in range(0, rows, at_once))
