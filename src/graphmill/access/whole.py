"""A graph that every host has whole: mapped, and nothing is asked of other ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphmill.access.graph import Collects, Ids, LayerwiseModel, SeedNodes
from graphmill.access.layerwise import LayerwiseInference
from graphmill.access.propagated import propagated
from graphmill.access.spec import AccessSpec, WholeStore
from graphmill.access.transform import transformed
from graphmill.graph.edge_features import EdgeFeatures, refuse_negative_weights
from graphmill.graph.features import DenseFeatures, Features
from graphmill.graph.statistics import statistics
from graphmill.graph.topology import Topology
from graphmill.sample.collect import Collector, NeighbourSource, WholeTables
from graphmill.sample.neighbor import RelationSampler, WholeSampler
from graphmill.spec.columns import Cell
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause


@dataclass(frozen=True, slots=True)
class WholeGraph:
    """Graph that is stored whole: its topology, and the features and edge features that batches carry."""

    spec: AccessSpec
    store: WholeStore
    group: Group
    features: Features
    edge_features: EdgeFeatures | None  # the columns that batches carry
    tables: WholeTables
    num_extra_columns: int = 0  # the last columns, which are no features

    owners: ClassVar[None] = None
    window: ClassVar[int] = 1
    windows_ahead: ClassVar[int] = 0
    sampled_together: ClassVar[int] = 1
    is_shared: ClassVar[bool] = False

    @classmethod
    def of(
        cls, spec: AccessSpec, store: WholeStore, group: Group, extra_columns: NDArray[np.float32] | None = None
    ) -> "WholeGraph":
        """Map what `spec` reads of an opened store. `extra_columns`: beside propagated features; None: no others."""
        edges = None
        if spec.edge_columns:
            edges = store.edge_features(undirected=spec.undirected).with_columns(spec.edge_columns)
        if edges is not None and spec.has_weighted_means:
            refuse_negative_weights(edges.values[:, 0], str(store.metadata.name))
        features = transformed(store.features, spec.features)
        if spec.propagation is not None:
            features = propagated(features, store.topology(undirected=spec.undirected), spec.propagation, extra_columns)
        num_extra_columns = 0 if extra_columns is None else extra_columns.shape[1]
        return cls(spec, store, group, features, edges, WholeTables(features, edges), num_extra_columns)

    @property
    def topology(self) -> Topology:
        """Topology in the directions that messages pass along."""
        return self.store.topology(undirected=self.spec.undirected)

    def sampler(self, fanouts: tuple[int, ...], *, resample: bool) -> NeighbourSource:
        """A sampler of the whole topology."""
        # One thread samples while others compute: a batch is a millisecond's work, and waking helpers takes a share.
        return WholeSampler(
            self.topology,
            fanouts,
            self.spec.plan.seed,
            num_threads=1,
            resample=resample,
            with_edge_ids=self.edge_features is not None,
        )

    def collecting(self, collector: Collector) -> Collects:
        """Return the collector itself: it makes batches on the CPU."""
        return collector

    def statistics(self, nodes: Ids) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and deviation of the features as they are read, before the model standardises them.

        0 and 1 of columns beside them, which are left as they are.
        """
        assert isinstance(self.features, DenseFeatures), "the plan was refused for sparse ones"
        mean, sd = statistics(self.features, nodes)
        of_features = len(mean) - self.num_extra_columns
        mean[of_features:], sd[of_features:] = 0, 1
        return mean, sd

    def sweep(self, model: LayerwiseModel, nodes: Ids, pause: Pause) -> tuple[Ids, Tensor]:
        """This rank's contiguous share of `nodes` and their rows, computed layer by layer."""
        return self.layerwise(model, pause).logits(nodes)

    def layerwise(self, model: LayerwiseModel, pause: Pause) -> LayerwiseInference:
        """Exact inference with this graph."""
        weights = self.edge_features if self.spec.has_weighted_means else None
        return LayerwiseInference(model, self.topology, self.features, self.group, pause, weights)

    def warm_up(self, sampler: NeighbourSource, seeds: SeedNodes, nodes: Ids, num_steps: int) -> None:
        """Do nothing: all rows are here."""

    def mark(self) -> None:
        """Do nothing: no facts are counted."""

    def facts(self) -> Mapping[str, Cell]:
        """Return an empty mapping: no facts are counted."""
        return {}

    def received_bytes(self) -> None:
        """Return None: no other rank is asked."""


def by_relation(spec: AccessSpec, store: WholeStore) -> NeighbourSource:
    """A sampler of a whole typed graph with a fan-out for each relation."""
    types = store.edge_features(undirected=False).with_columns((len(store.metadata.edge_features) - 1,))
    return RelationSampler(
        store.topology(undirected=False),
        types.values[:, 0].astype(np.int32),
        spec.relation_fanouts,
        spec.plan.seed,
        resample=spec.resample,
        with_edge_ids=bool(spec.edge_columns),
    )
