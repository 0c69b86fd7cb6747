"""Exact ranks of answers among all candidates, or given ones, and the measures that are made of them.

A score is a dot product; the native core counts scores as it makes them, so memory is bounded whatever the number of
candidates. LinkRanks are whole numbers, and the same for any number of threads and any share of the queries.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.arguments import whole_number
from graphmill.base.errors import InvalidInputError, UserError
from graphmill.tasks.link_prediction.known import KnownLinks, LeftOut

__all__ = [
    "KnownLinks",
    "LeftOut",
    "LinkRanks",
    "auc_ap",
    "hits_at",
    "joined_ranks",
    "mrr",
    "ranks_among_all",
    "ranks_among_given",
    "ranks_among_pool",
    "ranks_of_scores",
    "top_k",
]

Array = Any  # of numpy, or a CPU tensor
Ids = NDArray[np.int64]
Rows = NDArray[np.float32]
Numbers = NDArray[np.float64]

_BLOCK_BYTES: Final = 64 * 2**20  # of scores of other sources, at a time


@dataclass(frozen=True, slots=True)
class LinkRanks:
    """Ranks of q answers: how many candidates score above each, and how many as much. An answer is not a candidate."""

    above: Ids  # [q]
    tied: Ids  # [q]
    candidates: Ids  # [q] how many it was ranked among

    def __len__(self) -> int:
        return len(self.above)

    @property
    def places(self) -> Numbers:
        """The ranks [q], from 1 on: the mean of the best and the worst place among equals, as OGB counts them."""
        return 1 + self.above + self.tied / 2


def joined_ranks(parts: Iterable[LinkRanks]) -> LinkRanks:
    """Join ranks one after the other."""
    empty = np.empty(0, np.int64)
    found = [LinkRanks(empty, empty, empty), *parts]
    return LinkRanks(*(np.concatenate([getattr(each, name) for each in found]) for name in LinkRanks.__slots__))


# ---- ranks -----------------------------------------------------------------------------------------------------------


def ranks_among_all(
    vectors: Array, answers: Array, table: Array, left_out: LeftOut | None = None, num_threads: int = 1
) -> LinkRanks:
    """Rank each answer among all rows of a table, by dot product with its query.

    Args:
        vectors: of the queries, float32 [q, d].
        answers: [q] row numbers.
        table: of the candidates, float32 [N, d].
        left_out: rows that are no candidates of a query; its answer may be among them.
        num_threads: the result does not depend on it.

    Raises:
        InvalidInputError: shapes, types or row numbers do not fit.
        UserError: a score is NaN.
    """
    queries, rows = _rows("vectors", vectors), _rows("table", table)
    _same_width(queries, rows)
    given = _row_numbers("answers", answers, (len(queries),), len(rows))
    skipped = _checked(left_out, len(queries), len(rows))
    counts = _no_counts(len(queries))
    broken = _native.count_above(
        queries=queries,
        answers=given,
        table=rows,
        **_columns_of(skipped),
        above=counts.above,
        tied=counts.tied,
        candidates=counts.candidates,
        num_threads=whole_number("num_threads", num_threads),
    )
    return _without_nan(counts, broken)


def ranks_among_given(
    vectors: Array, answers: Array, table: Array, candidates: Array, num_threads: int = 1
) -> LinkRanks:
    """Rank each answer among candidates of its own.

    Args:
        vectors: of the queries, float32 [q, d].
        answers: [q] row numbers.
        table: float32 [N, d].
        candidates: [q, k] row numbers. One that stands twice counts twice; the answer itself does not count.
        num_threads: the result does not depend on it.

    Raises:
        InvalidInputError: shapes, types or row numbers do not fit.
        UserError: a score is NaN.
    """
    queries, rows = _rows("vectors", vectors), _rows("table", table)
    _same_width(queries, rows)
    shape = np.shape(candidates)
    counts = _no_counts(len(queries))
    broken = _native.count_above_given(
        queries=queries,
        answers=_row_numbers("answers", answers, (len(queries),), len(rows)),
        table=rows,
        given=_row_numbers("candidates", candidates, (len(queries), shape[-1] if len(shape) == 2 else 0), len(rows)),
        above=counts.above,
        tied=counts.tied,
        candidates=counts.candidates,
        num_threads=whole_number("num_threads", num_threads),
    )
    return _without_nan(counts, broken)


def ranks_of_scores(
    block: Callable[[slice], Array], answers: Array, left_out: LeftOut | None, num_candidates: int
) -> LinkRanks:
    """Rank each answer by scores that come from anywhere, some queries at a time.

    Args:
        block: of a slice of the queries the scores [b, N], floating point.
        answers: [q] candidates, from 0 to N - 1.
        left_out: candidates that are none of a query.
        num_candidates: N.

    Raises:
        InvalidInputError: shapes, types or ids do not fit.
        UserError: a score is NaN.
    """
    num_candidates = whole_number("num_candidates", num_candidates)
    given = _row_numbers("answers", answers, (len(answers),), num_candidates)
    skipped = _checked(left_out, len(given), num_candidates)
    at_a_time = max(1, _BLOCK_BYTES // (8 * num_candidates))
    found = []
    for begin in range(0, len(given), at_a_time):
        some = slice(begin, min(begin + at_a_time, len(given)))
        scores = np.asarray(block(some))
        wanted = (some.stop - some.start, num_candidates)
        if scores.shape != wanted or scores.dtype.kind != "f":
            raise InvalidInputError(
                f"scores are {scores.dtype} {list(scores.shape)}, not floating point {list(wanted)}",
                fix="score every candidate of each query of the slice",
            )
        broken = np.flatnonzero(np.isnan(scores).any(axis=1))
        _refuse_nan(begin + int(broken[0]) if len(broken) else -1)
        found.append(_ranks_of_block(scores, given[some], None if skipped is None else skipped.taken(some)))
    return joined_ranks(found)


def ranks_among_pool(positive: Array, pool: Array) -> LinkRanks:
    """Rank each score [q] among those of a pool [m] that all share."""
    scores, others = _scores("positive", positive), np.sort(_scores("pool", pool))
    not_above, below = (np.searchsorted(others, scores, side=side) for side in ("right", "left"))
    return LinkRanks(len(others) - not_above, not_above - below, np.full(len(scores), len(others)))


def top_k(vectors: Array, table: Array, left_out: LeftOut | None, k: int, num_threads: int = 1) -> tuple[Ids, Rows]:
    """The best rows of a table for each query, by dot product.

    Args:
        vectors: of the queries, float32 [q, d].
        table: float32 [N, d].
        left_out: rows that are not given back.
        k: how many.
        num_threads: the result does not depend on it.

    Returns:
        Row numbers [q, k], best first and equal ones ascending, and their scores [q, k]. Where fewer are left, -1 and
        -infinity.

    Raises:
        InvalidInputError: shapes, types or row numbers do not fit.
        UserError: a score is NaN.
    """
    queries, rows = _rows("vectors", vectors), _rows("table", table)
    _same_width(queries, rows)
    columns = _columns_of(_checked(left_out, len(queries), len(rows)))
    shape = (len(queries), whole_number("k", k))
    ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
    broken = _native.best_rows(
        queries=queries,
        table=rows,
        starts=columns["starts"],
        ends=columns["ends"],
        left_out=columns["ids"],
        ids=ids,
        scores=scores,
        num_threads=whole_number("num_threads", num_threads),
    )
    _refuse_nan(broken)
    return ids, scores


# ---- measures --------------------------------------------------------------------------------------------------------
# Sums are exactly rounded (math.fsum): the order of the ranks, and so the ranks' shares, change no bit.


def mrr(ranks: LinkRanks) -> float:
    """The mean of 1 / rank, as OGB's evaluators have it."""
    return math.fsum((1 / _some(ranks).places).tolist()) / len(ranks)


def hits_at(ranks: LinkRanks, k: int, *, shared_pool: bool = False) -> float:
    """The share of answers with a rank of at most `k`.

    Args:
        ranks: of the answers.
        k: 1 or more.
        shared_pool: whether all were ranked among one pool. OGB then counts an answer whose score is above the k-th
            best of the pool, and every answer where the pool has fewer than k.
    """
    whole_number("k", k)
    is_hit = ranks.above + ranks.tied < k if shared_pool else ranks.places <= k
    return int(np.count_nonzero(is_hit)) / len(_some(ranks))


def auc_ap(positive: Array, negative: Array) -> tuple[float, float]:
    """Area under the ROC curve and average precision of pooled scores, as scikit-learn has them.

    Args:
        positive: scores of pairs that are links [p].
        negative: scores of pairs that are none [n].

    Returns:
        The chance that a link scores above a pair that is none, ties counted half; and the mean of the precision at the
        score of each link.

    Raises:
        InvalidInputError: there are no links, or no pairs that are none.
        UserError: a score is NaN.
    """
    scores = [_scores("positive", positive), _scores("negative", negative)]
    num_links, num_others = map(len, scores)
    if not num_links or not num_others:
        raise InvalidInputError(
            f"there are {num_links} links and {num_others} pairs that are none", fix="give scores of both"
        )
    distinct, place = np.unique(np.concatenate(scores), return_inverse=True)
    links, others = (
        np.bincount(of, minlength=len(distinct))[::-1] for of in (place[:num_links], place[num_links:])
    )  # by distinct score, the best first
    links_so_far, others_so_far = np.cumsum(links), np.cumsum(others)
    halves = int(np.sum(others * (2 * links_so_far - links)))  # pairs (link, other) in the right order count 2
    precision = links_so_far / (links_so_far + others_so_far)
    return halves / (2 * num_links * num_others), math.fsum((links * precision).tolist()) / num_links


# ---- what is given ---------------------------------------------------------------------------------------------------


def _array(name: str, given: Array) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # a tensor with a gradient, or on a GPU
        raise InvalidInputError(
            f"{name} cannot be read as an array: {error}", fix="give it detached, on the CPU"
        ) from None


def _rows(name: str, given: Array) -> Rows:
    found = _array(name, given)
    if found.ndim != 2 or found.dtype != np.float32:
        raise InvalidInputError(f"{name} are {found.dtype} {list(found.shape)}", fix="give float32 [rows, columns]")
    return np.ascontiguousarray(found)


def _same_width(queries: Rows, table: Rows) -> None:
    if queries.shape[1] != table.shape[1]:
        raise InvalidInputError(
            f"vectors have {queries.shape[1]} columns, and the table {table.shape[1]}", fix="give both as many"
        )


def _row_numbers(name: str, given: Array, shape: tuple[int, ...], num_rows: int) -> Ids:
    found = _array(name, given)
    if found.shape != shape or (found.dtype.kind not in "iu" and found.size):
        raise InvalidInputError(
            f"{name} are {found.dtype} {list(found.shape)}", fix=f"give whole numbers {list(shape)}"
        )
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < num_rows:
        raise InvalidInputError(
            f"{name} go from {found.min()} to {found.max()}, and there are {num_rows} rows",
            fix=f"give numbers from 0 to {num_rows - 1}",
        )
    return np.ascontiguousarray(found, dtype=np.int64)


def _scores(name: str, given: Array) -> NDArray[Any]:
    found = _array(name, given)
    if found.ndim != 1 or found.dtype.kind != "f":
        raise InvalidInputError(
            f"{name} are {found.dtype} {list(found.shape)}", fix="give floating point, one dimension"
        )
    broken = np.flatnonzero(np.isnan(found))
    _refuse_nan(int(broken[0]) if len(broken) else -1)
    return found


def _checked(left_out: LeftOut | None, num_queries: int, num_rows: int) -> LeftOut | None:
    if left_out is None:
        return None
    if len(left_out) != num_queries:
        raise InvalidInputError(
            f"{len(left_out)} rows are left out, and there are {num_queries} queries", fix="give one row for each query"
        )
    ids = left_out.ids
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < num_rows:
        raise InvalidInputError(
            f"ids to leave out go from {ids.min()} to {ids.max()}, and there are {num_rows} rows",
            fix=f"give numbers from 0 to {num_rows - 1}",
        )
    return left_out


def _columns_of(left_out: LeftOut | None) -> dict[str, NDArray[Any] | None]:
    if left_out is None:
        return {"starts": None, "ends": None, "ids": None}
    return {name: np.ascontiguousarray(getattr(left_out, name)) for name in ("starts", "ends", "ids")}


def _no_counts(count: int) -> LinkRanks:
    return LinkRanks(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64))


def _without_nan(counts: LinkRanks, broken: int) -> LinkRanks:
    _refuse_nan(broken)
    return counts


def _refuse_nan(query: int) -> None:
    if query >= 0:
        raise UserError(
            f"a score of link {query} is NaN: the model has diverged, or its vectors are not finite",
            fix="train with a lower learning rate, from weights that are finite",
        )


def _some(ranks: LinkRanks) -> LinkRanks:
    if not len(ranks):
        raise InvalidInputError("there are no ranks to take a mean of", fix="rank at least one link")
    return ranks


def _ranks_of_block(scores: NDArray[Any], answers: Ids, left_out: LeftOut | None) -> LinkRanks:
    """Ranks by scores [b, N] without NaN."""
    queries = np.arange(len(answers))
    own = scores[queries, answers]
    above = np.count_nonzero(scores > own[:, None], axis=1)
    tied = np.count_nonzero(scores == own[:, None], axis=1) - 1
    candidates = np.full(len(answers), scores.shape[1] - 1)
    if left_out is not None:
        of, ids = left_out.flat()
        is_other = ids != answers[of]
        of, ids = of[is_other], ids[is_other]
        left = scores[of, ids]
        above -= np.bincount(of[left > own[of]], minlength=len(answers))
        tied -= np.bincount(of[left == own[of]], minlength=len(answers))
        candidates -= np.bincount(of, minlength=len(answers))
    return LinkRanks(above, tied, candidates)
