"""The types that flow from seeds to a step. One type per stage, no optional fields (house rule 3)."""

from dataclasses import dataclass
from typing import NewType

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

GlobalIds = NewType("GlobalIds", NDArray[np.int64])  # [n]: node ids of the whole graph


@dataclass(frozen=True, slots=True)
class Seeds:
    """The training nodes of one step on one rank.

    `ids` [num_seeds] may be empty: a rank without seeds still takes part in every sync.
    """

    epoch: int
    step: int  # within the epoch, counted per rank
    ids: GlobalIds


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sampled neighbourhood, relabelled to local ids 0..num_nodes, hop by hop.

    Nodes stand in order of discovery: seeds first, then what each hop adds. `indptr` and `indices` are the sampled
    in-edges of the first `num_rows` nodes (all but the last hop's), in compressed sparse form with local ids. A prefix
    of the rows is the block of a shallower layer, so layer l of L reads the first `num_dst[l]` rows and the outermost
    layer comes first.
    """

    seeds: Seeds
    node_ids: GlobalIds  # [num_nodes]
    indptr: NDArray[np.int64]  # [num_rows + 1]
    indices: NDArray[np.int32]  # [num_edges], local ids
    num_nodes_per_hop: tuple[int, ...]  # nodes added: (seeds, hop 1, …, hop L)
    num_edges_per_hop: tuple[int, ...]  # (hop 1, …, hop L)


@dataclass(frozen=True, slots=True)
class DenseRows:
    """Features of all nodes of the batch."""

    x: Tensor  # [num_nodes, num_features]


@dataclass(frozen=True, slots=True)
class SelfAndMean:
    """Features of a mean layer's rows beside the mean over their sampled in-neighbours.

    Made straight from the store: neither the neighbours' rows nor one message per edge is ever written.
    """

    x: Tensor  # [num_rows, 2 * num_features]


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse features of all nodes of the batch, in compressed sparse row form."""

    indptr: Tensor  # int64 [num_nodes + 1]
    indices: Tensor  # int32 [num_values]
    values: Tensor  # float32 [num_values]
    num_features: int


Inputs = DenseRows | SelfAndMean | SparseRows


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """What one step computes on."""

    seeds: Seeds
    node_ids: Tensor  # int64 [num_nodes]
    indptr: Tensor  # int64 [num_rows + 1]
    indices: Tensor  # int32 [num_edges]
    num_nodes_per_hop: tuple[int, ...]
    num_edges_per_hop: tuple[int, ...]
    inputs: Inputs
    labels: Tensor  # int64 [num_seeds]
