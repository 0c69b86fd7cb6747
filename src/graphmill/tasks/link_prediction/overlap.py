"""Scores of pairs of nodes by what both have: neighbours, words. Exact ranks by them, in bounded memory.

The score of (u, v) is the sum over columns w of M[u, w] · M[v, w] · weight[w], for a sparse M. It is 0 for most pairs,
so only those that share a column are looked at, unless there are too many of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.link_prediction.known import LeftOut, blocks
from graphmill.tasks.link_prediction.ranking import LinkRanks

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]

_AT_A_TIME: Final = 1 << 22  # terms of sums
_DENSE_FROM: Final = 0.03  # terms over nodes: from there on the scores of all nodes are written out
_SORTED_FROM: Final = 32  # queries of a row: from there on its scores are sorted, not compared with each
_SIDES: Final[tuple[Literal["left"], Literal["right"]]] = ("left", "right")


@dataclass(frozen=True, slots=True)
class CompressedRows:
    """Compressed rows; columns ascend within a row, without duplicates."""

    indptr: Ids  # [num_rows + 1]
    columns: Ids  # [num_entries]
    values: Numbers  # [num_entries]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    def lengths(self, rows: Ids) -> Ids:
        """Entries of each of these rows [n]."""
        return self.indptr[rows + 1] - self.indptr[rows]

    def entries(self, rows: Ids) -> tuple[Ids, Ids]:
        """Entries of these rows [m], one row after the other: which of `rows` each is in, and its place."""
        lengths = self.lengths(rows)
        of = np.repeat(np.arange(len(rows)), lengths)
        first = np.cumsum(lengths) - lengths
        return of, np.arange(len(of)) + (self.indptr[rows] - first)[of]

    def transposed(self, num_columns: int) -> "CompressedRows":
        """Columns as rows."""
        order = np.argsort(self.columns, kind="stable")
        rows = np.repeat(np.arange(self.num_rows), np.diff(self.indptr))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(self.columns, minlength=num_columns))])
        return CompressedRows(indptr, rows[order], self.values[order])


@dataclass(frozen=True, slots=True)
class Overlap:
    """What nodes have [num_nodes, num_columns], and which nodes have what."""

    rows: CompressedRows
    by_column: CompressedRows
    weights: Numbers  # [num_columns]
    keys: Ids  # [num_entries] node * num_columns + column, ascending

    @classmethod
    def of(cls, rows: CompressedRows, weights: Numbers) -> "Overlap":
        """Make an overlap of rows whose columns have these weights."""
        each = np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr))
        return cls(rows, rows.transposed(len(weights)), weights, each * len(weights) + rows.columns)

    def num_terms(self, nodes: Ids) -> Ids:
        """Number of terms in the sums of all pairs with each of these nodes [n]."""
        of, at = self.rows.entries(nodes)
        found = np.bincount(of, self.by_column.lengths(self.rows.columns[at]), minlength=len(nodes))
        return found.astype(np.int64)

    def pair_scores(self, sources: Ids, targets: Ids) -> Numbers:
        """Score of each pair [n]."""
        scores: list[Numbers] = [np.empty(0)]
        for some in blocks(self.rows.lengths(sources), _AT_A_TIME):
            of, at = self.rows.entries(sources[some])
            wanted = targets[some][of] * len(self.weights) + self.rows.columns[at]
            place = np.minimum(np.searchsorted(self.keys, wanted), max(0, len(self.keys) - 1))
            is_shared = self.keys[place] == wanted if len(self.keys) else np.zeros(0, dtype=bool)
            of, at, place = of[is_shared], at[is_shared], place[is_shared]
            terms = self.rows.values[at] * self.weights[self.rows.columns[at]] * self.rows.values[place]
            scores.append(_sums(of, terms, some.stop - some.start))
        return np.concatenate(scores)

    def ranks(self, anchors: Ids, answers: Ids, left_out: LeftOut) -> LinkRanks:
        """Rank each answer among all nodes, by the score with its anchor [q]; those left out are not candidates.

        Scores with an anchor are computed once for all queries with it.
        """
        order = np.argsort(anchors, kind="stable")
        distinct, begins = np.unique(anchors[order], return_index=True)
        ends = np.append(begins[1:], len(order))
        found = np.empty((3, len(anchors)), dtype=np.int64)
        for some in blocks(self.num_terms(distinct), _AT_A_TIME):
            of, nodes, terms = self._terms(distinct[some])
            bounds = np.searchsorted(of, np.arange(some.stop - some.start + 1))
            for first, last, begin, end in zip(bounds[:-1], bounds[1:], begins[some], ends[some], strict=True):
                its = order[begin:end]
                skipped = LeftOut(left_out.starts[its], left_out.ends[its], left_out.ids)
                ranks = self._ranks_with_one(nodes[first:last], terms[first:last], answers[its], skipped)
                found[:, its] = ranks.above, ranks.tied, ranks.candidates
        return LinkRanks(*found)

    def _ranks_with_one(self, nodes: Ids, terms: Numbers, answers: Ids, left_out: LeftOut) -> LinkRanks:
        """Rank answers [q] with one anchor, from the terms of its scores; nodes without a term have 0."""
        num_nodes = self.rows.num_rows
        if len(terms) > _DENSE_FROM * num_nodes:
            return ranks_of_one_row(_sums(nodes, terms, num_nodes), answers, left_out)
        nodes, place = np.unique(nodes, return_inverse=True)
        scores = _sums(place, terms, len(nodes))

        def looked_up(wanted: Ids) -> Numbers:
            if not len(nodes):
                return np.zeros(len(wanted))
            place = np.minimum(np.searchsorted(nodes, wanted), len(nodes) - 1)
            return np.where(nodes[place] == wanted, scores[place], 0.0)

        return _ranked(scores, looked_up, answers, left_out, num_nodes)

    def _terms(self, anchors: Ids) -> tuple[Ids, Ids, Numbers]:
        """Terms of all sums with these anchors: anchor, other node, and term; those of an anchor in a fixed order."""
        of, at = self.rows.entries(anchors)
        columns = self.rows.columns[at]
        own = self.rows.values[at] * self.weights[columns]
        entry, other = self.by_column.entries(columns)
        return of[entry], self.by_column.columns[other], own[entry] * self.by_column.values[other]


def _sums(of: Ids, terms: Numbers, count: int) -> Numbers:
    """Terms added up in their order [count]."""
    return np.bincount(of, terms, minlength=count).astype(np.float64, copy=False)


def ranks_of_one_row(scores: Numbers, answers: Ids, left_out: LeftOut) -> LinkRanks:
    """Rank answers [q] whose candidates have the same scores [num_nodes] whatever the query."""
    return _ranked(scores[scores != 0], lambda ids: scores[ids], answers, left_out, len(scores))


def _ranked(
    scores: Numbers, score_of: Callable[[Ids], Numbers], answers: Ids, left_out: LeftOut, num_nodes: int
) -> LinkRanks:
    """Rank answers [q] among all nodes, of which some have these scores and all others 0, except those left out."""
    own, zeros = score_of(answers), num_nodes - len(scores)
    above, tied = _counts(scores, own)
    above, tied = above + np.where(own < 0, zeros, 0), tied + np.where(own == 0, zeros, 0) - 1
    of, ids = left_out.flat()
    is_other = ids != answers[of]
    of, left = of[is_other], score_of(ids[is_other])
    count = len(answers)
    return LinkRanks(
        above - np.bincount(of[left > own[of]], minlength=count),
        tied - np.bincount(of[left == own[of]], minlength=count),
        num_nodes - 1 - np.bincount(of, minlength=count),
    )


def _counts(scores: Numbers, of_answers: Numbers) -> tuple[Ids, Ids]:
    """How many scores are above each of `of_answers` [q], and how many as much."""
    if len(of_answers) < _SORTED_FROM:
        found = [(np.count_nonzero(scores > each), np.count_nonzero(scores == each)) for each in of_answers]
        above, tied = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return above, tied
    ordered = np.sort(scores)
    below, not_above = (np.searchsorted(ordered, of_answers, side=side) for side in _SIDES)
    return len(scores) - not_above, not_above - below
