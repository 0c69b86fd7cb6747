"""Sums by source: every entry once, in the order of the rows, whatever the threads; nothing is written outside."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill import _native

rows_of_ids = st.lists(st.sets(st.integers(0, 19), max_size=8).map(sorted), min_size=1, max_size=20)


def compressed(rows, dtype=np.int32):
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return indptr, np.array([node for row in rows for node in row], dtype=dtype)


@given(rows_of_ids, st.sampled_from((np.int32, np.int64)), st.integers(1, 4), st.randoms())
def test_sums_are_those_of_a_plain_walk(rows, dtype, num_threads, random):
    indptr, indices = compressed(rows, dtype)
    values = np.array([random.choice((0.0, random.uniform(-1, 1))) for _ in rows])
    sums = np.array([random.uniform(-1, 1) for _ in range(20)])
    wanted = sums.copy()
    for row, value in zip(rows, values, strict=True):
        for node in row:
            wanted[node] += value
    _native.sum_by_source(indptr, indices, values, sums, num_threads)
    assert sums.tolist() == wanted.tolist()


def test_many_entries_are_shared_among_threads():
    rng = np.random.default_rng(0)
    num_rows, num_nodes = 3000, 5000
    rows = [np.unique(rng.zipf(1.3, 900) % num_nodes) for _ in range(num_rows)]
    rows[7] = np.arange(num_nodes)
    indptr, indices = compressed(rows)
    indptr, indices = np.concatenate([indptr, indptr[-1] + indptr[1:]]), np.concatenate([indices, indices])
    while len(indices) < 2**20:
        indptr, indices = np.concatenate([indptr, indptr[-1] + indptr[1:]]), np.concatenate([indices, indices])
    values = rng.random(len(indptr) - 1)
    found = []
    for num_threads in (1, 2, 5):
        sums = np.zeros(num_nodes)
        _native.sum_by_source(indptr, indices, values, sums, num_threads)
        found.append(sums)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    wanted = np.bincount(indices, np.repeat(values, np.diff(indptr)), num_nodes)
    assert found[0] == pytest.approx(wanted, rel=1e-12)


def test_minus_infinity_stays_itself():
    indptr, indices = compressed([[0, 1], [1, 2]])
    sums = np.zeros(3)
    _native.sum_by_source(indptr, indices, np.array([-np.inf, -1.0]), sums)
    assert sums.tolist() == [-np.inf, -np.inf, -1.0]


@pytest.mark.parametrize("strangers", [[-5, 3, 400], [20], [-1]])
def test_a_stranger_is_not_written_to(strangers):
    """Rows come from disk: what is damaged there must not reach other memory."""
    indptr, indices = compressed([strangers])
    around = np.zeros(60)
    sums = around[20:40]
    _native.sum_by_source(indptr, indices, np.array([1.0]), sums)
    assert around.sum() == sum(0 <= node < 20 for node in strangers)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"indptr": np.array([0, 1])}, "end at the number of entries"),
        ({"indptr": np.array([1, 2, 3])}, "offsets from 0"),
        ({"indptr": np.array([0, 4, 3])}, "must not fall"),
        ({"values": np.ones(3)}, "a value for each row"),
        ({"indices": np.zeros(3, np.uint32)}, "int32 or int64"),
    ],
)
def test_refusals(changes, says):
    indptr, indices = compressed([[0, 1], [1]])
    given = {"indptr": indptr, "indices": indices, "values": np.ones(2), "sums": np.zeros(3)} | changes
    with pytest.raises(ValueError, match=says):
        _native.sum_by_source(**given)
