"""Which split an instance is in: drawn, in shares of each size and family, frames of a sequence together."""

from collections.abc import Hashable, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.tasks.assignment.page.data import SHARES

Split = Literal["train", "val", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "val", "test")
TO_BE_DRAWN: Final = -1
_GOLDEN: Final = (5**0.5 - 1) / 2


def drawn_splits(strata: Sequence[Hashable], units: Sequence[Hashable], seed: int) -> NDArray[np.int8]:
    """Numbers in `SPLITS` [num_instances]. Instances of one unit are in one split, which its first one's stratum draws.

    The units stand stratum after stratum, within it in an order that is drawn; multiples of the golden section, from a
    place that is drawn, spread them over the shares: of all units as of each stratum, however small.
    """
    first: dict[Hashable, int] = {}
    unit_of = np.array([first.setdefault(unit, len(first)) for unit in units], dtype=np.int64)
    stratum: dict[Hashable, int] = {}
    place = np.unique(unit_of, return_index=True)[1] if len(unit_of) else unit_of
    stratum_of = np.array([stratum.setdefault(strata[each], len(stratum)) for each in place], dtype=np.int64)
    keys = keys_below(key_of(seed, Purpose.SPLIT), np.arange(len(first), dtype=np.int64))
    order = np.lexsort((keys, stratum_of))
    begin = key_of(seed, Purpose.SPLIT, 1) / 2**64
    spread = (begin + np.arange(len(first)) * _GOLDEN) % 1
    splits = np.empty(len(first), dtype=np.int8)
    splits[order] = np.searchsorted(np.cumsum(SHARES)[:-1], spread, side="right")
    return splits[unit_of]
