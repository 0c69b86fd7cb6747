"""What tasks that learn from whole graphs have in common: which are in a batch, and the batches, cut out of a set."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.batch import Block, GraphBatch
from graphmill.graph.graph_set import Allocate, GraphSet
from graphmill.graph.sampled import AnySeeds, EvaluationSeeds, SeedIds
from graphmill.sample.budget import Budget
from graphmill.sample.collect import reused_buffers
from graphmill.sample.feed import feed
from graphmill.sample.prefetch import prefetch
from graphmill.sample.schedule import BudgetSchedule, SeedSchedule
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause

_EVALUATED_AT_ONCE = 256  # graphs
_EPOCHS_LOOKED_AT = 10  # for the largest batches


@dataclass(frozen=True, slots=True)
class GraphCollector:
    """Batches of graphs with their classes. Their memory is reused `prefetch` + 3 batches later: use them in order."""

    graphs: GraphSet
    labels: NDArray[np.int64]  # [num_graphs]
    num_threads: int
    prefetch: int
    pinned: bool = False
    _allocate: Allocate = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_allocate", reused_buffers(self.prefetch, pinned=self.pinned))

    def collect(self, seeds: AnySeeds) -> GraphBatch:
        """The graphs `seeds.ids`, in that order, on the CPU."""
        cut = self.graphs.cut(seeds.ids, num_threads=self.num_threads, allocate=self._allocate)
        of = torch.from_numpy
        return GraphBatch(
            seeds=seeds,
            node_offsets=of(cut.node_offsets),
            block=Block(of(cut.indptr), of(cut.sources)),
            by_source=Block(of(cut.indptr_by_source), of(cut.edges_by_source)),
            x=of(cut.x),
            edge_attr=of(cut.edge_attr),
            labels=of(self.labels[seeds.ids]),
        )


@dataclass(frozen=True, slots=True)
class GraphFeed:
    """One rank's batches of a set of graphs, for training by the plan's schedule, or of chosen graphs in order."""

    plan: Plan
    group: Group
    schedule: SeedSchedule | BudgetSchedule
    collector: GraphCollector

    @classmethod
    def of(
        cls, plan: Plan, group: Group, graphs: GraphSet, labels: NDArray[np.int64], ids: NDArray[np.int64]
    ) -> "GraphFeed":
        """`labels` [num_graphs]; `ids` [n], ascending: the graphs that are trained on."""
        # One thread cuts while others compute: a batch is a millisecond's work, and waking helpers takes a share.
        is_cuda = group.device.type == "cuda"
        collector = GraphCollector(graphs, labels, num_threads=1, prefetch=plan.prefetch, pinned=is_cuda)
        return cls(plan, group, _schedule(plan, graphs, ids).among(group.world_size), collector)

    def batches(self, epoch: int, first_step: int) -> Generator[GraphBatch]:
        """Batches as `tasks.task.Task.batches` gives them."""
        with closing(prefetch(lambda: self._make(epoch, first_step), self.plan.prefetch)) as batches:
            yield from feed(batches, self.group.device, self.group.spans)

    def largest_batches(self) -> tuple[tuple[int, int], ...]:
        """Epoch and step of this rank's batches with the most nodes, and with the most edges, in the first epochs."""
        graphs = self.collector.graphs
        sizes = [np.diff(offsets) for offsets in (graphs.node_offsets, graphs.edge_offsets)]
        found: dict[tuple[int, int], list[int]] = {}
        for epoch in range(min(_EPOCHS_LOOKED_AT, self.plan.calendar.num_epochs)):
            for step in range(self.plan.calendar.steps_in(epoch)):
                ids = self.schedule.seeds(epoch, step, self.group.rank).ids
                found[epoch, step] = [int(each[ids].sum()) for each in sizes]
        most = (max(found, key=lambda position, by=by: found[position][by]) for by in (0, 1))  # type: ignore[misc]
        return tuple(dict.fromkeys(most))

    def in_order(
        self, ids: NDArray[np.int64], pause: Callable[[], None] | Pause, *, most: int = 0
    ) -> Iterator[GraphBatch]:
        """Batches of the graphs `ids` [n], in their order, for an evaluation.

        `pause` is called before each of them, and as often as if there were `most` graphs: on all ranks equally often.
        """
        for begin in range(0, max(most, len(ids)), _EVALUATED_AT_ONCE):
            pause()
            part = ids[begin : begin + _EVALUATED_AT_ONCE]
            if len(part):
                yield self.chosen(part)
        if self.plan.budget is not None:  # batches are to fill the memory: what this took must not lie beside them
            _native.release_freed_memory()

    def chosen(self, ids: NDArray[np.int64]) -> GraphBatch:
        """The graphs `ids` [n] as one batch, outside any step."""
        collector = replace(self.collector, prefetch=0)
        return collector.collect(EvaluationSeeds(SeedIds(ids))).to(self.group.device)

    def _make(self, epoch: int, first_step: int) -> Iterator[GraphBatch]:
        for step in range(first_step, self.plan.calendar.steps_in(epoch)):
            with self.group.spans("collate"):
                batch = self.collector.collect(self.schedule.seeds(epoch, step, self.group.rank))
            yield batch


def _schedule(plan: Plan, graphs: GraphSet, ids: NDArray[np.int64]) -> SeedSchedule | BudgetSchedule:
    """Batches of equal numbers of graphs, or of as many as the plan's budget holds."""
    if plan.budget is None:
        return SeedSchedule.equal(ids, plan.batches, plan.seed)
    costs = Budget(plan.budget.max_nodes, plan.budget.max_edges).costs_of(graphs, ids)
    made = BudgetSchedule.of(ids, costs, rng_seed=plan.seed, ranks=plan.ranks)
    if made.packing.num_batches != plan.budget.num_batches:
        raise UserError(
            f"an epoch has {made.packing.num_batches} batches, and the plan says {plan.budget.num_batches}",
            fix="start a new run",
        )
    return made
