"""Generated instances, numbered: each can be made alone, by any thread, in any order.

Frames of tracking are sequences of them: objects move in a square with about one of them per unit of area, with a
velocity that changes a little; some leave and others appear. Each frame is an assignment problem: rows are the tracks,
at the places that their last two positions let expect; the first columns are the detections, which are noisy, miss some
objects and hold false alarms. A pair costs its squared distance; beyond the gate it is infeasible. A track may also
miss its detection: a column of its own, feasible for it alone, costs the gate squared. So there are more columns than
rows, and every frame has an assignment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.assignment.data.families import SQUARE, Matrix, add_noise, rng_of
from graphmill.tasks.assignment.data.instance import About, Instance, RowIds, checked_costs, solved
from graphmill.tasks.assignment.page.data import DEFAULT_FRAMES, AssignmentPrepareOptions, Family

GATE: Final = 1.0
_SPEED: Final = 0.15  # s.d. of a velocity, per frame
_TURN: Final = 0.03  # s.d. of its change
_SEEN_TO: Final = 0.05  # s.d. of a detection
_SEEN: Final = 0.95  # share of objects that are detected
_FALSE: Final = 0.05  # false alarms per object
_LEAVE: Final = 0.03  # share of objects that go, and of as many as are wanted that come
VERSION: Final = 1
"""Of the generators: raised whenever one of them makes other instances of the same key."""
_NOISE: Final = 0  # after the number of an instance: the noise that is added to it


@dataclass(frozen=True, slots=True)
class TrackingFrame:
    """What a tracker knows before it assigns: where tracks are expected [rows, 2]; detections [num_detections, 2]."""

    expected: Matrix
    detected: Matrix
    tracks: NDArray[np.int32]  # [rows], rising: the number of each row's track, by which frames are joined

    def costs(self) -> Matrix:
        """[rows, num_detections + rows]; +inf: infeasible."""
        rows = len(self.expected)
        squares = np.square(self.expected[:, None, 0] - self.detected[None, :, 0])
        squares += np.square(self.expected[:, None, 1] - self.detected[None, :, 1])
        squares[squares > GATE**2] = np.inf
        missed = np.full((rows, rows), np.inf)
        np.fill_diagonal(missed, GATE**2)
        return np.concatenate([squares, missed], axis=1)


@lru_cache(maxsize=4)
def sequence(seed: int, size: int, number: int, num_frames: int) -> tuple[TrackingFrame, ...]:
    """The frames of a sequence of about `size` objects. A longer one begins with the same frames."""
    side = np.sqrt(size)
    rng = rng_of(seed, "tracking", size, number)
    places, velocities = side * rng.random((size, 2)), _SPEED * rng.standard_normal((size, 2))
    tracks, num_tracks = np.arange(size, dtype=np.int32), size
    frames = []
    for frame in range(num_frames):
        rng = rng_of(seed, "tracking", size, number, frame + 1)
        expected, known = places + velocities, tracks
        velocities = velocities + _TURN * rng.standard_normal(velocities.shape)
        places = places + velocities
        stays = (rng.random(len(places)) >= _LEAVE) & _inside(places, side)
        stays[0] |= not stays.any()
        come = int(rng.poisson(max(0.0, size - stays.sum()) * 0.5 + _LEAVE * size * 0.5))
        born = side * rng.random((come, 2))
        places = np.concatenate([places[stays], born])
        velocities = np.concatenate([velocities[stays], _SPEED * rng.standard_normal((come, 2))])
        tracks = np.concatenate([tracks[stays], np.arange(num_tracks, num_tracks + come, dtype=np.int32)])
        num_tracks += come
        seen = places[rng.random(len(places)) < _SEEN]
        alarms = side * rng.random((int(rng.poisson(_FALSE * size)), 2))
        detected = np.concatenate([seen + _SEEN_TO * rng.standard_normal(seen.shape), alarms])
        frames.append(TrackingFrame(expected, rng.permutation(detected), known))
    return tuple(frames)


def _inside(places: Matrix, side: float) -> NDArray[np.bool_]:
    return np.asarray(((places >= 0) & (places <= side)).all(axis=1))


class GeneratedInstances:
    """`sources.Source`: what the options ask for, small sizes first."""

    def __init__(self, options: AssignmentPrepareOptions) -> None:
        self._options = options
        self._counts = list(options.counts().items())
        self._ends = np.cumsum([count for _, count in self._counts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def identity(self) -> Mapping[str, Any]:
        """What every instance depends on."""
        return {"version": VERSION, **self._options.generator}

    def name_of(self, number: int) -> str:
        """Name of an instance for messages: family, size and number."""
        family, size, own = self._key(number)
        return f"{family}/{size}/{own}"

    def instance(self, number: int) -> Instance:
        """The instance with its exact answer."""
        family, size, own = self._key(number)
        costs, about, row_ids = self._made(family, size, own)
        return replace(solved(checked_costs(costs, self._options.dtype), about), row_ids=row_ids)

    def _key(self, number: int) -> tuple[Family, int, int]:
        at = int(np.searchsorted(self._ends, number, side="right"))
        (family, size), count = self._counts[at]
        return family, size, number - (int(self._ends[at]) - count)

    def _made(self, family: Family, size: int, number: int) -> tuple[Matrix, About, RowIds | None]:
        asked, seed = self._options, self._options.seed or 0
        row_ids: RowIds | None = None
        if family == "tracking":
            frames = asked.frames or DEFAULT_FRAMES
            at, frame = divmod(number, frames)
            found = sequence(seed, size, at, frames)[frame]
            costs, row_ids = found.costs(), found.tracks
            about = About(family, size, f"{family}/{size}/s{at}/f{frame}", sequence=at, frame=frame)
        else:
            costs = SQUARE[family](size, rng_of(seed, family, size, number))
            about = About(family, size, f"{family}/{size}/{number}")
        rng = rng_of(seed, family, size, number, _NOISE)
        if not asked.noise_std or rng.random() >= asked.noise_prob:
            return costs, about, row_ids
        noisy = About(family, size, about.tag, asked.noise_std, about.sequence, about.frame)
        return add_noise(costs, asked.noise_std, rng), noisy, row_ids
