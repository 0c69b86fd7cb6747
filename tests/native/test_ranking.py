"""LinkRanks by dot product: counts that equal a brute-force script's, the same bits however the work is cut up."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill import _native

PROGRAM = Path(__file__).parent / "programs" / "rank_digest.py"
UNIT = 2.0**-24


def counted(queries, answers, table, rows=None, *, num_threads=1):
    """[3, q]: above, tied, candidates. `rows`: of each query the ids that are left out."""
    out = [np.full(len(queries), -7) for _ in range(3)]
    ends = None if rows is None else np.cumsum([len(row) for row in rows], dtype=np.int64)
    broken = _native.count_above(
        queries=queries,
        answers=np.asarray(answers, dtype=np.int64),
        table=table,
        starts=None if ends is None else np.concatenate([[0], ends])[: len(rows)],
        ends=ends,
        ids=None if rows is None else np.array([i for row in rows for i in row], dtype=np.int32),
        above=out[0],
        tied=out[1],
        candidates=out[2],
        num_threads=num_threads,
    )
    assert broken == -1
    return np.stack(out)


def all_scores(queries, table, *, num_threads=1):
    """[q, N]: the bits of every score, by way of the N best."""
    ids, scores = np.empty((len(queries), len(table)), np.int64), np.empty((len(queries), len(table)), np.float32)
    broken = _native.best_rows(
        queries=queries,
        table=table,
        starts=None,
        ends=None,
        left_out=None,
        ids=ids,
        scores=scores,
        num_threads=num_threads,
    )
    assert broken == -1
    found = np.empty_like(scores)
    np.put_along_axis(found, ids, scores, axis=1)
    return found


def brute_force(scores, answers, rows):
    """A candidate at a time."""
    found = []
    for query, answer in enumerate(answers):
        others = [i for i in range(scores.shape[1]) if i != answer and i not in set(rows[query])]
        above = sum(scores[query, i] > scores[query, answer] for i in others)
        found.append((above, sum(scores[query, i] == scores[query, answer] for i in others), len(others)))
    return np.array(found, dtype=np.int64).reshape(-1, 3).T


@st.composite
def problems(draw, most_rows=150):
    """Vectors of whole numbers, many of them equal: their scores are exact in any order of sums."""
    num_queries, num_rows = draw(st.integers(1, 40)), draw(st.integers(1, most_rows))
    width, most = draw(st.integers(1, 40)), draw(st.sampled_from([0, 1, 3]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    queries, table = (
        rng.integers(-most, most + 1, (count, width)).astype(np.float32) for count in (num_queries, num_rows)
    )
    share = draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
    rows = [np.flatnonzero(rng.random(num_rows) < share).tolist() for _ in range(num_queries)]
    return queries, rng.integers(0, num_rows, num_queries), table, rows


@pytest.mark.each_isa
@given(problems(), st.integers(1, 3))
def test_counts_are_those_of_a_brute_force_script(problem, num_threads):
    queries, answers, table, rows = problem
    scores = queries @ table.T
    assert np.array_equal(
        counted(queries, answers, table, rows, num_threads=num_threads), brute_force(scores, answers, rows)
    )
    assert np.array_equal(
        counted(queries, answers, table, num_threads=num_threads), brute_force(scores, answers, [[]] * len(rows))
    )


@pytest.mark.each_isa
@pytest.mark.parametrize("width", [1, 5, 16, 64, 100])
def test_scores_are_sums_and_answers_tie_with_their_copies(width):
    """Of real numbers: counts are exact for the bits of the scores, and those bits are a sum's to its error bound."""
    rng = np.random.default_rng(width)
    queries, table = (rng.normal(size=(n, width)).astype(np.float32) for n in (90, 700))
    table[350:] = table[:350]
    answers = rng.integers(0, 700, 90)
    scores = all_scores(queries, table)
    bound = (
        width * UNIT / (1 - width * UNIT) * (np.abs(queries.astype(np.float64)) @ np.abs(table.T.astype(np.float64)))
    )
    assert (np.abs(scores - queries.astype(np.float64) @ table.T.astype(np.float64)) <= bound).all()
    assert np.array_equal(scores[:, :350], scores[:, 350:])
    rows = [np.flatnonzero(rng.random(700) < 0.1).tolist() for _ in range(90)]
    found = counted(queries, answers, table, rows)
    assert np.array_equal(found, brute_force(scores, answers, rows))
    assert (counted(queries, answers, table)[1] >= 1).all(), "the copy of the answer ties with it"


@pytest.mark.parametrize("width", [7, 64])
def test_threads_and_shares_change_no_bit(width):
    rng = np.random.default_rng(0)
    queries, table = (rng.normal(size=(n, width)).astype(np.float32) for n in (2500, 5000))
    table[1000:2000] = table[:1000]
    answers = rng.integers(0, 5000, 2500)
    alone, scores = counted(queries, answers, table), all_scores(queries[:300], table)
    for num_threads in (2, 3):
        assert np.array_equal(alone, counted(queries, answers, table, num_threads=num_threads))
        assert np.array_equal(scores, all_scores(queries[:300], table, num_threads=num_threads))
    for num_shares in (1, 2, 3, 4, 5):
        bounds = np.linspace(0, 2500, num_shares + 1).astype(int)
        shares = [counted(queries[begin:end], answers[begin:end], table) for begin, end in itertools.pairwise(bounds)]
        assert np.array_equal(alone, np.concatenate(shares, axis=1))
    assert np.array_equal(scores[17:18], all_scores(queries[17:18], table))
    assert np.array_equal(scores[:, 40:90], all_scores(queries[:300], np.ascontiguousarray(table[40:90])))


def test_the_instruction_set_changes_nothing_where_scores_are_exact(printed_on_each_isa):
    assert len(set(printed_on_each_isa(PROGRAM).values())) == 1


def test_nothing_to_rank():
    table, empty = np.ones((5, 3), np.float32), np.empty((0, 3), np.float32)
    assert counted(empty, [], table).shape == (3, 0)
    assert counted(table, [0] * 5, table[:1]).tolist() == [[0] * 5] * 3
    assert counted(table, [0] * 5, table, [range(5)] * 5).tolist() == [[0] * 5] * 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"answers": np.array([0, 5])}, "no row of the table"),
        ({"answers": np.array([0, -1])}, "no row of the table"),
        ({"answers": np.array([0])}, "one answer"),
        ({"table": np.ones((5, 2), np.float32)}, "one width"),
        ({"starts": np.zeros(2, np.int64)}, "starts, ends and ids"),
        (
            {"starts": np.array([0, 3]), "ends": np.array([4, 2]), "ids": np.zeros(4, np.int32)},
            "outside the ids",
        ),
        (
            {"starts": np.array([0, 3]), "ends": np.array([4, 5]), "ids": np.zeros(4, np.int32)},
            "outside the ids",
        ),
        ({"above": np.zeros(1, np.int64)}, "must be .num_queries"),
    ],
)
def test_what_does_not_fit_is_refused(change, problem):
    arguments = {
        "queries": np.ones((2, 3), np.float32),
        "answers": np.array([0, 1]),
        "table": np.ones((5, 3), np.float32),
        "starts": None,
        "ends": None,
        "ids": None,
        **{name: np.zeros(2, np.int64) for name in ("above", "tied", "candidates")},
        "num_threads": 1,
    }
    with pytest.raises(ValueError, match=problem):
        _native.count_above(**{**arguments, **change})


def test_ids_that_do_not_ascend_write_nowhere_else():
    table = np.ones((100, 3), np.float32)
    found = counted(table, np.arange(100), table, [[5, -9, 2**31 - 1, 5, 99, 0]] * 100)
    assert (found[2] <= 99).all()
