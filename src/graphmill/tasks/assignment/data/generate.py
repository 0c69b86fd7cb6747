"""Generated instances, numbered: each can be made alone, by any thread, in any order."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from graphmill.tasks.assignment.data.families import SQUARE, Matrix, add_noise, rng_of
from graphmill.tasks.assignment.data.instance import About, Instance, RowIds, checked_costs, solved
from graphmill.tasks.assignment.data.tracking import sequence
from graphmill.tasks.assignment.page.data import DEFAULT_FRAMES, AssignmentPrepareOptions, Family

VERSION: Final = 1
"""Of the generators: raised whenever one of them makes other instances of the same key."""
_NOISE: Final = 0  # after the number of an instance: the noise that is added to it


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
