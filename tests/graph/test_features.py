"""Number formats and compressed sparse rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.graph.features import (
    DenseFeatures,
    SparseFeatures,
    csr_problem,
    dense,
    not_finite,
    sparse,
    stored_as,
    to_float32,
    unsorted_or_repeated,
)

FINITE = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=20))
def test_bfloat16_rounds_to_nearest_even_as_torch_does(values):
    torch = pytest.importorskip("torch")
    x = np.array([values], dtype=np.float32)
    words = stored_as(dense(x), "bfloat16").x
    expected = torch.from_numpy(x).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(words, expected)


@settings(deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=20))
def test_bfloat16_comes_back_within_its_precision(values):
    x = np.array([values], dtype=np.float32)
    back = to_float32(stored_as(dense(x), "bfloat16"))
    assert np.all(np.abs(back - x) <= np.abs(x) * 2**-8 + np.finfo(np.float32).tiny)


def test_float16_refuses_what_it_cannot_hold():
    with pytest.raises(UserError, match="65504"):
        stored_as(dense(np.array([[1e5]], dtype=np.float32)), "float16")


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.bool_])
def test_other_numbers_become_float32(dtype):
    features = dense(np.array([[0, 1], [1, 0]], dtype=dtype))
    assert features.dtype == "float32"
    assert features.x.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_number_that_is_none_is_named(dtype, bad):
    x = np.ones((5, 3), dtype=np.float32)
    features = stored_as(dense(x), dtype)
    bad_word = stored_as_word(bad, dtype)
    features.x[3, 2] = bad_word
    assert not_finite(features) == f"row 3, column 2 is {np.float32(bad)}"


def stored_as_word(value, dtype):
    if dtype == "bfloat16":
        return np.array([value], dtype=np.float32).view(np.uint32)[0] >> 16
    return value


def test_the_largest_bfloat16_is_finite():
    assert not_finite(DenseFeatures(np.array([[0x7F7F, 0xFF7F]], dtype=np.uint16), "bfloat16")) is None


def test_a_sparse_value_that_is_none_is_named():
    features = SparseFeatures(
        np.array([0, 1, 3]), np.array([4, 0, 2], np.int32), np.array([1, 1, np.nan], np.float32), 5
    )
    assert not_finite(features) == "row 1, column 2 is nan"


def test_unsorted_rows_are_sorted_with_their_values():
    features = sparse(np.array([0, 3, 3, 5]), np.array([2, 0, 1, 4, 3]), np.array([20, 0, 10, 40, 30]), 5)
    assert features.indices.tolist() == [0, 1, 2, 3, 4]
    assert features.values.tolist() == [0, 10, 20, 30, 40]
    assert unsorted_or_repeated(features.indptr, features.indices) is None


def test_a_repeated_column_is_found():
    assert (
        unsorted_or_repeated(np.array([0, 1, 3]), np.array([0, 1, 1]))
        == "row 1 is not in ascending order, or names a column twice"
    )


def test_a_row_may_start_below_where_the_last_one_ended():
    assert unsorted_or_repeated(np.array([0, 0, 2, 2, 4, 4]), np.array([3, 4, 0, 1])) is None


@pytest.mark.parametrize(
    ("indptr", "indices", "problem"),
    [
        ([0, 2, 1, 3], [0, 1, 2], "indptr falls from 2 to 1 at row 1"),
        ([0, 1], [0, 1], "indptr runs from 0 to 1, but there are 2 indices"),
        ([1, 2], [0, 1], "indptr runs from 1 to 2"),
        ([0, 1, 2], [0, 3], "row 1 names column 3"),
        ([0, 1, 2], [0, -1], "row 1 names column -1"),
        ([0.0, 1.0], [0], "must be integers"),
        ([], [0], "one-dimensional"),
        ([[0, 1]], [0], "one-dimensional"),
    ],
)
def test_a_broken_csr_matrix_is_described(indptr, indices, problem):
    assert problem in csr_problem(np.array(indptr), np.array(indices), 3)
