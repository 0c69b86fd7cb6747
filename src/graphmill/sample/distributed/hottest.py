"""Which rows of other parts a rank holds, by the policy that a plan names."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.sampled import NodeIds, Sampled
from graphmill.partition.metadata import part_folder
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire
from graphmill.sample.hot.rank import Draws, HotBudget, StaticPolicy, rank_all

Ids = NDArray[np.int64]
_RANKED_AT_A_TIME: Final = 2**18


def ranked(
    shares: Shares,
    seeds: Ids,
    draws: Draws,
    policy: StaticPolicy,
    *,
    most: int | None,
    topology: Literal["replicated", "partitioned"],
    undirected: bool,
    num_threads: int,
) -> NDArray[Any]:
    """Nodes that this rank does not read from its own parts, hottest first, `most` of them.

    Of ranks that share parts the first finds them for all, and the others nothing. Computed over the whole topology
    where every host has it, else as it was ranked when the graph was partitioned; `UserError` if it was not. `seeds`:
    the training nodes that these ranks may get, ascending.
    """
    if shares.rank != shares.host_ranks.start:
        return np.empty(0, dtype=np.int64)
    if topology == "partitioned":
        return _ranked_before(shares, draws.fanouts, policy, most)
    is_remote = np.ones(shares.book.num_nodes, dtype=np.int8)
    for part in shares.parts:
        is_remote[part.node_ids] = 0
    whole = shares.graph.topology(undirected=undirected)
    found = rank_all(whole, is_remote, [seeds], draws, [policy], most=most, num_threads=num_threads)
    return found[policy][0]


def _ranked_before(shares: Shares, fanouts: tuple[int, ...], policy: StaticPolicy, most: int | None) -> NDArray[Any]:
    path, metadata = shares.graph.path, shares.graph.metadata
    names = [f"{part_folder(part.number)}/hot/{policy}" for part in shares.parts]
    if not all(name in metadata.arrays for name in names):
        raise UserError(
            f"the topology is partitioned, so no rank can rank nodes by {policy}, and {path} was made without",
            fix=f"partition the graph again with --fanouts {' '.join(map(str, fanouts))}; or hold no rows by it:"
            " partition.cache.policy=presample or lookahead, of a loader cache_ratio=0",
        )
    rankings = [part.array(f"hot/{policy}") for part in shares.parts]
    if len(rankings) == 1:
        return rankings[0][:most]
    heads = [_remote_head(shares, ranking, most) for ranking in rankings]
    nodes, place = (np.concatenate(each) for each in zip(*heads, strict=True))
    nodes = nodes[np.lexsort((nodes, place))]  # the best of each part, the second of each, …
    _, first = np.unique(nodes, return_index=True)
    return nodes[np.sort(first)][:most]


def _remote_head(shares: Shares, ranking: NDArray[Any], most: int | None) -> tuple[NDArray[Any], Ids]:
    """The first `most` nodes of a part's ranking that are in no part of this rank's, and their places in it."""
    nodes, places, count = [ranking[:0]], [np.empty(0, dtype=np.int64)], 0
    for start in range(0, len(ranking), _RANKED_AT_A_TIME):
        if most is not None and count >= most:
            break
        block = ranking[start : start + _RANKED_AT_A_TIME]
        kept = np.flatnonzero(shares.locate(NodeIds(block.astype(np.int64))).servers != shares.rank)
        nodes.append(block[kept])
        places.append(start + kept)
        count += len(kept)
    return np.concatenate(nodes)[:most], np.concatenate(places)[:most]


def read_most(shares: Shares, wire: Wire, batches: Iterable[Sampled]) -> NDArray[Any]:
    """Nodes of other ranks' parts by how many of these batches read them, most first, equals by id.

    All ranks must call it: the first of those that share parts gets what all of them read, the others nothing.
    """
    nodes, counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for sampled in batches:
        servers = shares.locate(sampled.node_ids).servers
        read = sampled.node_ids[servers != shares.rank]
        nodes, counts = _added([nodes, read], [counts, np.ones(len(read), dtype=np.int64)])
    first = shares.host_ranks.start
    told = [wire.swap([of if rank == first else of[:0] for rank in range(wire.world_size)]) for of in (nodes, counts)]
    nodes, counts = _added(*told)
    return nodes[np.argsort(-counts, kind="stable")]


def _added(nodes: Sequence[Ids], counts: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Counts of the same node added up; nodes ascending."""
    found, inverse = np.unique(np.concatenate(nodes), return_inverse=True)
    summed = np.bincount(inverse, weights=np.concatenate(counts), minlength=len(found))
    return found, summed.astype(np.int64)


def budget_of(ratio: float | None, mib: float | None) -> HotBudget:
    """What a rank may hold, or the ranks of a host together."""
    return HotBudget(ratio, None if mib is None else int(mib * (1 << 20)))
