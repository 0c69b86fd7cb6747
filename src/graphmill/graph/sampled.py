"""Seeds and sampled neighbourhoods: the types that flow from a schedule to a mini-batch. They need no torch."""

from dataclasses import dataclass, replace
from typing import NewType

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.keys import Purpose, key_of
from graphmill.graph.topology import EdgeIds

# Identity and place are two types. What a random draw is keyed by and what ranks exchange is an identity; what indexes
# an array is a place. Only `stored_whole`, and code that partitions a graph, converts one into the other.
SeedIds = NewType("SeedIds", NDArray[np.int64])  # [num_seeds]: items to learn from, as the task numbers them
NodeIds = NewType("NodeIds", NDArray[np.int64])  # [n]: which nodes of the graph
StorageIds = NewType("StorageIds", NDArray[np.int64])  # [n]: their rows in topology, features and labels


def stored_whole(nodes: NodeIds) -> StorageIds:
    """The rows of nodes in a graph that is stored whole: in the order of their ids."""
    return StorageIds(nodes)


@dataclass(frozen=True, slots=True)
class Seeds:
    """The items that one rank learns from at one step: nodes, windows.

    `ids` [num_seeds] may be empty: a rank without seeds still takes part in every sync.
    """

    epoch: int
    step: int  # within the epoch, counted per rank
    ids: SeedIds

    def key(self, rng_seed: int, purpose: Purpose, *coordinates: int) -> int:
        """The key of random draws for these seeds."""
        return key_of(rng_seed, purpose, self.epoch, self.step, *coordinates)


@dataclass(frozen=True, slots=True)
class EvaluationSeeds:
    """Items to evaluate, outside any step: nothing may be drawn for them."""

    ids: SeedIds  # [num_seeds]

    def key(self, rng_seed: int, purpose: Purpose, *coordinates: int) -> int:
        """Raise ValueError: a draw would make what is measured depend on chance."""
        raise ValueError(f"an evaluation draws nothing, but was asked for the key of {purpose.name}")


AnySeeds = Seeds | EvaluationSeeds


@dataclass(frozen=True, slots=True)
class SampledBlock:
    """The sampled in-edges that one layer reads, in compressed sparse form with local ids.

    Row r's edges are indices[indptr[r]:indptr[r + 1]]; `indptr` need not start at 0, for blocks share their indices.
    """

    indptr: NDArray[np.int64]  # [num_rows + 1]
    indices: NDArray[np.int32]

    @property
    def num_rows(self) -> int:
        """Rows of the layer's result."""
        return len(self.indptr) - 1


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sampled neighbourhood, relabelled to local ids 0..num_nodes.

    Nodes are in order of discovery: seeds first, then what each hop adds. So the rows of a layer are a prefix of the
    nodes, and the rows of a later layer a prefix of those.
    """

    seeds: AnySeeds
    node_ids: NodeIds  # [num_nodes]
    blocks: tuple[SampledBlock, ...]  # of the first layer (outermost hop) first
    edge_ids: EdgeIds  # [num_edges]: entries of the topology; [0] if the sampler was not asked for them
    num_nodes_per_hop: tuple[int, ...]  # nodes added: (seeds, hop 1, …, hop L)
    num_edges_per_hop: tuple[int, ...]  # (hop 1, …, hop L)

    def targets(self, *, resampled: bool) -> NDArray[np.int64]:
        """Local ids of the targets of all edges, hop 1 first [num_edges]; `resampled`: each hop has rows of its own."""
        blocks = self.blocks[::-1] if resampled else self.blocks[:1]  # without, the first layer's block has all edges
        rows = np.concatenate([np.arange(block.num_rows) for block in blocks])
        return np.repeat(rows, np.concatenate([np.diff(block.indptr) for block in blocks]))

    def with_edges(self, stays: NDArray[np.bool_]) -> "Sampled":
        """Copy with some of the edges [num_edges], hop 1 first; its nodes stay."""
        before = np.concatenate([[0], np.cumsum(stays)])
        kept, ends = self.blocks[0].indices[stays], np.cumsum(self.num_edges_per_hop)
        return replace(
            self,
            blocks=tuple(SampledBlock(before[block.indptr], kept) for block in self.blocks),
            edge_ids=self.edge_ids[stays] if len(self.edge_ids) else self.edge_ids,
            num_edges_per_hop=tuple(int(n) for n in np.diff(before[np.concatenate([[0], ends])])),
        )
