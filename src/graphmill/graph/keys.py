"""Where the random numbers of a run come from: keys below the run's seed, one branch per purpose.

A draw is a function of its coordinates (seed, purpose, epoch, step, …), never of what was drawn before (invariant 1).
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from graphmill import _native


class Purpose(IntEnum):
    """The first coordinate below the seed. The numbers are part of what makes a run repeatable: never reuse one."""

    SEED_ORDER = 1
    NEIGHBOURS = 2
    DROPOUT = 3
    INITIAL_WEIGHTS = 4
    SCHEDULED_SAMPLING = 5
    TRAINING_SUBSET = 6
    LOSS = 7
    SPLIT = 8
    CURRICULUM = 9
    NEGATIVES = 10
    LABEL_FOLDS = 11
    EDGE_DROPOUT = 12


def key_of(seed: int, purpose: Purpose, *coordinates: int) -> int:
    """The 64-bit key of (seed, purpose, coordinates…)."""
    key = _native.subkey(seed, int(purpose))
    for coordinate in coordinates:
        key = _native.subkey(key, coordinate)
    return key


def keys_below(key: int, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A key per id [n] below `key`."""
    keys = np.empty(len(ids), dtype=np.uint64)
    _native.keys_of(key, ids, keys)
    return keys


def drawn(ids: NDArray[np.int64], count: int, rng_seed: int) -> NDArray[np.int64]:
    """`count` of the ascending `ids`, in their order → [count]: those with the smallest keyed hashes.

    A larger draw with the same `rng_seed` holds every smaller one, so a run on more data has seen what the other saw.
    """
    if count >= len(ids):
        return ids
    keys = keys_below(key_of(rng_seed, Purpose.TRAINING_SUBSET), ids)
    return np.sort(ids[np.argsort(keys, kind="stable")[:count]])
