"""Captures of a made-up car: ids that are sent in periods, and four captures, three of them with an attack."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.data.frames import Frames, joined

_NUM_IDS: Final = 24
Ids = NDArray[np.int64]
Attack = Callable[[np.random.Generator, float, Ids], Frames]

_CALM_S, _ATTACK_S = 6.0, 2.0  # in turns
_DOS_GAP_S, _FUZZING_GAP_S, _SPOOFING_GAP_S = 5e-4, 1e-3, 4e-3


def captures(seconds: int, seed: int) -> Iterator[tuple[str, Frames]]:
    """Name and frames of each: `benign`, `dos` (id 000 in floods), `fuzzing` (any id, any payload), `spoofing`.

    Spoofing sends a known id with a payload that does not move, between the frames of its own sender. A function of
    the arguments alone.
    """
    attacks: dict[str, Attack | None] = {
        "benign": None,
        "dos": _dos,
        "fuzzing": _fuzzing,
        "spoofing": _spoofing,
    }
    for number, (name, attack) in enumerate(attacks.items()):
        rng = np.random.default_rng([seed, number])
        parts = [_traffic(rng, seconds, seed)]
        begin = _CALM_S
        while attack is not None and begin < seconds:
            injected = attack(rng, min(_ATTACK_S, seconds - begin), _ids(seed))
            parts.append(_later(injected, begin))
            begin += _CALM_S + _ATTACK_S
        yield name, _in_time(parts)


def _traffic(rng: np.random.Generator, seconds: int, seed: int) -> Frames:
    """Frames of all senders: each has its id, its period with a jitter, a counter, constants and a slow wave."""
    parts = []
    for place, identity in enumerate(_ids(seed)):
        period = 0.01 * 2.0 ** (place % 6)
        count = int(seconds / period)
        jitter = rng.normal(0, 0.02 * period, count)
        time = np.sort((np.arange(count) + rng.random()) * period + jitter).clip(min=0)
        payload = np.tile(_constants(identity), (count, 1))
        payload[:, 0] = np.arange(count) % 256
        wave = 128 + 100 * np.sin(2 * np.pi * time / (3 + place)) + rng.normal(0, 2, count)
        payload[:, 1] = wave.clip(0, 255).astype(np.uint8)
        parts.append(_frames(time, np.full(count, identity), payload, 0))
    return _in_time(parts)


def _ids(seed: int) -> Ids:
    return np.sort(np.random.default_rng([seed, 99]).choice(np.arange(0x80, 0x700), _NUM_IDS, replace=False))


def _constants(identity: int) -> NDArray[np.uint8]:
    return np.random.default_rng(identity).integers(0, 256, 8, dtype=np.uint8)


def _dos(rng: np.random.Generator, seconds: float, _: Ids) -> Frames:
    time = np.arange(0, seconds, _DOS_GAP_S) + rng.random() * _DOS_GAP_S
    return _frames(time, np.zeros(len(time), np.int64), np.zeros((len(time), 8), np.uint8), 1)


def _fuzzing(rng: np.random.Generator, seconds: float, _: Ids) -> Frames:
    time = np.arange(0, seconds, _FUZZING_GAP_S) + rng.random() * _FUZZING_GAP_S
    payload = rng.integers(0, 256, (len(time), 8), dtype=np.uint8)
    return _frames(time, rng.integers(0, 0x800, len(time)), payload, 1)


def _spoofing(rng: np.random.Generator, seconds: float, ids: Ids) -> Frames:
    time = np.arange(0, seconds, _SPOOFING_GAP_S) + rng.random() * _SPOOFING_GAP_S
    identity = int(ids[rng.integers(len(ids))])
    return _frames(time, np.full(len(time), identity), np.tile(_constants(identity), (len(time), 1)), 1)


def _frames(time: NDArray[np.float64], ids: Ids, payload: NDArray[np.uint8], label: int) -> Frames:
    return Frames(
        time, ids.astype(np.uint32), payload, np.full(len(time), 8, np.uint8), np.full(len(time), label, np.int8)
    )


def _later(frames: Frames, begin: float) -> Frames:
    return Frames(frames.time + begin, frames.id, frames.payload, frames.length, frames.label)


def _in_time(parts: list[Frames]) -> Frames:
    frames = joined(parts)
    return frames[np.argsort(frames.time, kind="stable")]
