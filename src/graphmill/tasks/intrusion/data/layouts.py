"""The layouts of captures: what stands in each field of a line, and which lines are refused as what."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.data.frames import EXTENDED, NO_LABEL, Frames, Problems
from graphmill.tasks.intrusion.data.lines import (
    MAX_LINE,
    Fields,
    Lines,
    Mask,
    SplitLines,
    decimal_numbers,
    hex_bytes,
    hex_numbers,
    holds_junk,
    split,
    split_at_runs,
)

Layout = Callable[[Lines, Problems], tuple[Frames, NDArray[np.int64]]]
"""Frames of the good lines, and the numbers of those lines; the other lines are noted."""

STANDARD_IDS: Final = 2**11
EXTENDED_IDS: Final = 2**29
_MOST_BYTES: Final = 8
_ERROR_FRAMES: Final = np.uint32(1 << 29)  # CAN_ERR_FLAG of SocketCAN


class _Sieve:
    """Which lines are still good: a line is noted under the first test that it fails."""

    def __init__(self, lines: Lines, problems: Problems) -> None:
        self.numbers = lines.numbers
        self.is_good = np.ones(len(lines), bool)
        self.problems = problems

    def keep(self, passes: Mask, problem: str) -> None:
        """Lines that do not pass are noted as `problem`."""
        self.problems.add(problem, self.numbers[self.is_good & ~passes])
        self.is_good &= passes


def _plain(lines: Lines, problems: Problems) -> Lines:
    """Lines that are neither empty nor too long nor binary."""
    sieve = _Sieve(lines, problems)
    sieve.keep(lines.lengths > 0, "empty line")
    sieve.keep(lines.lengths <= MAX_LINE, f"line of more than {MAX_LINE} bytes")
    sieve.keep(~holds_junk(lines), "binary bytes")
    return lines if sieve.is_good.all() else lines[sieve.is_good]


def _of_fields(cut: SplitLines, passes: Mask, problems: Problems) -> SplitLines:
    """Lines of the right number of fields."""
    sieve = _Sieve(cut.lines, problems)
    sieve.keep(passes, "another number of fields")
    return cut if passes.all() else cut[passes]


def csv(lines: Lines, problems: Problems) -> tuple[Frames, NDArray[np.int64]]:
    """`timestamp,arbitration_id,data_field,attack` of can-train-and-test and of HCRL's later sets.

    An id has one to eight hexadecimal digits; 29 bits are meant by eight digits, or by a value above 7FF. An empty
    payload is a frame of no bytes, which is legal, and an attack in can-train-and-test.
    """
    cut = split(_plain(lines, problems), b",")
    cut = _of_fields(cut, cut.num_fields == 4, problems)
    sieve = _Sieve(cut.lines, problems)
    time = _time(cut.field(0), sieve)
    ids = _csv_ids(cut.field(1), sieve)
    payload, length = _payload(cut.field(2), sieve)
    attack = cut.field(3)
    label = (attack.left(1)[:, 0] == ord("1")).astype(np.int8)
    sieve.keep(attack.equals("0") | attack.equals("1"), "attack is neither 0 nor 1")
    problems.add_lost_attacks(label, sieve.is_good)
    return _good(Frames(time, ids, payload, length, label), sieve)


def car_hacking(lines: Lines, problems: Problems) -> tuple[Frames, NDArray[np.int64]]:
    """`timestamp,id,dlc,b0,…,flag` of HCRL's Car-Hacking: `dlc` bytes; flag R (regular), T (injected).

    Programs for tables fill short rows with empty cells, behind the bytes or behind the flag: they are passed over.
    """
    cut = split(_plain(lines, problems), b",")
    cut = _of_fields(cut, (cut.num_fields >= 4) & (cut.num_fields <= 12), problems)
    sieve = _Sieve(cut.lines, problems)
    time = _time(cut.field(0), sieve)
    ids = _csv_ids(cut.field(1), sieve)
    last = _last_filled(cut)
    length = _filled(cut, last - 3, cut.field(2))
    _stated_length(cut.field(2), length, sieve)
    payload = _separate_bytes(cut, 3, length, sieve)
    flag = cut.field(last)
    label = flag.equals("T").astype(np.int8)
    sieve.keep(flag.equals("R") | flag.equals("T"), "flag is neither R nor T")
    problems.add_lost_attacks(label, sieve.is_good)
    return _good(Frames(time, ids, payload, length.astype(np.uint8), label), sieve)


def crysys(lines: Lines, problems: Problems) -> tuple[Frames, NDArray[np.int64]]:
    """`time id flags dlc b0 …` of the CrySyS set, runs of blanks between them; no labels in the file."""
    cut = split_at_runs(_plain(lines, problems), ord(" "))
    cut = _of_fields(cut, (cut.num_fields >= 4) & (cut.num_fields <= 12), problems)
    sieve = _Sieve(cut.lines, problems)
    time = _time(cut.field(0), sieve)
    ids = _csv_ids(cut.field(1), sieve)
    flags, is_hex = hex_numbers(cut.field(2))
    sieve.keep(is_hex & (flags == 0), "flags (remote or error frame)")
    length = cut.num_fields - 4
    _stated_length(cut.field(3), length, sieve)
    payload = _separate_bytes(cut, 4, length, sieve)
    return _good(Frames(time, ids, payload, length.astype(np.uint8), _unlabelled(len(time))), sieve)


def candump(lines: Lines, problems: Problems) -> tuple[Frames, NDArray[np.int64]]:
    """`(1436509052.249713) vcan0 044#2A366C2B` of `candump -l`, perhaps with a direction after it, R or T, or a label.

    A last field of 0 or 1 is the label, as CAN-MIRGU has it; one that is neither a label nor a direction is a problem.

    Three digits are an 11-bit id, eight a 29-bit one. Remote frames, error frames and CAN FD are noted, not read.
    """
    cut = split(_plain(lines, problems), b" #")
    cut = _of_fields(cut, (cut.num_fields >= 4) & (cut.num_fields <= 6), problems)
    sieve = _Sieve(cut.lines, problems)
    sieve.keep(_is_candump(cut), "not a line of candump")
    third = cut.field(3)
    five = cut.num_fields >= 5
    hashes = cut.lines.data[third.ends] == ord("#")
    sieve.keep(~(five & hashes), "CAN FD frame, which this graphmill does not read")
    sieve.keep(cut.num_fields <= 5, "another number of fields")
    stamp = cut.field(0)
    time = _time(Fields(stamp.data, stamp.begins + 1, np.maximum(stamp.ends - 1, stamp.begins + 1)), sieve)
    ids = _candump_ids(cut.field(2), sieve)
    sieve.keep(third.left(1)[:, 0] != ord("R"), "remote frame")
    payload, length = _payload(third, sieve)
    last = cut.field(cut.num_fields - 1)
    label = _unlabelled(len(time))
    label[five & last.equals("0")], label[five & last.equals("1")] = 0, 1
    is_direction = np.isin(last.left(1)[:, 0], np.frombuffer(b"RTrt", np.uint8)) & (last.lengths <= 2)
    sieve.keep(~five | (label != NO_LABEL) | is_direction, "a last field that is no direction (R, T) and no label")
    problems.add_lost_attacks(label, sieve.is_good)
    return _good(Frames(time, ids, payload, length, label), sieve)


LAYOUTS: Final[Mapping[str, Layout]] = {"csv": csv, "car-hacking": car_hacking, "candump": candump, "crysys": crysys}


def _last_filled(cut: SplitLines) -> NDArray[np.int64]:
    """The number of the last field of each line that is not empty."""
    last = cut.num_fields - 1
    for _ in range(_MOST_BYTES):
        last = last - ((last > 3) & (cut.field(last).lengths == 0))
    return last


def _filled(cut: SplitLines, cells: NDArray[np.int64], stated: Fields) -> NDArray[np.int64]:
    """Cells of bytes [num_lines]: those up to `stated`, where all behind them are empty; else all `cells`."""
    length = np.where(stated.lengths == 1, stated.left(1)[:, 0].astype(np.int64) - ord("0"), cells)
    is_padded = (length >= 0) & (length <= cells)
    for place in range(_MOST_BYTES):
        rows = (cells > place) & (place >= length)
        is_padded[rows] &= cut[rows].field(3 + place).lengths == 0
    return np.where(is_padded, length, cells)


def _is_candump(cut: SplitLines) -> Mask:
    stamp, name = cut.field(0), cut.field(2)
    data = cut.lines.data
    found: Mask = (data[stamp.begins] == ord("(")) & (data[stamp.ends - 1] == ord(")")) & (stamp.lengths > 2)
    found &= (data[cut.field(1).begins - 1] == ord(" ")) & (data[name.begins - 1] == ord(" "))
    found &= data[name.ends] == ord("#")
    return found


def _time(fields: Fields, sieve: _Sieve) -> NDArray[np.float64]:
    time, is_time = decimal_numbers(fields)
    sieve.keep(is_time, "timestamp is not a decimal number")
    return time


def _csv_ids(fields: Fields, sieve: _Sieve) -> NDArray[np.uint32]:
    ids, is_hex = hex_numbers(fields)
    sieve.keep(is_hex, "id is not 1 to 8 hexadecimal digits")
    sieve.keep(ids < EXTENDED_IDS, "id of more than 29 bits")
    return np.where((fields.lengths == 8) | (ids >= STANDARD_IDS), ids | EXTENDED, ids)


def _candump_ids(fields: Fields, sieve: _Sieve) -> NDArray[np.uint32]:
    ids, is_hex = hex_numbers(fields)
    is_long = fields.lengths == 8
    sieve.keep(is_hex & (is_long | (fields.lengths == 3)), "id is not 3 or 8 hexadecimal digits")
    sieve.keep(~is_long | ((ids & _ERROR_FRAMES) == 0), "error frame")
    sieve.keep(ids < np.where(is_long, EXTENDED_IDS, STANDARD_IDS), "id of more than 29, or 11, bits")
    return np.where(is_long, ids | EXTENDED, ids)


def _payload(fields: Fields, sieve: _Sieve) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    lengths = fields.lengths
    payload, is_hex = hex_bytes(fields)
    sieve.keep(lengths <= 16, "payload of more than 8 bytes")
    sieve.keep(is_hex, "payload is not hexadecimal")
    sieve.keep(lengths % 2 == 0, "payload of an odd number of digits")
    return payload, (np.minimum(lengths, 16) // 2).astype(np.uint8)


def _stated_length(stated: Fields, length: NDArray[np.int64], sieve: _Sieve) -> None:
    sieve.keep((stated.lengths == 1) & (stated.left(1)[:, 0] == length + ord("0")), "dlc is not the number of bytes")


def _separate_bytes(cut: SplitLines, first: int, length: NDArray[np.int64], sieve: _Sieve) -> NDArray[np.uint8]:
    payload = np.zeros((len(length), 8), np.uint8)
    is_byte = np.ones(len(length), bool)
    for place in range(8):
        rows = length > place
        fields = cut[rows].field(first + place)
        values, is_hex = hex_numbers(fields)
        payload[rows, place] = values & np.uint32(255)
        is_byte[rows] &= is_hex & (fields.lengths == 2)
    sieve.keep(is_byte, "a byte is not two hexadecimal digits")
    return payload


def _unlabelled(count: int) -> NDArray[np.int8]:
    return np.full(count, NO_LABEL, np.int8)


def _good(frames: Frames, sieve: _Sieve) -> tuple[Frames, NDArray[np.int64]]:
    if sieve.is_good.all():
        return frames, sieve.numbers
    return frames[sieve.is_good], sieve.numbers[sieve.is_good]
