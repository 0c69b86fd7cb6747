"""What a rank on a graph in parts holds, by formula. At most, if the fullest part exceeds the mean by 5 %."""

import math
from dataclasses import dataclass
from typing import Final

from graphmill.spec.kinds.kind import StepShape
from graphmill.spec.partition import HotCacheSpec, LookaheadSpec, PartitionSpec, PresampledCacheSpec

_IMBALANCE: Final = 1.05  # what `graphmill partition` allows
_TABLE_ROW: Final = 32  # bytes of an entry of the table that finds a held row, at most
BLOCK_BYTES: Final = 16 << 20
"""Of the inputs of rows that exact inference over parts computes together, but for a row that alone has more."""
_OF_EVALUATION: Final = 5  # arrays of that size, at most
_OF_A_READ_LAYER: Final = 2  # more for each layer that a head reads: its rows, and those of a block beside the others'
_COPIES: Final = 3  # of a row of a window: received, and sent to others, who may ask for twice as many
_OF_A_QUESTION: Final = 28  # bytes of a row that is asked for: which, for whom, in what order; and that others ask for
_OF_AN_EDGE: Final = 24  # the same of an edge, whose target goes along
_COPIES_OF_AN_EDGE: Final = 6  # of its features: read, packed, sent, received, one rank's after another's, in order
HOPS_TOGETHER: Final = 4
"""Batches whose hops are asked for together where the topology is partitioned: a hop waits for the ranks, whatever it
carries."""
_OF_A_RANKED: Final = 20  # bytes of a node whose chance of being sampled is computed: two numbers, marks, candidates
_OF_A_SEED: Final = 24  # of a training node: who owns it
_OF_A_SORTED: Final = 40  # of a row that is chosen: sorted by what it brings
_OF_A_MERGED: Final = 52  # of a row that was ranked when the graph was partitioned, of each part
_OF_A_COUNT: Final = 52  # of a row whose reads are counted
_MOVED: Final = 2  # copies of a row that stays, while it moves to the table of the next window


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedGraphSizes:
    """The whole graph that was split."""

    num_nodes: int
    num_entries: int  # of the topology that is sampled, at most
    num_features: int
    is_sparse: bool  # how many values a row has is then not known: rows are left out, as they are of a batch
    num_parts: int
    num_train: int
    nodes_per_batch: int
    edges_per_batch: int
    num_edge_columns: int  # of features of edges that a model reads
    drawn_bytes: int  # of a sampled batch without features of nodes
    target_bytes: int = 8  # of a node: its class, or a byte for each of several labels

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of a node."""
        return 0 if self.is_sparse else 4 * self.num_features

    @property
    def id_bytes(self) -> int:
        """Bytes of a node's id on disk and on the wire."""
        return 4 if self.num_nodes <= 2**31 - 1 else 8


def largest_batch(spec: PartitionSpec, num_parts: int, step: StepShape) -> int:
    """Seeds of the rank that has most of a global batch, at most: of parts that do not divide, some ranks own more."""
    at_once, each = step.batch_size * step.learners, step.learners // step.learner_hosts
    if spec.seeds == "equal":
        return step.batch_size
    places, on_place = (step.learner_hosts, each) if spec.placement == "per_host" else (step.learners, 1)
    parts = -(-num_parts // places)  # of the place with most
    sharing = max(1, places // num_parts)  # places among which one part is shared out, at least
    return min(at_once, math.ceil(at_once * parts * _IMBALANCE / (num_parts * sharing * on_place)))


def mapped_bytes(graph: PartedGraphSizes, spec: PartitionSpec, step: StepShape) -> int | None:
    """What ranks of a host map: its parts, the book, a replicated topology, rows that they hold. None: not known."""
    if graph.is_sparse:
        return None
    each = step.ranks // step.hosts
    alone = -(-graph.num_parts // step.ranks) * each  # parts of the ranks of a host, each with its own, at most
    parts = -(-graph.num_parts // step.hosts) if spec.placement == "per_host" else min(graph.num_parts, alone)
    share = min(1.0, parts * _IMBALANCE / graph.num_parts)
    topology = 8 * graph.num_nodes + graph.id_bytes * graph.num_entries
    of_parts = share * (graph.num_nodes * (graph.row_bytes + graph.id_bytes + 8 + graph.target_bytes) + topology)
    of_all = graph.id_bytes * graph.num_nodes + (topology if spec.topology == "replicated" else 0)
    return int(of_parts) + of_all + shared_bytes(graph, spec, step)


def shared_bytes(graph: PartedGraphSizes, spec: PartitionSpec, step: StepShape) -> int:
    """Bytes in `mapped_bytes` of other hosts' rows: memory that the system cannot drop where it is short."""
    return 0 if graph.is_sparse or spec.placement != "per_host" else _cache_bytes(graph, spec, step)[0]


def held_bytes(graph: PartedGraphSizes, spec: PartitionSpec, step: StepShape) -> int:
    """What each rank keeps: rows of other parts, those of its window, batches to come, the sampler's book of nodes."""
    of_sampler = 4 * graph.num_nodes if spec.topology == "replicated" else 0
    if isinstance(spec.cache, LookaheadSpec):
        return of_sampler + _lookahead_bytes(graph, spec, step, spec.cache)
    features, table = _cache_bytes(graph, spec, step)
    own = table + (0 if spec.placement == "per_host" else features)
    is_announced = _remote_share(graph, spec, step) > 0
    of_batches = _window_bytes(graph, spec, step, 1) + is_announced * _announced_bytes(graph, step)
    return of_sampler + max(own + of_batches, _choosing_bytes(graph, spec, step))


def _choosing_bytes(graph: PartedGraphSizes, spec: PartitionSpec, step: StepShape) -> int:
    """What it takes to find which rows to hold, before the first step of an attempt and before any is held."""
    remote = int(_remote_share(graph, spec, step) * graph.num_nodes)
    if isinstance(spec.cache, PresampledCacheSpec):  # counts of all that was read
        return _OF_A_COUNT * remote
    if not isinstance(spec.cache, HotCacheSpec) or not remote:
        return 0
    if spec.topology == "replicated":  # by one rank of a host
        whole = int(spec.cache.ratio * graph.num_nodes)
        return _OF_A_RANKED * graph.num_nodes + _OF_A_SEED * graph.num_train + _OF_A_SORTED * min(whole, remote)
    parts = -(-graph.num_parts // (step.hosts if spec.placement == "per_host" else step.ranks))
    return _OF_A_MERGED * parts * min(int(spec.cache.ratio * graph.num_nodes), remote)


def evaluation_bytes(graph: PartedGraphSizes, hidden_channels: int, *, layers_read: int = 0) -> int:
    """What exact inference holds: of a block its inputs, their means, the rows it gives to others; two hidden layers.

    Where a head reads the rows of `layers_read` layers, all of these are held to the end. A layer whose rows take more
    than `BLOCK_BYTES` is in a file of the host's disk.
    """
    width = max(hidden_channels, 0 if graph.is_sparse else graph.num_features)
    return (_OF_EVALUATION + _OF_A_READ_LAYER * layers_read) * min(BLOCK_BYTES, 4 * width * graph.num_nodes)


def _window_bytes(graph: PartedGraphSizes, spec: PartitionSpec, step: StepShape, window: int) -> int:
    """Bytes of a window: what was drawn, where its rows are, the rows and edge features that other ranks own."""
    batches = window * step.batches_together
    together = HOPS_TOGETHER if spec.topology == "partitioned" else 1
    waiting = max(batches, together) - 1  # one is counted with the batches that are under way
    of_rows = 8 * graph.nodes_per_batch
    if _remote_share(graph, spec, step) > 0:
        of_rows += (_COPIES * graph.row_bytes + _OF_A_QUESTION) * graph.nodes_per_batch
    of_edges = 0
    if graph.num_edge_columns:
        of_edges = (_COPIES_OF_AN_EDGE * 4 * graph.num_edge_columns + 3 * _OF_AN_EDGE) * graph.edges_per_batch
    return waiting * graph.drawn_bytes + batches * (of_rows + of_edges)


def _announced_bytes(graph: PartedGraphSizes, step: StepShape) -> int:
    """Bytes of the window after the one that is fetched: what was drawn, where its rows are, which ranks own them."""
    of_edges = _OF_AN_EDGE * graph.edges_per_batch if graph.num_edge_columns else 0
    of_nodes = (8 + _OF_A_QUESTION) * graph.nodes_per_batch
    return step.batches_together * (graph.drawn_bytes + of_nodes + of_edges)


def _lookahead_bytes(graph: PartedGraphSizes, spec: PartitionSpec, step: StepShape, cache: LookaheadSpec) -> int:
    """Bytes of a window, of rows that stay from window to window, and of batches that wait for their window."""
    waiting = (cache.horizon - 1) * cache.window * step.batches_together
    if cache.ratio is None and cache.mib is None:
        staying = waiting * graph.nodes_per_batch  # besides those that the window itself needs
    else:
        staying = int((1 if cache.ratio is None else cache.ratio) * graph.num_nodes)
    staying = min(staying, int(_remote_share(graph, spec, step) * graph.num_nodes))
    features = staying * graph.row_bytes
    if cache.mib is not None:
        features = min(features, int(cache.mib * (1 << 20)))
    rows = _MOVED * features + staying * _TABLE_ROW
    return rows + _window_bytes(graph, spec, step, cache.window) + waiting * graph.drawn_bytes


def _cache_bytes(graph: PartedGraphSizes, spec: PartitionSpec, step: StepShape) -> tuple[int, int]:
    """Bytes of rows that are held all the time: the rows, and the table that finds them."""
    if not isinstance(spec.cache, HotCacheSpec | PresampledCacheSpec):
        return 0, 0
    num_rows = int(min(spec.cache.ratio, _remote_share(graph, spec, step)) * graph.num_nodes)
    features = num_rows * graph.row_bytes
    if spec.cache.mib is not None:
        features = min(features, int(spec.cache.mib * (1 << 20)))
    return features, num_rows * _TABLE_ROW


def _remote_share(graph: PartedGraphSizes, spec: PartitionSpec, step: StepShape) -> float:
    """Share of all nodes that a rank does not read itself."""
    places = step.hosts if spec.placement == "per_host" else step.ranks
    return max(0.0, 1 - max(1, graph.num_parts // places) / graph.num_parts)
