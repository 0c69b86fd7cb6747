"""Windows of frames as graphs: what is refused, and what no windows give."""

import numpy as np
import pytest

from graphmill import _native


def test_what_lies_outside_is_refused():
    with pytest.raises(ValueError, match="beyond the frames"):
        _native.window_graphs(np.zeros(9, np.uint32), np.zeros((9, 8), np.uint8), np.array([0]), 10)
    with pytest.raises(ValueError, match="beyond the bytes"):
        _native.hex_bytes(
            np.zeros(4, np.uint8), np.array([1]), np.array([5]), np.zeros((1, 8), np.uint8), np.zeros(1, bool)
        )


def test_no_windows_are_no_graphs():
    made = _native.window_graphs(np.zeros(9, np.uint32), np.zeros((9, 8), np.uint8), np.zeros(0, np.int64), 5)
    assert [each.shape for each in made] == [(0,), (0,), (0,), (0, 10), (0,), (0,), (0, 11)]
