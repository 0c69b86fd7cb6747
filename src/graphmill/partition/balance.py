"""What is balanced between parts, and how parts are made even after a partitioner that knows one weight only.

With node weights alone power-law graphs degenerate: isolated nodes buy the balance, and nearly all edges land in one
part. So partitioners see the nodes that have edges, weighted by them; isolated nodes are placed afterwards, where nodes
are missing; and moves that lose least cut even out what is left. Nodes of few edges move first: they cost hardly any.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.topology import Topology
from graphmill.partition.problem import Amounts, Balance, Ids, PartitionProblem, Parts, Seeds

_log = logging.getLogger(__name__)

TOLERANCE_PERCENT: Final = 5  # by how much the fullest part may exceed the mean
_ROOMY_PERCENT: Final = 1  # the same, where room is made in one amount for moves that another needs
_TRIES: Final = 5
_REFINING_PASSES: Final = 4
_TRAIN_SHARE: Final = 100  # how much more the training nodes weigh than all others, where they alone are balanced
_UNITS_PER_NODE: Final = 16  # resolution of the sum of shares


def in_edges(given: Topology) -> Ids:
    """In-edges of every node [num_nodes], as given."""
    return np.diff(given.indptr)


def has_few_edges(num_edges: int, num_nodes: int) -> bool:
    """Whether edges are too few to balance: all of them in one part would weigh less than the tolerance."""
    return 100 * num_edges < TOLERANCE_PERCENT * num_nodes


def balanced(balance: Balance, edges: Ids) -> tuple[str, ...]:
    """The amounts that parts are made even in. Edges are none, unless asked for, where there are few."""
    if balance != "all":
        return (balance,)
    return ("nodes", "train") if has_few_edges(int(edges.sum()), len(edges)) else ("nodes", "edges", "train")


def amounts_of(balance: Balance, edges: Ids, seeds: Seeds) -> Amounts:
    """What each node adds to a part, in each of the things that are balanced."""
    names = balanced(balance, edges)
    found = np.empty((len(edges), len(names)), dtype=np.uint32)
    for number, name in enumerate(names):
        match name:
            case "nodes":
                found[:, number] = 1
            case "edges":
                found[:, number] = edges
            case "train":
                found[:, number] = seeds
            case _:
                found[:, number] = _sum_of_shares(edges, seeds)
    return found


def single_weight(balance: Balance, edges: Ids, graph: Topology, seeds: Seeds) -> NDArray[np.int64]:
    """The one weight [num_nodes], above 0, for a partitioner that knows only one.

    For all three the edges of both directions: measured against in-edges and against sums of shares, the cut that is
    left after evening out is the smallest, or within 1 % of it (R-MAT, debian-packages, wordnet31).
    """
    match balance:
        case "all" if "edges" not in balanced(balance, edges):
            return np.ones(len(edges), np.int64)
        case "all":
            return np.diff(graph.indptr) + 1
        case "edges":
            return edges + 1
        case "nodes":
            return np.ones(len(edges), np.int64)
        case "train":
            per_seed = _TRAIN_SHARE * len(edges) // max(1, int(seeds.sum(dtype=np.int64)))
            return 1 + per_seed * seeds.astype(np.int64)
        case "weighted":
            return np.maximum(_sum_of_shares(edges, seeds), 1)


def _sum_of_shares(edges: Ids, seeds: Seeds) -> Ids:
    """A node's share of all nodes, of all edges and of all seeds, added up."""
    num_nodes, num_seeds = len(edges), max(1, int(seeds.sum(dtype=np.int64)))
    shares = 1 + edges * (num_nodes / max(1, int(edges.sum()))) + seeds * (num_nodes / num_seeds)
    units: Ids = np.minimum(np.rint(_UNITS_PER_NODE * shares), 2**32 - 1).astype(np.int64)
    return units


def limits_of(amounts: Amounts, num_parts: int) -> Ids:
    """What a part should hold at most [num_amounts]: 5 % over the mean, and what whole nodes need at least."""
    totals = amounts.sum(axis=0, dtype=np.int64)
    mean_up = -(-totals // num_parts)
    limits: Ids = np.maximum(totals * (100 + TOLERANCE_PERCENT) // (100 * num_parts), mean_up)
    return np.maximum(limits, 1)


def even_out(problem: PartitionProblem, parts: Parts, *, refine: bool) -> None:
    """Place what is not assigned yet, then move nodes until no part is over the limits, in place.

    With `refine` nodes move to where most of their neighbours are, as far as the limits allow.
    """
    graph = graph_of(problem, parts)
    left = np.flatnonzero(parts < 0)
    is_train = np.zeros(problem.num_nodes, dtype=np.bool_)
    is_train[problem.train] = True
    last = problem.amounts.shape[1] - 1  # training nodes, where they are balanced
    graph.fill(left[is_train[left]], last)
    graph.fill(left[~is_train[left]], 0)
    moved = graph.rebalance()
    for _ in range(_TRIES):
        if not _overfull(problem, parts).any():
            break
        moved += _make_room(problem, parts)
        moved += graph_of(problem, parts).rebalance()
    gain = graph_of(problem, parts).refine(_REFINING_PASSES) if refine else 0
    _log.info(f"{len(left):,} nodes without edges placed, {moved:,} moved for balance, cut refined by {gain:,} edges")


def graph_of(
    problem: PartitionProblem, parts: Parts, limits: Ids | None = None, amounts: Amounts | None = None
) -> _native.GraphParts:
    """The native view of an assignment; it changes `parts` in place."""
    return _native.GraphParts(
        problem.graph.indptr,
        problem.graph.indices,
        problem.amounts if amounts is None else amounts,
        problem.limits if limits is None else limits,
        parts,
        problem.num_parts,
    )


def _overfull(problem: PartitionProblem, parts: Parts) -> NDArray[np.bool_]:
    """Whether a part is over its limit, by amount [num_amounts]."""
    columns = [np.bincount(parts, weights=column, minlength=problem.num_parts) for column in problem.amounts.T]
    return np.array([column.max() > limit for column, limit in zip(columns, problem.limits, strict=True)])


def _make_room(problem: PartitionProblem, parts: Parts) -> int:
    """Where no single move helps any more, since parts with room in one amount are full in another: even those out.

    Nodes that weigh little in what is overfull move then, and leave room for those that have to come.
    """
    totals = problem.amounts.sum(axis=0, dtype=np.int64)
    even = np.maximum(totals * (100 + _ROOMY_PERCENT) // (100 * problem.num_parts), -(-totals // problem.num_parts))
    limits = np.where(_overfull(problem, parts), problem.limits, np.maximum(even, 1))
    return graph_of(problem, parts, limits).rebalance()


def imbalance(loads: NDArray[np.int64]) -> float:
    """Share by which the fullest of the parts exceeds their mean; 0 if there is nothing."""
    total = int(loads.sum())
    return (int(loads.max()) * len(loads) - total) / total if total else 0.0


def warn_if_uneven(imbalances: Mapping[str, float], wanted: Collection[str]) -> None:
    """Say which balance was asked for and not reached."""
    uneven = [
        f"{name} by {share:.1%}"
        for name, share in imbalances.items()
        if name in wanted and share > TOLERANCE_PERCENT / 100
    ]
    if uneven:
        _log.warning(
            f"the fullest part exceeds the mean in {', '.join(uneven)}: single nodes are too heavy, or too few, for"
            f" {TOLERANCE_PERCENT} %"
        )
