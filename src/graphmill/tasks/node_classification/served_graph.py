"""A trainer's access to a prepared graph of which samplers hold the features and the edges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.nn.graphsage import GraphSage
from graphmill.nn.standardise import Standardise
from graphmill.partition.parts import PartedGraph
from graphmill.sample.collect import Labels
from graphmill.sample.schedule import Assign
from graphmill.sample.service.served import CLOCKS, Served
from graphmill.spec.columns import Cell
from graphmill.spec.fetching import FETCHING
from graphmill.sync.group import MIB, Group
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.in_parts import placement_of
from graphmill.tasks.node_classification.owners import Owners
from graphmill.tasks.node_classification.page import NodeClassificationPlan
from graphmill.tasks.node_classification.parts import PartedLabelledGraph, open_labels
from graphmill.tasks.same_data import refuse_other_data
from graphmill.tasks.task import EvaluationStopped, Pause, Split

FETCHED: Final = tuple(name for name in FETCHING if name not in ("fetch_s", "eval_mib"))
"""What a sampler says of an epoch, behind its `CLOCKS`, where the graph is in parts."""


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """Splits and classes are read here; batches and logits are asked for."""

    own: NodeClassificationPlan
    group: Group
    served: Served
    store: LabelledGraphStore | PartedLabelledGraph = field(init=False)
    labels: Labels = field(init=False)
    owners: Owners | None = field(init=False)  # None: a graph that is stored whole

    def __post_init__(self) -> None:
        path = Path(self.own.dataset.path)
        store = open_labels(path)
        refuse_other_data(self.own.dataset, store.metadata.checksum)
        owners = owners_among(self.own, path, ranks=self.group.world_size, hosts=self.group.num_hosts)
        for name, value in {"store": store, "labels": store.labels, "owners": owners}.items():
            object.__setattr__(self, name, value)

    @property
    def assign(self) -> Assign | None:
        """As if this rank and the others held the parts."""
        return assign_among(self.own, self.owners)

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """Ascending ids of the nodes of a split."""
        return self.store.nodes_in(split)

    def standardise(self) -> Standardise | None:
        """As the samplers have found it."""
        return None if self.own.features != "standardised" else Standardise(*self.served.scale())

    def exact_logits(
        self, model: nn.Module, nodes: NDArray[np.int64], pause: Pause
    ) -> tuple[NDArray[np.int64], Tensor]:
        """The share of `nodes` that this rank would compute itself, and their logits."""
        if isinstance(model, GraphSage) and self.owners is not None:
            mine = nodes[self.owners.owner_of(nodes) == self.group.rank]
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


def owners_among(own: NodeClassificationPlan, path: Path, *, ranks: int, hosts: int) -> Owners | None:
    """Who would own which nodes if `ranks` ranks on `hosts` hosts held the parts; None: there are no parts."""
    if own.partition is None:
        return None
    graph = PartedGraph.open(path, parts=(), whole_topology=False)
    return Owners(graph, placement_of(own.partition, graph.metadata.num_parts, ranks=ranks, hosts=hosts))


def assign_among(own: NodeClassificationPlan, owners: Owners | None) -> Assign | None:
    """How those ranks share a global batch out; None: equally."""
    return owners if own.partition is not None and own.partition.seeds == "owner" else None
