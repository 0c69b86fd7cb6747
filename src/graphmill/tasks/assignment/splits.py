"""Which split an instance is in: drawn, in shares of each size and family, frames of a sequence together."""

from collections.abc import Hashable, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.spec.assignment_data import SHARES

Split = Literal["train", "val", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "val", "test")
TO_BE_DRAWN: Final = -1


def drawn_splits(strata: Sequence[Hashable], units: Sequence[Hashable], seed: int) -> NDArray[np.int8]:
    """Numbers in `SPLITS` [num_instances]. Instances of one unit are in one split, which its first one's stratum draws.

    The units of a stratum lie evenly in the shares, in an order and from a place that are drawn, so that strata too
    small for all splits differ in which they miss.
    """
    first: dict[Hashable, int] = {}
    unit_of = np.array([first.setdefault(unit, len(first)) for unit in units], dtype=np.int64)
    stratum: dict[Hashable, int] = {}
    place = np.unique(unit_of, return_index=True)[1] if len(unit_of) else unit_of
    stratum_of = np.array([stratum.setdefault(strata[each], len(stratum)) for each in place], dtype=np.int64)
    splits = np.empty(len(first), dtype=np.int8)
    bounds = np.cumsum(SHARES)[:-1]
    for number in range(len(stratum)):
        members = np.flatnonzero(stratum_of == number).astype(np.int64)
        keys = keys_below(key_of(seed, Purpose.SPLIT, number), members)
        begin = key_of(seed, Purpose.SPLIT, number, 1) / 2**64
        ranks = np.empty(len(members))
        ranks[np.argsort(keys, kind="stable")] = np.arange(len(members))
        splits[members] = np.searchsorted(bounds, (ranks + begin) / len(members), side="right")
    return splits[unit_of]
