"""What a sampler makes for the trainers that it serves: their batches, and logits for their evaluations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from graphmill.access.exact import in_order_of_nodes
from graphmill.access.graph import Ids
from graphmill.access.local import LocalAccess
from graphmill.access.seeds import assign_of, owners_of
from graphmill.access.served import FETCHED
from graphmill.graph.batch import MiniBatch
from graphmill.graph.sampled import Sampled
from graphmill.runtime.spans import Name
from graphmill.sample.schedule import SeedSchedule
from graphmill.sample.service.served import CLOCKS
from graphmill.sample.windows import in_windows, with_following
from graphmill.spec.roles import Seat
from graphmill.sync.pause import Pause


class ServableTask(Protocol):
    """What a sampler needs of a task: its model, and how it evaluates."""

    @property
    def model(self) -> Any:  # noqa: ANN401  # a module with `standardise`
        """Model that the plan describes."""

    def exact_logits(self, nodes: Ids, pause: Pause) -> tuple[Ids, Tensor]:
        """This rank's share of `nodes` and their logits. All ranks must call it."""


@dataclass(slots=True)
class BatchServer:
    """A sampler's share of the problem: the graph, or its parts, as the samplers hold it, and the trainers' schedule.

    Samplers that hold parts make batches together, so all must make as many.
    """

    task: ServableTask
    access: LocalAccess  # the task's, among samplers
    trainers: Sequence[int]  # that it serves
    first: Seat  # of the first trainer: how many there are, and on how many hosts
    schedule: SeedSchedule = field(init=False)
    _before: Mapping[Name, float] = field(default_factory=dict, init=False)
    _received: int = field(default=0, init=False)  # bytes, for the logits made last

    def __post_init__(self) -> None:
        spec, ranks = self.access.spec, self.first.num_ranks
        owners = owners_of(spec, self.access.store.path, ranks=ranks, hosts=self.first.num_hosts)
        self.schedule = replace(self.access.schedule, assign=assign_of(spec, owners, ranks))

    @property
    def is_shared(self) -> bool:
        """Whether making a batch takes all samplers."""
        return self.access.source.is_shared

    def begin(self) -> None:
        """Start a new count of what `said` reports."""
        self._before = dict(self.access.group.spans.seconds)
        self.access.source.mark()

    def windows(self, epoch: int, first_step: int) -> Iterator[tuple[range, Iterator[MiniBatch]]]:
        """The steps that are left of an epoch, those whose batches are made together, and these batches.

        Of each step, of each trainer in turn; the memory of one is reused for a later one. A row that several of them
        need is fetched once. What is asked of other samplers for a window is asked when the first batch of the one
        before is made, and for the first window when its own is.
        """
        access, source = self.access, self.access.source
        steps = in_windows(range(first_step, access.spec.plan.calendar.steps_in(epoch)), source.window)
        sampled = ((window, self._sampled(epoch, window)) for window in steps)
        for (window, one), following in with_following(sampled, source.windows_ahead):
            yield window, access.collected(one, [its for _, its in following], self.is_shared)

    def _sampled(self, epoch: int, window: range) -> list[Sampled]:
        with self.access.group.spans("sample"):
            seeds = (self.schedule.seeds(epoch, step, trainer) for step in window for trainer in self.trainers)
            return [self.access.sampler.sample(each) for each in seeds]

    def said(self) -> Tensor:
        """What making batches took since `begin` (`CLOCKS`, s), and what all samplers fetched (`FETCHED`)."""
        seconds = self.access.group.spans.seconds
        numbers = [seconds[name] - self._before.get(name, 0.0) for name in CLOCKS]
        facts = self.access.source.facts()
        numbers += [float("nan") if (fact := facts[name]) is None else float(fact) for name in FETCHED if facts]
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
        return in_order_of_nodes(self.access.group, mine, logits)

    def evaluation_bytes(self) -> int:
        """What samplers received from one another for the `logits` made last, all together. All must call it."""
        return int(self.access.group.sum_numbers(torch.tensor([self._received]))[0])

    def _received_so_far(self) -> int:
        return self.access.source.received_bytes() or 0
