"""A trainer's access to a prepared graph of which samplers hold the features and the edges."""

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.access.graph import Ids, is_layerwise
from graphmill.access.seeds import assign_of, owners_of, schedule_of
from graphmill.access.spec import AccessSpec
from graphmill.access.stores import NodeStore
from graphmill.graph.batch import InputForm, MiniBatch
from graphmill.graph.sampled import NodeIds
from graphmill.graph.splits import Split
from graphmill.nn.standardise import Standardise
from graphmill.partition.owners import Owners
from graphmill.sample.collect import Labels
from graphmill.sample.feed import feed
from graphmill.sample.schedule import SeedSchedule
from graphmill.sample.service.served import CLOCKS, SamplerClient
from graphmill.spec.columns import Cell
from graphmill.spec.fetching import FETCHING
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
        asked = (torch.from_numpy(np.array(nodes)), torch.from_numpy(np.array(mine)))
        return mine, self.served.logits(*asked, weights, pause, EvaluationStopped)

    def epoch_facts(self) -> Mapping[str, Cell]:
        """What the samplers fetched for the epoch whose batches were made last; nothing of a whole graph."""
        seconds, numbers = self.served.said[: len(CLOCKS)], self.served.said[len(CLOCKS) :]
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
