"""Lines of a capture in blocks of bytes, and their fields as positions and numbers: no Python object per line."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from graphmill import _native

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]

MAX_LINE: Final = 256  # bytes; a line of a capture has at most about 100
BLOCK_BYTES: Final = 2**21
_PAD: Final = 32  # bytes around a block, so that windows around fields never leave it
_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")
_NONE: Final = 0  # of `Decimal` in native/digits.h
_LONG: Final = 2


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines of a block: bytes, where lines begin and end (without their ends), and their numbers from 1."""

    data: Bytes
    begins: Positions
    ends: Positions
    numbers: Positions

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, rows: Mask | slice) -> "Lines":
        return Lines(self.data, self.begins[rows], self.ends[rows], self.numbers[rows])

    @property
    def lengths(self) -> Positions:
        """Bytes of each line."""
        return self.ends - self.begins


@dataclass(frozen=True, slots=True)
class Fields:
    """One field of every line: where it begins and ends in `data`."""

    data: Bytes
    begins: Positions
    ends: Positions

    @property
    def lengths(self) -> Positions:
        """Bytes of each field."""
        return self.ends - self.begins

    def __getitem__(self, rows: Mask) -> "Fields":
        return Fields(self.data, self.begins[rows], self.ends[rows])

    def left(self, width: int) -> Bytes:
        """The `width` bytes from where each field begins [num_fields, width]; past its end stands something else."""
        return _runs(self.data, width)[self.begins]

    def right(self, width: int) -> Bytes:
        """The `width` bytes up to where each field ends [num_fields, width]."""
        return _runs(self.data, width)[self.ends - width]

    def equals(self, text: str) -> Mask:
        """Whether the field is `text`."""
        found: Mask = (self.left(len(text)) == np.frombuffer(text.encode(), np.uint8)).all(axis=1)
        found &= self.lengths == len(text)
        return found


def _runs(data: Bytes, width: int) -> Bytes:
    """Every run of `width` bytes, not copied: numpy's sliding_window_view, without what it costs on short blocks."""
    return np.ndarray((len(data) - width + 1, width), np.uint8, data, strides=(1, 1))


def read_lines(file: IO[bytes], block_bytes: int = BLOCK_BYTES) -> Iterator[Lines]:
    """The lines of `file`, a block at a time. A line longer than `MAX_LINE` is cut, and stays longer than that."""
    carry, number = b"", 1
    while chunk := file.read(block_bytes):
        text = carry + chunk
        cut = text.rfind(b"\n") + 1
        carry = text[cut:][: MAX_LINE + 2]
        if cut:
            lines = _lines(text[:cut], number)
            number += len(lines)
            yield lines
    if carry:
        yield _lines(carry + b"\n", number)


def _lines(text: bytes, number: int) -> Lines:
    data = np.zeros(len(text) + 2 * _PAD, np.uint8)
    data[_PAD:-_PAD] = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    begins = np.empty_like(ends)
    begins[0], begins[1:] = _PAD, ends[:-1] + 1
    ends = ends - ((data[ends - 1] == _RETURN) & (ends > begins))
    return Lines(data, begins, ends, np.arange(number, number + len(ends)))


def holds_junk(lines: Lines) -> Mask:
    """Lines with a byte that is not a printable ASCII character: captures have none."""
    places = np.flatnonzero((lines.data < ord(" ")) | (lines.data > ord("~")))
    found: Mask = np.searchsorted(places, lines.ends) > np.searchsorted(places, lines.begins)
    return found


@dataclass(frozen=True, slots=True)
class SplitLines:
    """Lines cut at separators: field i ends before separator i of its line and begins behind the one before.

    A separator is one byte, and two neighbours enclose an empty field; or it is a whole run of bytes.
    """

    lines: Lines
    separators: Positions
    """The first byte of each."""
    last_bytes: Positions
    """The last byte of each."""
    first: Positions
    """The number of the first separator of each line."""
    num_fields: Positions

    def __getitem__(self, rows: Mask) -> "SplitLines":
        return SplitLines(self.lines[rows], self.separators, self.last_bytes, self.first[rows], self.num_fields[rows])

    def field(self, number: int | Positions) -> Fields:
        """Field `number` (from 0) of every line; every line must have it."""
        at = self.first + number
        lines = self.lines
        last = len(self.separators)
        bounds, behind = np.append(self.separators, 0), np.append(self.last_bytes, 0) + 1
        begins = np.where(number == 0, lines.begins, behind[at - 1])
        ends = np.where(number == self.num_fields - 1, lines.ends, bounds[np.minimum(at, last)])
        return Fields(lines.data, begins, ends)


def split(lines: Lines, separators: bytes) -> SplitLines:
    """SplitLines every line at each of the bytes `separators`."""
    table = np.zeros(256, bool)
    table[list(separators)] = True
    is_one = lines.data == separators[0] if len(separators) == 1 else table[lines.data]
    places = np.flatnonzero(is_one)
    return _split(lines, places, places)


def split_at_runs(lines: Lines, separator: int) -> SplitLines:
    """SplitLines every line at each run of the byte `separator`."""
    is_one = lines.data == separator
    return _split(lines, np.flatnonzero(is_one[1:] & ~is_one[:-1]) + 1, np.flatnonzero(is_one[:-1] & ~is_one[1:]))


def _split(lines: Lines, separators: Positions, last_bytes: Positions) -> SplitLines:
    first = np.searchsorted(separators, lines.begins)
    return SplitLines(lines, separators, last_bytes, first, np.searchsorted(separators, lines.ends) - first + 1)


def hex_numbers(fields: Fields) -> tuple[NDArray[np.uint32], Mask]:
    """Fields of one to eight hexadecimal digits as numbers, and which fields are that (the others give 0)."""
    values, is_good = np.empty(len(fields.begins), np.uint32), np.empty(len(fields.begins), bool)
    _native.hex_numbers(fields.data, fields.begins, fields.ends, values, is_good)
    return values, is_good


def hex_bytes(fields: Fields) -> tuple[NDArray[np.uint8], Mask]:
    """Fields of up to 16 hexadecimal digits, read from the left, as eight bytes; which have hexadecimal digits only."""
    values, is_good = np.empty((len(fields.begins), 8), np.uint8), np.empty(len(fields.begins), bool)
    _native.hex_bytes(fields.data, fields.begins, fields.ends, values, is_good)
    return values, is_good


def decimal_numbers(fields: Fields) -> tuple[NDArray[np.float64], Mask]:
    """Fields such as `1672531200.000023` as the nearest float64, and which are digits with at most one point."""
    values, kinds = np.empty(len(fields.begins)), np.empty(len(fields.begins), np.uint8)
    _native.decimals(fields.data, fields.begins, fields.ends, values, kinds)
    for row in np.flatnonzero(kinds == _LONG):
        values[row] = float(fields.data[fields.begins[row] : fields.ends[row]].tobytes())
    return values, kinds != _NONE
