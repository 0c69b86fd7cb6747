"""LinkRanks and their measures: against brute force, OGB's formulas written down anew, and scikit-learn."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from graphmill.base.errors import InvalidInputError, UserError
from graphmill.tasks.link_prediction.ranking import (
    LeftOut,
    LinkRanks,
    auc_ap,
    hits_at,
    joined_ranks,
    mrr,
    ranks_among_all,
    ranks_among_given,
    ranks_among_pool,
    ranks_of_scores,
    top_k,
)

LAST_BITS = 1e-14  # of sums of a few hundred terms below 1, rounded otherwise


def whole_vectors(rng, count, width, most=2):
    return rng.integers(-most, most + 1, (count, width)).astype(np.float32)


def rows_of(lists) -> LeftOut:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in lists])]).astype(np.int64)
    return LeftOut(indptr[:-1], indptr[1:], np.array(list(itertools.chain(*lists)), dtype=np.int32))


def same(a: LinkRanks, b: LinkRanks) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("above", "tied", "candidates"))


# OGB's evaluators of linkproppred, written down from their description: negatives [q, k] of each positive [q], or one
# pool [m] of all.


def ogb_mrr(positive, negative):
    optimistic = (negative > positive[:, None]).sum(1)
    pessimistic = (negative >= positive[:, None]).sum(1)
    ranks = 0.5 * (optimistic + pessimistic) + 1
    return {"mrr": (1 / ranks).mean(), **{k: (ranks <= k).mean() for k in (1, 3, 10)}}


def ogb_hits(positive, pool, k):
    if len(pool) < k:
        return 1.0
    return (positive > np.sort(pool)[-k]).mean()


@st.composite
def problems(draw):
    num_queries, num_rows = draw(st.integers(1, 30)), draw(st.integers(1, 90))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    width = draw(st.integers(1, 20))
    lists = [np.flatnonzero(rng.random(num_rows) < draw(st.sampled_from([0, 0.3, 1]))) for _ in range(num_queries)]
    return (
        whole_vectors(rng, num_queries, width),
        rng.integers(0, num_rows, num_queries),
        whole_vectors(rng, num_rows, width),
        lists,
    )


@given(problems())
def test_three_ways_to_the_same_ranks(problem):
    queries, answers, table, lists = problem
    left_out, scores = rows_of(lists), queries @ table.T
    found = ranks_among_all(queries, answers, table, left_out, num_threads=2)
    for dtype in (np.float32, np.float64):
        assert same(found, ranks_of_scores(lambda some, d=dtype: scores[some].astype(d), answers, left_out, len(table)))
    for query, answer in enumerate(answers):
        others = np.setdiff1d(np.arange(len(table)), [*lists[query], answer])
        one = slice(query, query + 1)
        alone = ranks_among_given(queries[one], answers[one], table, others[None])
        assert same(alone, LinkRanks(found.above[one], found.tied[one], found.candidates[one]))


@given(problems(), st.integers(1, 70))
def test_ranks_among_given_candidates(problem, k):
    queries, answers, table, _ = problem
    candidates = np.random.default_rng(k).integers(0, len(table), (len(queries), k))
    scores = queries @ table.T
    negative, positive = np.take_along_axis(scores, candidates, 1), scores[np.arange(len(answers)), answers]
    is_other = candidates != answers[:, None]
    found = ranks_among_given(queries, answers, table, candidates)
    assert np.array_equal(found.above, ((negative > positive[:, None]) & is_other).sum(1))
    assert np.array_equal(found.tied, ((negative == positive[:, None]) & is_other).sum(1))
    assert np.array_equal(found.candidates, is_other.sum(1))
    assert same(found, ranks_among_given(queries, answers, table, candidates.astype(np.int32), num_threads=3))


@given(problems())
def test_measures_are_ogbs(problem):
    queries, answers, table, _ = problem
    scores = queries @ table.T
    positive = scores[np.arange(len(answers)), answers]
    assume(len(table) > 1)
    negative = np.array([np.delete(row, answer) for row, answer in zip(scores, answers, strict=True)])
    expected = ogb_mrr(positive, negative)
    found = ranks_among_all(queries, answers, table)
    assert mrr(found) == pytest.approx(expected["mrr"], rel=LAST_BITS)
    for k in (1, 3, 10):
        assert hits_at(found, k) == expected[k]


@given(st.integers(0, 10**6), st.integers(1, 50), st.integers(0, 60), st.sampled_from([1, 2, 10, 50]))
def test_hits_among_a_shared_pool_are_ogbs(seed, num_links, num_others, k):
    rng = np.random.default_rng(seed)
    positive, pool = (rng.integers(-3, 4, n).astype(np.float32) for n in (num_links, num_others))
    found = ranks_among_pool(positive, pool)
    assert np.array_equal(found.above, (pool > positive[:, None]).sum(1))
    assert np.array_equal(found.tied, (pool == positive[:, None]).sum(1))
    assert (found.candidates == num_others).all()
    assert hits_at(found, k, shared_pool=True) == ogb_hits(positive, pool, k)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 60), st.sampled_from([1, 4, None]), st.booleans())
def test_auc_and_ap_are_scikit_learns(seed, num_links, num_others, most, is_double):
    rng = np.random.default_rng(seed)
    dtype = np.float64 if is_double else np.float32
    positive, negative = (
        (rng.normal(size=n) if most is None else rng.integers(0, most, n)).astype(dtype)
        for n in (num_links, num_others)
    )
    truth, scores = np.repeat([1, 0], [num_links, num_others]), np.concatenate([positive, negative])
    auc, ap = auc_ap(positive, negative)
    assert auc == pytest.approx(roc_auc_score(truth, scores), rel=LAST_BITS)
    assert ap == pytest.approx(average_precision_score(truth, scores), rel=LAST_BITS)
    assert (auc, ap) == auc_ap(rng.permutation(positive), rng.permutation(negative)), "in any order, to the bit"


@given(problems(), st.integers(1, 100), st.integers(1, 3))
def test_the_best_rows(problem, k, num_threads):
    queries, _, table, lists = problem
    ids, scores = top_k(queries, table, rows_of(lists), k, num_threads)
    assert ids.shape == scores.shape == (len(queries), k)
    for query in range(len(queries)):
        all_of_it = queries[query] @ table.T
        left = np.setdiff1d(np.arange(len(table)), lists[query])
        best = left[np.argsort(-all_of_it[left], kind="stable")][:k]
        assert ids[query, : len(best)].tolist() == best.tolist()
        assert scores[query, : len(best)].tolist() == all_of_it[best].tolist()
        assert (ids[query, len(best) :] == -1).all()
        assert (scores[query, len(best) :] == -np.inf).all()


def test_shares_of_the_queries_change_no_bit_of_ranks_or_measures():
    rng = np.random.default_rng(3)
    queries, table = (rng.normal(size=(n, 24)).astype(np.float32) for n in (1000, 3000))
    table[1500:] = table[:1500]
    answers, lists = rng.integers(0, 3000, 1000), [np.flatnonzero(rng.random(3000) < 0.01) for _ in range(1000)]
    alone = ranks_among_all(queries, answers, table, rows_of(lists))
    best = top_k(queries, table, rows_of(lists), 20)
    for num_shares in range(1, 6):
        shares = np.array_split(np.arange(1000), num_shares)
        parts = [
            ranks_among_all(queries[own], answers[own], table, rows_of([lists[i] for i in own]), num_threads=num_shares)
            for own in shares
        ]
        assert same(alone, joined_ranks(parts))
        assert mrr(alone) == mrr(joined_ranks(parts[::-1]))
        found = [top_k(queries[own], table, rows_of([lists[i] for i in own]), 20) for own in shares]
        for whole, cut in zip(best, zip(*found, strict=True), strict=True):
            assert np.array_equal(whole, np.concatenate(cut))


def test_all_equal_scores_are_no_good_rank():
    """A model that says the same of all pairs is as good as chance."""
    queries, table = np.zeros((4, 3), np.float32), np.ones((101, 3), np.float32)
    found = ranks_among_all(queries, np.arange(4), table)
    assert found.places.tolist() == [51.0] * 4
    assert hits_at(found, 50) == 0
    assert auc_ap(np.ones(5), np.ones(7))[0] == 0.5


def test_infinite_scores_are_ranked():
    table = np.array([[1], [np.inf], [-np.inf], [np.inf]], np.float32)
    found = ranks_among_all(np.ones((3, 1), np.float32), np.array([0, 1, 2]), table)
    assert found.above.tolist() == [2, 0, 3]
    assert found.tied.tolist() == [0, 1, 0]
    ids, scores = top_k(np.ones((1, 1), np.float32), table, None, 4)
    assert ids.tolist() == [[1, 3, 0, 2]]
    assert scores.tolist() == [[np.inf, np.inf, 1, -np.inf]]


@pytest.mark.parametrize("at", [0, 13, 39])
def test_nan_is_no_rank(at):
    """Wherever it comes from: a vector, an answer, a candidate, or infinities of both signs."""
    queries, table, answers = np.ones((40, 3), np.float32), np.ones((50, 3), np.float32), np.full(40, 7)
    of_query, of_row = queries.copy(), table.copy()
    of_query[at, 2] = np.nan
    of_row[at + 8, 0] = np.nan
    infinite = queries.copy()
    infinite[at] = (np.inf, -np.inf, 0)
    scores = np.ones((40, 50))
    scores[at, 49] = np.nan
    for run in (
        lambda: ranks_among_all(of_query, answers, table),
        lambda: ranks_among_all(infinite, answers, table, num_threads=3),
        lambda: ranks_among_given(of_query, answers, table, np.zeros((40, 2), int)),
        lambda: ranks_among_given(infinite, answers, table, np.full((40, 2), 20)),
        lambda: top_k(of_query, table, None, 3),
        lambda: ranks_of_scores(lambda some: scores[some], answers, None, 50),
        lambda: ranks_among_pool(scores[:, 49], scores[0, :5]),
        lambda: auc_ap(scores[:, 49], np.ones(3)),
    ):
        with pytest.raises(UserError, match=f"link {at} is NaN"):
            run()
    with pytest.raises(UserError, match="link 0 is NaN"):
        ranks_among_all(queries, answers, of_row)
    left_out = rows_of([[at + 8]] * 40)
    assert mrr(ranks_among_all(queries, answers, of_row, left_out)) == pytest.approx(1 / 25), "it is no candidate"
    assert top_k(queries, of_row, left_out, 1)[0].max() == 0


def test_tensors_are_taken_where_they_are_plain():
    queries, table, answers = torch.eye(3), torch.eye(5, 3), torch.tensor([0, 1, 2])
    assert mrr(ranks_among_all(queries, answers, table)) == 1
    with pytest.raises(InvalidInputError, match="vectors"):
        ranks_among_all(queries.requires_grad_(), answers, table)


def test_rows_that_are_not_contiguous():
    rng = np.random.default_rng(0)
    queries, table = whole_vectors(rng, 20, 12), whole_vectors(rng, 30, 12)
    answers = rng.integers(0, 30, 40)[::2]
    plain = ranks_among_all(queries[:, ::2].copy(), answers.copy(), table[:, ::2].copy())
    assert same(plain, ranks_among_all(queries[:, ::2], answers, table[:, ::2]))


ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (lambda: ranks_among_all(ONES.astype(np.float64), [0, 1], ONES), "vectors are float64"),
        (lambda: ranks_among_all(ONES, [0, 1], ONES[0]), "table are float32"),
        (lambda: ranks_among_all(ONES, [0, 1], ONES[:, :2].copy()), "3 columns, and the table 2"),
        (lambda: ranks_among_all(ONES, [0, 2], ONES), "answers go from 0 to 2"),
        (lambda: ranks_among_all(ONES, [-1, 1], ONES), "answers go from -1"),
        (lambda: ranks_among_all(ONES, [0.0, 1.0], ONES), "answers are float64"),
        (lambda: ranks_among_all(ONES, [0], ONES), r"answers are int64 \[1\]"),
        (lambda: ranks_among_all(ONES, [0, 1], ONES, rows_of([[0]])), "1 rows are left out"),
        (lambda: ranks_among_all(ONES, [0, 1], ONES, rows_of([[0], [2]])), "from 0 to 2, and there are 2 rows"),
        (lambda: ranks_among_all(ONES, [0, 1], ONES, num_threads=0), "num_threads is 0"),
        (lambda: ranks_among_given(ONES, [0, 1], ONES, [[0], [2]]), "candidates go from 0 to 2"),
        (lambda: ranks_among_given(ONES, [0, 1], ONES, [0, 1]), "candidates are int64"),
        (lambda: top_k(ONES, ONES, None, 0), "k is 0"),
        (lambda: ranks_of_scores(lambda _: ONES[:1], [0, 1], None, 3), r"scores are float32 \[1, 3\]"),
        (lambda: ranks_of_scores(lambda _: np.ones((2, 3), int), [0, 1], None, 3), "scores are int64"),
        (lambda: auc_ap(np.ones(0), np.ones(2)), "0 links"),
        (lambda: mrr(joined_ranks([])), "no ranks"),
        (lambda: hits_at(joined_ranks([]), 1), "no ranks"),
    ],
)
def test_what_does_not_fit_is_said(run, problem):
    with pytest.raises(InvalidInputError, match=problem):
        run()
