"""An exact count of the rows that training moves: the keyed schedule replayed, without any process or feature.

Draws are keyed, so what a rank will sample can be sampled anywhere; which rows it needs of other parts, and what each
policy makes of them, is then arithmetic.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import Sampled
from graphmill.sample.hot.lookahead import Lookahead, Rows
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.schedule import SeedSchedule

Bytes = int | NDArray[np.int64]
"""Bytes of every row of features, or of each node's [num_nodes]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one rank needs of features over some batches, and where it comes from. All but `*_bytes` count rows."""

    num_batches: int = 0
    mentioned: int = 0  # seeds and ends of sampled edges: rows, were each fetched whenever it is named
    needed: int = 0  # nodes of each batch, added up
    local: int = 0  # of these, in the rank's own part
    hits: int = 0  # of the others, held when the batch comes
    fetched: int = 0  # rows that cross
    num_fetches: int = 0  # exchanges with the owners: batches, or windows, with a row to fetch
    fetched_bytes: int = 0
    most_held: int = 0  # rows of other parts at a time, those of a window among them; the largest, not a sum

    @property
    def remote(self) -> int:
        """Rows of other parts that batches need: what is fetched without any cache."""
        return self.needed - self.local

    @property
    def repeats_saved(self) -> int:
        """Rows that are named again within a batch, and so are not fetched again."""
        return self.mentioned - self.needed

    def __add__(self, other: "Moved") -> "Moved":
        summed = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Moved)}
        return Moved(**{**summed, "most_held": max(self.most_held, other.most_held)})


@dataclass(frozen=True, slots=True)
class Needs:
    """What one rank needs of other parts in every batch of some epochs, in order."""

    remote: tuple[Rows, ...]  # of each batch: ascending, int32 where it fits
    moved: Moved  # what no policy changes


def needs_of_rank(
    sampler: WholeSampler,
    schedule: SeedSchedule,
    part_of: NDArray[Any],
    *,
    rank: int,
    part: int,
    steps: Iterable[tuple[int, int]],
) -> Needs:
    """Sample `steps` (epoch, step) as the rank will that has `part`; `part_of` [num_nodes]."""
    remote, moved = [], Moved()
    for epoch, step in steps:
        sampled = sampler.sample(schedule.seeds(epoch, step, rank))
        ids = sampled.node_ids
        away = np.sort(ids[part_of[ids] != part].astype(sampler.topology.indices.dtype))
        remote.append(away)
        moved += Moved(num_batches=1, mentioned=_mentioned(sampled), needed=len(ids), local=len(ids) - len(away))
    return Needs(tuple(remote), moved)


def with_held(needs: Needs, held: NDArray[Any], row_bytes: Bytes, num_nodes: int) -> Moved:
    """What crosses if the rank holds the rows of `held` [n] all the time; none: no cache. Filling it is not counted."""
    is_held = np.zeros(num_nodes, dtype=np.bool_)
    is_held[held] = True
    moved = needs.moved
    for rows in needs.remote:
        fetched = rows[~is_held[rows]]
        moved += _fetch(fetched, row_bytes, hits=len(rows) - len(fetched))
    return moved + Moved(most_held=len(held))


def with_lookahead(needs: Needs, planner: Lookahead, epochs: Sequence[Sequence[range]], row_bytes: Bytes) -> Moved:
    """What crosses if the rank fetches by window. `epochs`: the windows of each, of batches that count through all."""
    moved = needs.moved
    for window in planner.windows(needs.remote, epochs):
        needed = sum(len(needs.remote[batch]) for batch in window.batches)
        moved += _fetch(window.fetch, row_bytes, hits=needed - len(window.fetch))
        moved += Moved(most_held=len(window.held) + len(window.fetch))
    return moved


def floor_of_windows(needs: Needs, max_batches: int) -> int:
    """Rows that windows of `max_batches` need, each once per window: what nothing that forgets between them beats."""
    return sum(
        len(np.unique(np.concatenate(needs.remote[begin : begin + max_batches])))
        for begin in range(0, len(needs.remote), max_batches)
    )


def steps_of(epochs: Sequence[int], steps_per_epoch: int) -> Iterator[tuple[int, int]]:
    """All (epoch, step) of `epochs`, in order."""
    return ((epoch, step) for epoch in epochs for step in range(steps_per_epoch))


def _mentioned(sampled: Sampled) -> int:
    return len(sampled.seeds.ids) + sum(sampled.num_edges_per_hop)


def _fetch(rows: Rows, row_bytes: Bytes, *, hits: int) -> Moved:
    num_bytes = len(rows) * row_bytes if isinstance(row_bytes, int) else int(row_bytes[rows].sum())
    return Moved(hits=hits, fetched=len(rows), num_fetches=int(len(rows) > 0), fetched_bytes=num_bytes)
