"""Batches made in this process, of a graph that it reads: drawn, fetched, collected, a few ahead of the step."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import Tensor, nn

from graphmill.access.draws import EitherSampler, SettledDraws
from graphmill.access.exact import on_neighbourhoods, on_whole_graph
from graphmill.access.graph import Collects, GraphSource, Ids, SeedNodes, is_layerwise
from graphmill.access.spec import AccessSpec, NodeStore
from graphmill.graph.batch import InputForm, MiniBatch
from graphmill.graph.sampled import Sampled
from graphmill.graph.splits import Split
from graphmill.nn.standardise import Standardise
from graphmill.sample.collect import Collector, Labels, NeighbourSource, sample_window
from graphmill.sample.feed import feed
from graphmill.sample.prefetch import prefetch
from graphmill.sample.schedule import SeedSchedule, in_windows, with_following
from graphmill.spec.columns import Cell
from graphmill.spec.gpu_graph import DrawnBy
from graphmill.sync.group import MIB, Group
from graphmill.sync.pause import Pause


@dataclass(slots=True)
class LocalAccess:
    """`GraphAccess` over a `GraphSource`: the same steps for any graph and any way to draw neighbourhoods."""

    spec: AccessSpec
    store: NodeStore
    source: GraphSource
    sampler: NeighbourSource  # of training batches
    seeds: SeedNodes
    group: Group
    collector: Collector = field(init=False)  # once `begin` was called
    of_steps: Collects = field(init=False)  # the same, or what makes batches where the rows lie
    _fetch_began: float = field(default=0.0, init=False)
    _received_before: int = field(default=0, init=False)  # bytes, before the evaluation of an epoch

    @property
    def schedule(self) -> SeedSchedule:
        """Which seeds each rank has at each step."""
        return self.seeds.schedule

    def nodes_in(self, split: Split) -> Ids:
        """Ascending ids of the nodes of a split."""
        return self.store.nodes_in(split)

    def standardise(self) -> Standardise | None:
        """Mean and deviation over all training nodes of the data, even if an epoch has fewer; None: not asked for."""
        if self.spec.features != "standardised":
            return None
        mean, sd = self.source.statistics(self.nodes_in("train"))
        return Standardise(torch.from_numpy(mean), torch.from_numpy(sd))

    def begin(self, labels: Labels, *, form: InputForm, dtype: torch.dtype) -> None:
        """Make room for batches; fetch what is held of other parts."""
        plan = self.spec.plan
        self.collector = Collector(
            labels,
            form,
            dtype,
            plan.threads,
            plan.prefetch,
            pinned=self.group.device.type == "cuda",
            edge_columns=len(self.spec.edge_columns),
            node_types=self.store.node_type if self.spec.node_types else None,
        )
        self.of_steps = self.source.collecting(self.collector)
        self.source.warm_up(self.sampler, self.seeds, self.nodes_in("train"), plan.calendar.steps_in(0))

    def settle_draws(self, before: DrawnBy | None = None) -> SettledDraws | None:
        """Decide before the first batch of an attempt who draws, as in an attempt `before`; None: no choice."""
        if not isinstance(self.sampler, EitherSampler):
            return None
        settled = self.sampler.settle(self._seconds_to_make, self.spec.plan.calendar.steps_in(0), before)
        self.collector.release()  # page-locked memory of batches that were measured: the device may need none
        return settled

    def _seconds_to_make(self, step: int) -> float:
        """How long a batch of the first epoch takes until it is on the device."""
        seeds, device = self.seeds.nodes_of(self.schedule.seeds(0, step, self.group.rank)), self.group.device
        began = time.perf_counter()
        sampled = self.seeds.kept(self.sampler.sample(seeds))
        (fetched,) = self.source.tables.fetch([sampled])
        batch = self.of_steps.collect(sampled, fetched).to(device)
        if device.type != "cpu":
            torch.cuda.current_stream(device).record_event().synchronize()
        del batch
        return time.perf_counter() - began

    def batches(self, epoch: int, first_step: int) -> Generator[MiniBatch]:
        """The mini-batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        self.source.mark()
        self._fetch_began = self.group.spans.seconds["fetch"]
        made = prefetch(
            lambda: self._make(epoch, first_step), self.spec.plan.prefetch, collective=self.source.is_shared
        )
        with closing(made) as batches:
            yield from feed(batches, self.group.device, self.group.spans)

    def collected(
        self, sampled: Sequence[Sampled], following: Sequence[Sequence[Sampled]], is_shared: bool
    ) -> Iterator[MiniBatch]:
        """The batches of neighbourhoods whose rows are fetched together; `following`: those of the windows in sight."""
        spans = self.group.spans
        with spans("fetch" if is_shared else "gather"):
            fetched = self.source.tables.fetch(sampled, following)
        for one, its in zip(sampled, fetched, strict=True):
            with spans("gather"):
                batch = self.of_steps.collect(one, its)
            yield batch
            del one, its, batch

    def exact(self, model: nn.Module, nodes: Ids, pause: Pause, *, hops: int, num_columns: int) -> tuple[Ids, Tensor]:
        """Layer by layer; of a model of unknown layers on the whole graph, or on whole neighbourhoods."""
        if is_layerwise(model):
            self.collector.release()
            return self.source.sweep(model, nodes, pause)
        if self.spec.propagation is not None:  # rows hold what their hops give
            hops = 0
        collector = self.source.collecting(replace(self.collector, prefetch=0, dtype=torch.float32))
        if self.spec.evaluates_whole:
            self.collector.release()
            num_nodes = int(self.store.metadata.num_nodes)
            return on_whole_graph(
                model, self.source, collector, nodes, pause, self.group, hops=hops, num_nodes=num_nodes
            )
        return on_neighbourhoods(
            model, self.source, collector, nodes, pause, self.group, hops=hops, num_columns=num_columns
        )

    def epoch_facts(self) -> Mapping[str, Cell]:
        """What its loaders fetched from other ranks; nothing of a graph that is stored whole."""
        received = self.source.received_bytes()
        if received is None:
            return {}
        self._received_before = received
        return {**self.source.facts(), "fetch_s": self.group.spans.seconds["fetch"] - self._fetch_began}

    def evaluation_facts(self) -> Mapping[str, Cell]:
        """What ranks received from one another to evaluate; nothing of a graph that is stored whole."""
        received = self.source.received_bytes()
        if received is None:
            return {}
        of_this = torch.tensor([received - self._received_before], dtype=torch.float64)
        return {"eval_mib": float(self.group.sum_numbers(of_this)[0]) / MIB}

    def _make(self, epoch: int, first_step: int) -> Iterator[MiniBatch]:
        source, sampled = self.source, self._sampled(epoch, first_step)
        steps = range(first_step, self.spec.plan.calendar.steps_in(epoch))
        in_turn = (list(islice(sampled, len(window))) for window in in_windows(steps, source.window))
        for window, following in with_following(in_turn, source.windows_ahead):
            yield from self.collected(window, following, source.is_shared)
            del window, following  # held here, what was fetched would stay while the next is

    def _sampled(self, epoch: int, first_step: int) -> Iterator[Sampled]:
        """The neighbourhoods of an epoch's steps, in turn."""
        steps, rank = range(first_step, self.spec.plan.calendar.steps_in(epoch)), self.group.rank
        for together in in_windows(steps, self.source.sampled_together):
            with self.group.spans("sample"):
                learnt = (self.schedule.seeds(epoch, step, rank) for step in together)
                window = sample_window(self.sampler, [self.seeds.nodes_of(each) for each in learnt])
                sampled = [self.seeds.kept(each) for each in window]
            yield from sampled
