"""The seams of this package: what a task asks of its graph, and what a graph that lies here must offer for it."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.graph.batch import Block, InputForm, MiniBatch, SparseRows
from graphmill.graph.sampled import Sampled, Seeds
from graphmill.graph.splits import Split
from graphmill.nn.graphsage import JumpingKnowledge
from graphmill.nn.layer_edges import WeightedBlock
from graphmill.nn.operators import Activation
from graphmill.nn.standardise import Standardise
from graphmill.partition.placement import Owners
from graphmill.sample.collect import Collector, FeatureSource, Fetched, Labels, NeighbourSource
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.columns import Cell
from graphmill.sync.pause import Pause

Ids = NDArray[np.int64]


class SeedNodes(Protocol):
    """What steps learn from, and whose neighbourhoods they read for it: nodes themselves, or the ends of links."""

    @property
    def schedule(self) -> SeedSchedule:
        """Which seeds each rank has at each step."""

    def nodes_of(self, seeds: Seeds) -> Seeds:
        """The nodes, each once, whose neighbourhoods a step with these seeds reads."""

    def kept(self, sampled: Sampled) -> Sampled:
        """What a step may read of a neighbourhood that was drawn for it: without what it is asked to predict."""


class GraphAccess(Protocol):
    """One rank's way to mini-batches of a prepared graph; all that a task uses."""

    @property
    def schedule(self) -> SeedSchedule:
        """Which seeds each rank has at each step."""

    def nodes_in(self, split: Split) -> Ids:
        """Ascending ids of the nodes of a split."""

    def standardise(self) -> Standardise | None:
        """Mean and deviation of the features of training nodes; None unless the spec asks for it."""

    def begin(self, labels: Labels, *, form: InputForm, dtype: torch.dtype) -> None:
        """Prepare to make batches. All ranks must call it once, before the first batch.

        Args:
            labels: what batches carry of their seeds.
            form: how the model reads features.
            dtype: of dense features.
        """

    def batches(self, epoch: int, first_step: int) -> Generator[MiniBatch]:
        """This rank's mini-batches from a step of an epoch to the epoch's end, on the rank's device."""

    def exact(self, model: nn.Module, nodes: Ids, pause: Pause, *, hops: int, num_columns: int) -> tuple[Ids, Tensor]:
        """What a model gives `nodes` without sampling. All ranks must call it.

        Args:
            model: called with mini-batches; a `LayerwiseModel` is computed layer by layer, another one on the whole
                graph or on whole neighbourhoods of `hops` hops, as the spec says.
            nodes: [n], ascending; the same on all ranks.
            pause: called by all ranks equally often.
            hops: how far a model of unknown layers may read.
            num_columns: of its result.

        Returns:
            This rank's share of `nodes` [m], and their rows [m, num_columns] on the CPU.
        """

    def epoch_facts(self) -> Mapping[str, Cell]:
        """What was fetched for the epoch whose batches were made last, by column. All ranks call it together."""

    def evaluation_facts(self) -> Mapping[str, Cell]:
        """What the evaluation since `epoch_facts` received of other ranks, by column. All ranks call it together."""


class Collects(Protocol):
    """Makes a mini-batch of a neighbourhood, and of what was fetched for it."""

    def collect(self, sampled: Sampled, fetched: Fetched) -> MiniBatch:
        """Mini-batch of a neighbourhood, on the CPU or where the source has its rows."""


class GraphSource(Protocol):
    """A graph of which this process draws neighbourhoods and reads rows: `LocalAccess` makes batches of one.

    Another way to have a graph, as on a device, is a class like this and a line in `opening.source_of`.
    """

    @property
    def tables(self) -> FeatureSource:
        """Brings what batches read within reach."""

    @property
    def owners(self) -> Owners | None:
        """Which rank answers for each node; None: none does alone."""

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

    def sampler(self, fanouts: tuple[int, ...], *, resample: bool) -> NeighbourSource:
        """A sampler of this graph."""

    def collecting(self, collector: Collector) -> Collects:
        """What makes batches of steps: `collector`, unless they are made where rows lie."""

    def statistics(self, nodes: Ids) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and deviation [num_features] of dense features over `nodes`. All ranks must call it."""

    def sweep(self, model: "LayerwiseModel", nodes: Ids, pause: Pause) -> tuple[Ids, Tensor]:
        """This rank's share of `nodes` and their rows, layer by layer over all neighbours. All ranks must call it."""

    def warm_up(self, sampler: NeighbourSource, seeds: SeedNodes, nodes: Ids, num_steps: int) -> None:
        """Fetch what is held all the time, before the first batch. All ranks must call it.

        Args:
            sampler: of training batches.
            seeds: what they learn from.
            nodes: whose neighbourhoods they may read, ascending.
            num_steps: of an epoch.
        """

    def mark(self) -> None:
        """Start a new count of what `facts` reports."""

    def facts(self) -> Mapping[str, Cell]:
        """What was fetched of other ranks since, of all together, by column. All ranks must call it."""

    def received_bytes(self) -> int | None:
        """Bytes that this rank received from others so far, for batches, evaluations and all else; None: none asked."""


class MeanAggregation(Protocol):
    """A layer that reads a node's own row and the mean over its neighbours; `nn.graphsage.MeanLayer` is one."""

    in_channels: int
    out_channels: int
    weight: Any  # nn.Parameter, whose device is the layer's

    def on_self_and_mean(self, x: Tensor, activation: Activation | None) -> Tensor:
        """Result for rows [n, 2 * in_channels]: each node's own row beside the mean of its neighbours."""

    def on_rows(self, h: Tensor, block: Block | WeightedBlock, activation: Activation | None) -> Tensor:
        """Result for a block, from rows [n, in_channels], of which the first are the block's own."""

    def on_sparse(self, x: SparseRows, block: Block | WeightedBlock, activation: Activation | None) -> Tensor:
        """Result for a block, from sparse rows [n, in_channels], of which the first are the block's own."""


class LayerwiseModel(Protocol):
    """A model whose layers can be computed one after the other for all nodes, with ReLU between them."""

    standardise: Standardise | None
    readout: JumpingKnowledge | None  # reads the rows of all layers, each after ReLU; None: the last gives the result

    @property
    def mean_layers(self) -> Sequence[MeanAggregation]:
        """Mean layers of the model, in order."""


def is_layerwise(model: object) -> TypeGuard[LayerwiseModel]:
    """Whether a model's layers can be computed one after the other.

    Not by isinstance: from Python 3.12 on it does not see the submodules of a `torch.nn.Module`.
    """
    return all(hasattr(model, name) for name in ("standardise", "readout", "mean_layers"))
