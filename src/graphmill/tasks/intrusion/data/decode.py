"""Numbers out of text, many fields at once: hexadecimal digits and decimal times."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.tasks.intrusion.data.lines import Fields, Mask

_NONE: Final = 0  # of `Decimal` in native/digits.h
_LONG: Final = 2


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
