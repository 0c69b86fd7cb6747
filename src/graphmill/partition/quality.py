"""How good a partition is: what is cut, how even the parts are, and what a part needs of the others."""

import logging
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphmill import _native
from graphmill.graph.topology import Topology
from graphmill.partition.balance import imbalance
from graphmill.partition.inclusion import vertex_inclusion
from graphmill.partition.metadata import Quantity
from graphmill.partition.methods.files import row_blocks
from graphmill.partition.problem import Ids, Parts, Seeds

_log = logging.getLogger(__name__)

BATCH_SIZE: Final = 1024  # seeds of a batch that remote rows are expected for
_ENTRIES_AT_A_TIME: Final = 2**22
_NEAR_RANDOM: Final = 0.8  # of the cut of random parts


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPartition:
    """A partition of a graph, and what it is measured by."""

    graph: Topology  # the union of both directions
    edges: Ids  # [num_nodes]: in-edges as given
    train: Ids  # ascending nodes that answer for a seed
    seeds: Seeds
    parts: Parts
    num_parts: int
    fanouts: tuple[int, ...]


def measure(known: MeasuredPartition) -> dict[str, Quantity]:
    """Measure a partition; quantities by name, lists by part."""
    nodes = np.bincount(known.parts, minlength=known.num_parts)
    edges = np.bincount(known.parts, weights=known.edges, minlength=known.num_parts).astype(np.int64)
    seeds = np.bincount(known.parts, weights=known.seeds, minlength=known.num_parts).astype(np.int64)
    crossed, between, halos = crossing(known.graph, known.parts, known.num_parts)
    return {
        "edge_cut": crossed / between if between else 0.0,
        "cut_edges": crossed // 2,
        "nodes": tuple(nodes.tolist()),
        "edges": tuple(edges.tolist()),
        "train": tuple(seeds.tolist()),
        "imbalance_nodes": imbalance(nodes),
        "imbalance_edges": imbalance(edges),
        "imbalance_train": imbalance(seeds),
        "halo_nodes": tuple(halos.tolist()),
        "remote_rows_per_batch": _remote_rows(known),
        "remote_rows_batch_size": BATCH_SIZE,
        "remote_rows_fanouts": known.fanouts,
    }


def imbalances(quality: dict[str, Quantity]) -> dict[str, float]:
    """Share by which the fullest part exceeds the mean, in each thing that can be balanced."""
    return {name: float(quality[f"imbalance_{name}"]) for name in ("nodes", "edges", "train")}  # type: ignore[arg-type]


def warn_if_near_random(edge_cut: float, num_parts: int) -> None:
    """Say where an assignment hardly beats a drawn one, whose share of cut edges is 1 - 1 / num_parts."""
    drawn = 1 - 1 / num_parts
    if edge_cut > _NEAR_RANDOM * drawn:
        _log.warning(
            f"{edge_cut:.1%} of the edges are cut, and random parts have {drawn:.1%} cut: nearly as many rows will"
            " travel. Some graphs have no better parts; another --method or --seed may find them"
        )


def crossing(graph: Topology, parts: Parts, num_parts: int) -> tuple[int, int, Ids]:
    """Entries between parts, entries between different nodes, and the sizes of the halos [num_parts]."""
    halos = np.zeros(num_parts, dtype=np.int64)
    crossed = loops = 0
    for start, stop in row_blocks(graph.indptr, _ENTRIES_AT_A_TIME):
        indptr = graph.indptr[start : stop + 1] - graph.indptr[start]
        indices = graph.indices[graph.indptr[start] : graph.indptr[stop]]
        crossed += _native.count_crossing(indptr, indices, start, parts, num_parts, halos)
        loops += int(np.count_nonzero(indices == np.repeat(np.arange(start, stop), np.diff(indptr))))
    return crossed, graph.num_edges - loops, halos


def _remote_rows(known: MeasuredPartition) -> tuple[int, ...]:
    """Rows of other parts in a batch of each part's own training nodes, by the probabilities of being sampled."""
    found = []
    owner = known.parts[known.train]
    for part in range(known.num_parts):
        seeds = known.train[owner == part]  # of what follows nothing is held while the next part's is computed
        remote = vertex_inclusion(known.graph, seeds, known.fanouts, BATCH_SIZE).sum(where=known.parts != part)
        found.append(round(float(remote)))
    return tuple(found)
