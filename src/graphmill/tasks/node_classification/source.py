"""Where a rank's batches come from, as the task sees it: a graph stored whole, or the parts of all ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import Features
from graphmill.nn.graphsage import GraphSage
from graphmill.nn.standardise import Standardise
from graphmill.sample.collect import FeatureSource, Labels, NeighbourSource, WholeTables
from graphmill.sample.neighbor import NeighborSampler
from graphmill.sample.schedule import Assign, SeedSchedule
from graphmill.spec.columns import Cell
from graphmill.sync.group import Group
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.inference import LayerwiseInference
from graphmill.tasks.node_classification.page import NodeClassificationPlan
from graphmill.tasks.node_classification.standardise import standardise
from graphmill.tasks.node_classification.transform import transformed
from graphmill.tasks.same_data import refuse_other_data
from graphmill.tasks.task import Pause, Split


@runtime_checkable
class SharedSource(Protocol):
    """A source whose loaders ask other ranks, and count what they fetch."""

    def warm_up(self, sampler: NeighbourSource, schedule: SeedSchedule, num_steps: int) -> None:
        """Fetch what is held all the time, before the first batch. All ranks must call it. An epoch has `num_steps`."""

    def mark(self) -> None:
        """From here on `facts` counts."""

    def facts(self) -> Mapping[str, Cell]:
        """What was fetched since, of all ranks together, by column. All ranks must call it."""

    def received_bytes(self) -> int:
        """By this rank, of other ranks, so far: for batches, evaluations and whatever else."""


class GraphSource(Protocol):
    """One rank's access to a prepared graph."""

    @property
    def labels(self) -> Labels:
        """Classes by node id, of the nodes of splits at least."""

    @property
    def tables(self) -> FeatureSource:
        """Brings what batches read within reach."""

    @property
    def assign(self) -> Assign | None:
        """How a global batch is shared out; None: in equal shares."""

    @property
    def window(self) -> int:
        """Batches whose rows are fetched together."""

    @property
    def windows_ahead(self) -> int:
        """Windows that have been sampled, besides the one that is fetched, when it is."""

    @property
    def sampled_together(self) -> int:
        """Batches that are sampled together: a window, or more."""

    @property
    def is_shared(self) -> bool:
        """Whether making a batch takes all ranks, who must make equally many."""

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """Ascending ids of the nodes of a split."""

    def standardise(self) -> Standardise | None:
        """Mean and deviation of the features of training nodes; None unless the plan asks for it."""

    def sampler(self, fanouts: tuple[int, ...], *, resample: bool) -> NeighbourSource:
        """A sampler of this graph."""

    def exact_logits(
        self, model: GraphSage, nodes: NDArray[np.int64], pause: Pause
    ) -> tuple[NDArray[np.int64], Tensor]:
        """This rank's share of `nodes` and their logits, layer by layer over all neighbours. All ranks must call it."""


@dataclass(frozen=True, slots=True)
class WholeGraph:
    """A graph that every host has whole: mapped, and nothing is asked of other ranks."""

    own: NodeClassificationPlan
    seed: int
    group: Group
    store: LabelledGraphStore = field(init=False)
    features: Features = field(init=False)
    labels: NDArray[np.int64] = field(init=False)  # [num_nodes], mapped: ranks of a host share it
    edge_features: EdgeFeatures | None = field(init=False)  # the columns that the model is called with
    tables: WholeTables = field(init=False)

    assign: None = field(default=None, init=False)
    window: int = field(default=1, init=False)
    windows_ahead: int = field(default=0, init=False)
    sampled_together: int = field(default=1, init=False)
    is_shared: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        own, store = self.own, LabelledGraphStore.open(Path(self.own.dataset.path))
        refuse_other_data(own.dataset, store.metadata.checksum)
        edges = None
        if own.edge_columns:
            edges = store.edge_features(undirected=own.undirected).with_columns(own.edge_columns)
        features = transformed(store.features, own.features)
        for name, value in {
            "store": store,
            "features": features,
            "labels": store.labels,
            "edge_features": edges,
            "tables": WholeTables(features, edges),
        }.items():
            object.__setattr__(self, name, value)

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """Ascending ids of the nodes of a split."""
        return self.store.nodes_in(split)

    def standardise(self) -> Standardise | None:
        """Of all training nodes of the prepared data."""
        return standardise(self.own, self.store)

    def sampler(self, fanouts: tuple[int, ...], *, resample: bool) -> NeighborSampler:
        """A sampler of the whole topology."""
        # One thread samples while others compute: a batch is a millisecond's work, and waking helpers takes a share.
        return NeighborSampler(
            self.store.topology(undirected=self.own.undirected),
            fanouts,
            self.seed,
            num_threads=1,
            resample=resample,
            with_edge_ids=self.edge_features is not None,
        )

    def exact_logits(
        self, model: GraphSage, nodes: NDArray[np.int64], pause: Pause
    ) -> tuple[NDArray[np.int64], Tensor]:
        """In contiguous shares of `nodes`."""
        topology = self.store.topology(undirected=self.own.undirected)
        return LayerwiseInference(model, topology, self.features, self.group, pause).logits(nodes)


def in_order_of_nodes(group: Group, nodes: NDArray[np.int64], rows: Tensor) -> Tensor:
    """Rows [n, num_columns] of all ranks' nodes [n] by ascending node, on every rank; each node is of one rank."""
    counts = [numbers[0] for numbers in group.gather_numbers([len(nodes)])]
    everyone = group.gather_rows(rows, counts)
    ids = group.gather_rows(torch.from_numpy(np.ascontiguousarray(nodes)).reshape(-1, 1), counts)
    return everyone[torch.argsort(ids[:, 0])]
