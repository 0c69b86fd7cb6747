"""A prepared graph of which samplers hold the features and the edges.

Here are a trainer's access to it, and what a sampler makes for the trainers that it serves: their batches, and logits
for their evaluations.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.access.exact import in_order_of_nodes
from graphmill.access.graph import Ids, is_layerwise
from graphmill.access.local import LocalAccess
from graphmill.access.seeds import assign_of, owners_of, schedule_of
from graphmill.access.spec import AccessSpec, NodeStore
from graphmill.graph.batch import InputForm, MiniBatch
from graphmill.graph.sampled import NodeIds, Sampled
from graphmill.graph.splits import Split
from graphmill.nn.standardise import Standardise
from graphmill.partition.placement import Owners
from graphmill.runtime.spans import Name
from graphmill.sample.collect import Labels
from graphmill.sample.feed import feed
from graphmill.sample.schedule import SeedSchedule, in_windows, with_following
from graphmill.sample.service.served import CLOCKS, SamplerClient
from graphmill.spec.columns import Cell
from graphmill.spec.fetching import FETCHING
from graphmill.spec.roles import RoleRank
from graphmill.sync.group import MIB, Group
from graphmill.sync.pause import EvaluationStopped, Pause

FETCHED: Final = tuple(name for name in FETCHING if name not in ("fetch_s", "eval_mib"))
"""What a sampler says of an epoch, behind its `CLOCKS`, where the graph is in parts."""


@dataclass(slots=True)
class ServedAccess:
    """`GraphAccess` by a sampler: splits are read here; batches, statistics and exact inference are asked for."""

    spec: AccessSpec
    store: NodeStore
    group: Group
    served: SamplerClient
    owners: Owners | None = field(init=False)  # as if this rank and the others held the parts; None: stored whole
    schedule: SeedSchedule = field(init=False)

    def __post_init__(self) -> None:
        ranks = self.group.world_size
        self.owners = owners_of(self.spec, self.store.path, ranks=ranks, hosts=self.group.num_hosts)
        self.schedule = schedule_of(self.spec, self.store, assign_of(self.spec, self.owners, ranks))

    def nodes_in(self, split: Split) -> Ids:
        """Ascending ids of the nodes of a split."""
        return self.store.nodes_in(split)

    def standardise(self) -> Standardise | None:
        """Mean and deviation of the features that the samplers found; None: not asked for."""
        return None if self.spec.features != "standardised" else Standardise(*self.served.scale())

    def begin(self, labels: Labels, *, form: InputForm, dtype: torch.dtype) -> None:
        """Do nothing: the sampler knows the same plan."""

    def batches(self, epoch: int, first_step: int) -> Generator[MiniBatch]:
        """The mini-batches of this rank, as they arrive."""
        num_steps = self.spec.plan.calendar.steps_in(epoch) - first_step
        with closing(self.served.batches(epoch, first_step, num_steps)) as batches:
            yield from feed(batches, self.group.device, self.group.spans)

    def exact(self, model: nn.Module, nodes: Ids, pause: Pause, *, hops: int, num_columns: int) -> tuple[Ids, Tensor]:
        """The share of `nodes` that this rank would compute itself, and their rows."""
        if is_layerwise(model) and self.owners is not None:
            mine = nodes[self.owners.owner_of(NodeIds(nodes)) == self.group.rank]
        else:
            mine = np.array_split(nodes, self.group.world_size)[self.group.rank]
        weights = list(model.state_dict().values())
        request = (torch.from_numpy(np.array(nodes)), torch.from_numpy(np.array(mine)))
        return mine, self.served.logits(*request, weights, pause, EvaluationStopped)

    def epoch_facts(self) -> Mapping[str, Cell]:
        """What the samplers fetched for the epoch whose batches were made last; nothing of a whole graph."""
        seconds, numbers = self.served.spent[: len(CLOCKS)], self.served.spent[len(CLOCKS) :]
        if not numbers:
            return {}
        facts: dict[str, Cell] = {"fetch_s": seconds[CLOCKS.index("fetch")]}
        for name, number in zip(FETCHED, numbers, strict=True):
            is_whole = FETCHING[name].kind == "integer"
            facts[name] = None if np.isnan(number) else int(number) if is_whole else number
        self.served.evaluation_bytes = 0
        return facts

    def evaluation_facts(self) -> Mapping[str, Cell]:
        """What the samplers received from one another to evaluate since `epoch_facts`; nothing of a whole graph."""
        return {} if self.owners is None else {"eval_mib": self.served.evaluation_bytes / MIB}


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
    first: RoleRank  # of the first trainer: how many there are, and on how many hosts
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
        """Start a new count of what `spent` reports."""
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

    def spent(self) -> Tensor:
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
