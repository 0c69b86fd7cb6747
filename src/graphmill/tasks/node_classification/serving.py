"""What a sampler makes for the trainers that it serves: their batches, and logits for their evaluations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.batch import MiniBatch
from graphmill.graph.sampled import Sampled
from graphmill.runtime.spans import Name
from graphmill.sample.schedule import SeedSchedule, contiguous_shares
from graphmill.sample.service.served import CLOCKS
from graphmill.sample.windows import in_windows, with_following
from graphmill.spec.plan import Plan
from graphmill.spec.roles import Seat
from graphmill.sync.group import Group
from graphmill.tasks.node_classification.served_graph import FETCHED, assign_among, owners_among
from graphmill.tasks.node_classification.source import SharedSource, in_order_of_nodes
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.task import Pause


@dataclass(slots=True)
class BatchServer:
    """A sampler's share of the problem: the graph, or its parts, as the samplers hold it, and the trainers' schedule.

    Samplers that hold parts make batches together, so all must make as many.
    """

    plan: Plan
    group: Group  # of the samplers
    trainers: Sequence[int]  # that it serves
    first: Seat  # of the first trainer: how many there are, and on how many hosts
    task: NodeClassification = field(init=False)
    schedule: SeedSchedule = field(init=False)
    _before: Mapping[Name, float] = field(default_factory=dict, init=False)
    _received: int = field(default=0, init=False)  # bytes, for the logits made last

    def __post_init__(self) -> None:
        own = self.plan.task
        self.task = task = NodeClassification(self.plan, own, self.group)  # type: ignore[arg-type]  # of its kind
        among = {"ranks": self.first.num_ranks, "hosts": self.first.num_hosts}
        assign = assign_among(task.own, owners_among(task.own, Path(task.own.dataset.path), **among))
        share = assign or partial(contiguous_shares, world_size=self.first.num_ranks)
        self.schedule = replace(task.schedule, assign=share)

    @property
    def is_shared(self) -> bool:
        """Whether making a batch takes all samplers."""
        return self.task.source.is_shared

    def begin(self) -> None:
        """From here on `said` counts."""
        self._before = dict(self.group.spans.seconds)
        if isinstance(self.task.source, SharedSource):
            self.task.source.mark()

    def windows(self, epoch: int, first_step: int) -> Iterator[tuple[range, Iterator[MiniBatch]]]:
        """The steps that are left of an epoch, those whose batches are made together, and these batches.

        Of each step, of each trainer in turn; the memory of one is reused for a later one. A row that several of them
        need is fetched once. What is asked of other samplers for a window is asked when the first batch of the one
        before is made, and for the first window when its own is.
        """
        source = self.task.source
        steps = in_windows(range(first_step, self.plan.calendar.steps_in(epoch)), source.window)
        sampled = ((window, self._sampled(epoch, window)) for window in steps)
        for (window, one), following in with_following(sampled, source.windows_ahead):
            yield window, self._batches(one, [its for _, its in following])

    def _sampled(self, epoch: int, window: range) -> list[Sampled]:
        with self.group.spans("sample"):
            seeds = (self.schedule.seeds(epoch, step, trainer) for step in window for trainer in self.trainers)
            return [self.task.sampler.sample(each) for each in seeds]

    def _batches(self, sampled: Sequence[Sampled], following: Sequence[Sequence[Sampled]]) -> Iterator[MiniBatch]:
        task, spans = self.task, self.group.spans
        with spans("fetch" if self.is_shared else "gather"):
            fetched = task.source.tables.fetch(sampled, following)
        for one, its in zip(sampled, fetched, strict=True):
            with spans("gather"):
                batch = task.collector.collect(one, its)
            yield batch
            del one, its, batch

    def said(self) -> Tensor:
        """What making batches took since `begin` (`CLOCKS`, s), and what all samplers fetched (`FETCHED`)."""
        seconds = self.group.spans.seconds
        numbers = [seconds[name] - self._before.get(name, 0.0) for name in CLOCKS]
        if isinstance(self.task.source, SharedSource):
            facts = self.task.source.facts()
            numbers += [float("nan") if (fact := facts[name]) is None else float(fact) for name in FETCHED]
        return torch.tensor(numbers, dtype=torch.float64)

    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the features."""
        scale = self.task.model.standardise
        assert scale is not None, "asked for only where the plan has it"
        return scale.mean.detach(), scale.sd.detach()

    def logits(self, nodes: Tensor, weights: Sequence[Tensor], pause: Pause) -> Tensor:
        """Logits of all `nodes`, ascending, with these weights; all samplers must call it. `pause` may raise."""
        model = self.task.model
        for own, given in zip(model.state_dict().values(), weights, strict=True):
            own.copy_(given)
        model.eval()
        before = self._received_so_far()
        mine, logits = self.task.exact_logits(np.array(nodes), pause)
        self._received = self._received_so_far() - before
        return in_order_of_nodes(self.group, mine, logits)

    def evaluation_bytes(self) -> int:
        """What samplers received from one another for the `logits` made last, all together. All must call it."""
        return int(self.group.sum_numbers(torch.tensor([self._received]))[0])

    def _received_so_far(self) -> int:
        source = self.task.source
        return source.received_bytes() if isinstance(source, SharedSource) else 0
