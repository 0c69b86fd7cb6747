"""What benign traffic holds: how often one id follows another in a window, and between which bounds its bytes lie.

What a window lacks of it counts as much as what is new in it.
"""

import logging
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.data.windows import WindowGraphs

NUM_BYTES: Final = 8
"""Of a payload: the first columns of a window's `x` are their means."""
_PARTS_OF_A_FRAME: Final = 2**10
"""Means are whole numbers of these: sums of them are exact in float64, so that their order changes nothing."""
_AT_ONCE: Final = 2**14  # windows

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BenignTraffic:
    """Means and bounds over benign windows."""

    pairs: NDArray[np.int64]
    """`pair_keys` of the pairs of ids that occur, rising [num_pairs]."""
    count: NDArray[np.float64]
    """How often each is in a window, on average [num_pairs]."""
    ids: NDArray[np.int64]
    """Ids that send, rising [num_ids]."""
    low: NDArray[np.float32]
    """Of the means of each byte of an id in a window: the least [num_ids, 8]."""
    high: NDArray[np.float32]
    """The largest [num_ids, 8]."""

    @classmethod
    def fit(cls, graphs: WindowGraphs, is_benign: NDArray[np.bool_]) -> "BenignTraffic":
        """Fit to the windows that `is_benign` [num_graphs] selects."""
        if not is_benign.any():
            _log.warning("no training window is benign: of what is usual nothing is known")
            return cls.none()
        found = []
        for number, part in enumerate(graphs.parts(_AT_ONCE)):
            chosen = is_benign[number * _AT_ONCE :][: len(part)]
            if chosen.any():
                found.append(_seen(part.chosen(chosen)))
        pairs, place = np.unique(np.concatenate([part.pairs for part in found]), return_inverse=True)
        total = np.bincount(place, np.concatenate([part.count for part in found]))
        count = np.round(total / is_benign.sum() * _PARTS_OF_A_FRAME) / _PARTS_OF_A_FRAME
        ids = np.concatenate([part.ids for part in found])
        low, high = (np.concatenate([getattr(part, name) for part in found]) for name in ("low", "high"))
        return cls(pairs, count, *_bounds(ids, low, high))

    @classmethod
    def none(cls) -> "BenignTraffic":
        """Traffic that is not known: no pairs, no ids."""
        keys, bounds = np.empty(0, np.int64), np.empty((0, NUM_BYTES), np.float32)
        return cls(keys, np.empty(0), keys, bounds, bounds)

    @property
    def frames(self) -> NDArray[np.float64]:
        """How often each id is followed by another in a window, and follows one, on average [num_ids, 2]."""
        sums = []
        for ends in ids_of_pairs(self.pairs).astype(np.int64):
            at = np.searchsorted(self.ids, ends)
            known = np.isin(ends, self.ids)
            sums.append(np.bincount(at[known], self.count[known], minlength=len(self.ids)))
        return np.stack(sums, axis=1)

    def most_frequent(self, num_pairs: int, num_ids: int) -> "BenignTraffic":
        """At most so many pairs and ids, those with the most frames."""
        for what, has, most in (("pairs of ids", len(self.pairs), num_pairs), ("ids", len(self.ids), num_ids)):
            if has > most:
                _log.warning(f"benign training windows have {has:,} {what}; the {most:,} most frequent are a reference")
        pairs = np.sort(np.argsort(-self.count, kind="stable")[:num_pairs])
        ids = np.sort(np.argsort(-self.frames[:, 0], kind="stable")[:num_ids])
        return BenignTraffic(self.pairs[pairs], self.count[pairs], self.ids[ids], self.low[ids], self.high[ids])


def pair_keys(source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each pair of ids of 32 bits [n]; negative where the source has 29 bits, whose highest bit is set."""
    return source << 32 | target


def ids_of_pairs(keys: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Source and target of pairs: [n] → [2, n]."""
    return np.stack([keys >> 32 & 0xFFFFFFFF, keys & 0xFFFFFFFF]).astype(np.uint32)


def _seen(graphs: WindowGraphs) -> BenignTraffic:
    """What the windows hold; of pairs the sums of counts."""
    first_node = np.repeat(np.cumsum(graphs.num_nodes) - graphs.num_nodes, graphs.num_edges)
    ends = graphs.edge_index + first_node
    ids = graphs.node_ids.astype(np.int64)
    pairs, place = np.unique(pair_keys(ids[ends[0]], ids[ends[1]]), return_inverse=True)
    senders = np.unique(ends[0])
    payload = graphs.x[senders, :NUM_BYTES]
    count = np.bincount(place, graphs.edge_attr[:, 0]).astype(np.float64)
    return BenignTraffic(pairs, count, *_bounds(ids[senders], payload, payload))


def _bounds(
    ids: NDArray[np.int64], low: NDArray[np.float32], high: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    """Each id once, rising, with the least of its rows of `low` and the largest of `high` [n, 8]."""
    order = np.argsort(ids, kind="stable")
    every, first = np.unique(ids[order], return_index=True)
    return every, np.minimum.reduceat(low[order], first), np.maximum.reduceat(high[order], first)
