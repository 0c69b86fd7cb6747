"""Numbers out of text, many fields at once: hexadecimal digits and decimal times."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.intrusion.lines import Fields, Mask

_BAD: Final = 255
_MAX_TIME: Final = 24  # characters
_EXACT: Final = 2**53  # whole numbers below it, and 10**22 and less, are exact as float64: so is their quotient
_DIGITS: Final = np.arange(256, dtype=np.int64) - ord("0")
_HEX: Final = np.full(256, _BAD, np.uint8)
for _offset, _text in ((0, "0123456789"), (10, "abcdef"), (10, "ABCDEF")):
    for _place, _letter in enumerate(_text):
        _HEX[ord(_letter)] = _offset + _place


def hex_numbers(fields: Fields) -> tuple[NDArray[np.uint32], Mask]:
    """Fields of one to eight hexadecimal digits as numbers, and which fields are that (the others give 0)."""
    lengths = fields.lengths
    digits = _HEX[fields.right(8)]
    digits[np.arange(8) < 8 - lengths[:, None]] = 0
    is_good = (lengths >= 1) & (lengths <= 8) & (digits != _BAD).all(axis=1)
    values = np.zeros(len(digits), np.uint32)
    for place in range(8):
        values = (values << np.uint32(4)) | (digits[:, place] & np.uint8(15))
    return np.where(is_good, values, np.uint32(0)), is_good


def hex_bytes(fields: Fields) -> tuple[NDArray[np.uint8], Mask]:
    """Fields of up to 16 hexadecimal digits, read from the left, as eight bytes; which have hexadecimal digits only."""
    digits = _HEX[fields.left(16)]
    digits[np.arange(16) >= fields.lengths[:, None]] = 0
    is_good: Mask = (digits != _BAD).all(axis=1) & (fields.lengths <= 16)
    return (digits[:, 0::2] << np.uint8(4)) | (digits[:, 1::2] & np.uint8(15)), is_good


def decimal_numbers(fields: Fields) -> tuple[NDArray[np.float64], Mask]:
    """Fields such as `1672531200.000023` as the nearest float64, and which are digits with at most one point."""
    lengths = fields.lengths
    is_good = (lengths >= 1) & (lengths <= _MAX_TIME)
    width = int(lengths[is_good].max(initial=1))
    text = fields.right(width)
    inside = np.arange(width) >= width - lengths[:, None]
    points = (text == ord(".")) & inside
    digits = ((text >= ord("0")) & (text <= ord("9"))) & inside
    num_points = points.sum(axis=1)
    num_digits = digits.sum(axis=1)
    is_good &= (num_points <= 1) & (num_digits >= 1) & (num_points + num_digits == lengths)
    mantissa = np.zeros(len(text), np.int64)
    for place in range(width):
        here = digits[:, place]
        mantissa = np.where(here, mantissa * 10 + _DIGITS[text[:, place]], mantissa)
    num_decimals = np.where(num_points == 1, width - 1 - points.argmax(axis=1), 0)
    values = mantissa / 10.0 ** np.minimum(num_decimals, 22)
    for row in np.flatnonzero(is_good & ((num_digits > 18) | (mantissa >= _EXACT) | (num_decimals > 22))):
        values[row] = float(fields.data[fields.begins[row] : fields.ends[row]].tobytes())
    return np.where(is_good, values, np.nan), is_good
