"""Rankings: nodes of other parts by how much it helps a part to hold their rows, and how many of them it may hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import Topology, index_dtype
from graphmill.partition.inclusion import hotness, occurrences, vertex_inclusion
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.schedule import KeyedOrder

Ids = NDArray[np.int64]
StaticPolicy = Literal["degree", "presample", "hotness", "vip"]
STATIC_POLICIES: Final[tuple[StaticPolicy, ...]] = ("degree", "presample", "hotness", "vip")
"""Policies that hold the same rows all the time. `lookahead` is none: see `hot.lookahead`."""
PRESAMPLED_EPOCHS: Final = 2


def presampled_counts(
    topology: Topology,
    seeds: Ids,
    fanouts: Sequence[int],
    batch_size: int,
    *,
    epochs: Sequence[int],
    rng_seed: int,
    num_threads: int = 1,
) -> NDArray[np.int64]:
    """Count the batches of `epochs` that each node was in → [num_nodes]; batches have `batch_size` of `seeds` [n].

    Draws are keyed: with a run's own seed and epochs these are the run's counts (of one rank that has all `seeds`),
    with others they are a sample of the same distribution. The last batch of an epoch may be smaller.
    """
    counts = np.zeros(topology.num_nodes, dtype=np.int64)
    if not len(seeds):
        return counts
    sampler = WholeSampler(topology, tuple(fanouts), rng_seed, num_threads, resample=True)
    order = KeyedOrder(seeds, rng_seed)
    for epoch in epochs:
        ordered = order(epoch)
        for step, begin in enumerate(range(0, len(ordered), batch_size)):
            batch = Seeds(epoch, step, SeedIds(ordered[begin : begin + batch_size]))
            counts[sampler.sample(batch).node_ids] += 1
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What the ranks of every part will sample, as far as that is known before a run."""

    fanouts: tuple[int, ...]  # first hop first; -1: all in-neighbours
    batch_size: int  # seeds of a batch of one rank
    rng_seed: int = 0  # of the epochs that `presample` samples: need not be the run's
    epochs: tuple[int, ...] = tuple(range(PRESAMPLED_EPOCHS))  # that it samples


@dataclass(frozen=True, slots=True)
class HotBudget:
    """How much a part may hold of other parts: the smaller of what is given. Nothing given: everything."""

    ratio: float | None = None  # of the rows of all nodes of the graph, whatever part they are in
    num_bytes: int | None = None
    num_rows: int | None = None

    def max_rows(self, num_nodes: int, row_bytes: int) -> int | None:
        """Number of rows of `row_bytes` each that fit. None: all, for no limit is given."""
        limits = [
            *(() if self.num_rows is None else (self.num_rows,)),
            *(() if self.ratio is None else (int(self.ratio * num_nodes),)),
            *(() if self.num_bytes is None else (self.num_bytes // max(1, row_bytes),)),
        ]
        return min(limits, default=None)

    def cut(self, ranking: NDArray[Any], num_nodes: int, row_bytes: int | NDArray[np.int64]) -> NDArray[Any]:
        """The head of a ranking [n] that fits. `row_bytes`: of every row, or of each node's row [num_nodes]."""
        if isinstance(row_bytes, int) or self.num_bytes is None:
            return ranking[: self.max_rows(num_nodes, row_bytes if isinstance(row_bytes, int) else 0)]
        num_rows = HotBudget(self.ratio, num_rows=self.num_rows).max_rows(num_nodes, 0)
        ends = np.cumsum(row_bytes[ranking[:num_rows]])
        return ranking[: int(np.searchsorted(ends, self.num_bytes, side="right"))]


def rank_all(
    topology: Topology,
    part_of: NDArray[Any],
    seeds_by_part: Sequence[Ids],
    draws: Draws,
    policies: Sequence[StaticPolicy],
    *,
    most: int | None = None,
    num_threads: int = 1,
) -> dict[StaticPolicy, list[NDArray[Any]]]:
    """Rank nodes for each policy and part: ids of other parts' nodes, by descending benefit, equals by id.

    `part_of` [num_nodes]; `topology` is what is sampled (of both directions, if the experiment says undirected).
    `seeds_by_part`: the training nodes that the ranks of a part may get, ascending. Where seeds are assigned by owner,
    those are the part's own; where they are shared out equally, all (give one array to every part, and what is the same
    for all is computed once). Nodes that can be of no use are left out, and those after the first `most`.
    """
    return {
        policy: [
            ranking(benefit, part_of, part, most)
            for part, benefit in enumerate(
                _benefits(policy, topology, part_of, seeds_by_part, draws, num_threads=num_threads)
            )
        ]
        for policy in policies
    }


def ranking(benefit: NDArray[Any], part_of: NDArray[Any], part: int, most: int | None = None) -> NDArray[Any]:
    """Nodes of other parts with a benefit [num_nodes] above 0, the largest first, equals by ascending id.

    `most`: so many of them. The others are left out before they are sorted, which takes five times the memory.
    """
    useful = part_of != part
    useful &= benefit > 0
    if most is not None and most < (count := int(np.count_nonzero(useful))):
        values = benefit[useful]
        last = min(count - most, count - 1)
        values.partition(last)
        least = values[last]
        del values
        useful &= benefit >= least
    ids = np.flatnonzero(useful)
    order = np.argsort(-benefit[ids], kind="stable")[:most]
    return ids[order].astype(index_dtype(len(part_of)))


def _benefits(
    policy: StaticPolicy,
    topology: Topology,
    part_of: NDArray[Any],
    seeds_by_part: Sequence[Ids],
    draws: Draws,
    *,
    num_threads: int,
) -> list[NDArray[Any]]:
    """Benefits for every part [num_nodes]; parts with the very same array of seeds share one computation."""
    known: dict[int, NDArray[Any]] = {}
    found = []
    for seeds in seeds_by_part:
        if id(seeds) not in known:
            known[id(seeds)] = _benefit(policy, topology, part_of, seeds, draws, num_threads=num_threads)
        found.append(known[id(seeds)])
    return found


def _benefit(
    policy: StaticPolicy, topology: Topology, part_of: NDArray[Any], seeds: Ids, draws: Draws, *, num_threads: int
) -> NDArray[Any]:
    match policy:
        case "degree":
            rows = np.isin(part_of, np.unique(part_of[seeds]))
            return occurrences(topology, rows, num_threads=num_threads)
        case "hotness":
            return hotness(topology, seeds, draws.fanouts, num_threads=num_threads)
        case "vip":
            return vertex_inclusion(topology, seeds, draws.fanouts, draws.batch_size, num_threads=num_threads)
        case "presample":
            return presampled_counts(
                topology,
                seeds,
                draws.fanouts,
                draws.batch_size,
                epochs=draws.epochs,
                rng_seed=draws.rng_seed,
                num_threads=num_threads,
            )
        case _:
            assert_never(policy)
