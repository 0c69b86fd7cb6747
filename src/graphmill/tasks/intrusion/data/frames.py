"""Frames of a capture in columns, what was wrong with the lines that gave none, and how many of those may be."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.page import CapturePrepareOptions

EXTENDED: Final = np.uint32(1 << 31)  # flag of a 29-bit id in the `id` column, as SocketCAN has it
NO_LABEL: Final = -1


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames in the order of the capture.

    `id` has bit 31 set where the id has 29 bits, so `123` and `00000123` are two ids. Bytes past `length` are 0.
    """

    time: NDArray[np.float64]
    """Seconds [num_frames], as the capture has them; they need not rise."""
    id: NDArray[np.uint32]
    """[num_frames], with `EXTENDED`."""
    payload: NDArray[np.uint8]
    """[num_frames, 8]."""
    length: NDArray[np.uint8]
    """Bytes of the payload [num_frames], 0 to 8."""
    label: NDArray[np.int8]
    """1: attack, 0: none, `NO_LABEL`: the capture does not say [num_frames]."""

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, rows: slice | NDArray[np.bool_] | NDArray[np.int64]) -> "Frames":
        return Frames(self.time[rows], self.id[rows], self.payload[rows], self.length[rows], self.label[rows])


def joined(parts: Sequence[Frames]) -> Frames:
    """All frames of `parts`, in order."""
    if not parts:
        return empty_frames()
    return Frames(
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.id for part in parts]),
        np.concatenate([part.payload for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.label for part in parts]),
    )


def empty_frames() -> Frames:
    """Make `Frames` that hold none."""
    return Frames(
        np.empty(0), np.empty(0, np.uint32), np.empty((0, 8), np.uint8), np.empty(0, np.uint8), np.empty(0, np.int8)
    )


@dataclass(slots=True)
class Problems:
    """How many lines had which problem, and the first line of each. Such a line gives no frame, but for late times."""

    counts: dict[str, int] = field(default_factory=dict)
    first_lines: dict[str, int] = field(default_factory=dict)
    lost_attacks: int = 0  # of the lines that gave no frame, those that are labelled as attacks

    def add(self, kind: str, lines: NDArray[np.int64]) -> None:
        """Note the line numbers (from 1, rising) that have the problem `kind`."""
        if len(lines):
            self.counts[kind] = self.counts.get(kind, 0) + len(lines)
            self.first_lines.setdefault(kind, int(lines[0]))

    def add_lost_attacks(self, label: NDArray[np.int8], is_good: NDArray[np.bool_]) -> None:
        """Count the lines that are labelled as attacks and give no frame."""
        self.lost_attacks += int(((label == 1) & ~is_good).sum())

    def include(self, later: "Problems") -> None:
        """Note those of lines behind all that are noted."""
        for kind, count in later.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
            self.first_lines.setdefault(kind, later.first_lines[kind])
        self.lost_attacks += later.lost_attacks

    @property
    def num_lines(self) -> int:
        """Lines that gave no frame."""
        return sum(count for kind, count in self.counts.items() if kind != LATE)

    def __str__(self) -> str:
        lines = self.first_lines
        return "; ".join(f"{kind}: {count:,}, first in line {lines[kind]}" for kind, count in self.counts.items())


LATE: Final = "time before that of the line before (kept)"
_LEGAL: Final = ("empty line", "remote frame", "error frame", LATE)
"""What buses and loggers do: counted, and no sign that a capture is read wrongly."""
_CAUSES: Final = {
    "dlc is not the number of bytes": "short rows may be filled up, or bytes joined in one cell",
    "a byte is not two hexadecimal digits": "a program for tables may have written bytes as numbers: 05 as 5",
    "id is not 1 to 8 hexadecimal digits": "a program for tables may have written ids as numbers: 1E5 as 100000",
    "id is not 3 or 8 hexadecimal digits": "ids may have lost their leading zeros",
    "payload of an odd number of digits": "payloads may have lost their leading zeros",
    "timestamp is not a decimal number": "times may be dates, or have a decimal comma",
    "another number of fields": "fields may be missing, or a comment or a second header may be in it",
    "CAN FD frame, which this graphmill does not read": "it was recorded on a bus with CAN FD",
}


def refuse_bad_lines(file: Path, num_frames: int, problems: Problems, options: CapturePrepareOptions) -> None:
    """`UserError` if a sort of problem has more than the share `bad_lines` of the lines, or takes labelled attacks."""
    num_lines = num_frames + problems.num_lines
    many = {
        kind: count
        for kind, count in problems.counts.items()
        if kind not in _LEGAL and count > options.bad_lines * num_lines
    }
    if many:
        worst = max(many, key=many.__getitem__)
        cause = f"; {_CAUSES[worst]}" if worst in _CAUSES and 2 * many[worst] > problems.num_lines else ""
        raise UserError(
            f"{file}: {many[worst]:,} of {num_lines:,} lines give no frame: {worst}, first in line"
            f" {problems.first_lines[worst]}{cause}",
            fix=f"mend the capture; or leave these lines out: -o bad_lines={_share(many[worst], num_lines)}",
        )
    if problems.lost_attacks and "bad_lines" not in options.model_fields_set:
        raise UserError(
            f"{file}: {problems.lost_attacks:,} lines that are labelled as attacks give no frame ({problems})",
            fix=f"mend them; or leave them out: -o bad_lines={options.bad_lines:g}",
        )


def _share(count: int, of: int) -> str:
    """Smallest share in hundredths that allows `count` of them."""
    return f"{min(math.ceil(100 * count / of), 50) / 100:g}"
