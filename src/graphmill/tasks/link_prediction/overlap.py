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
_DENSE_FROM: Final = 0.25  # terms over pairs of a block: from there on the scores of all pairs are written out
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
        distinct, of = np.unique(anchors[order], return_inverse=True)
        found = np.empty((3, len(anchors)), dtype=np.int64)
        for some in blocks(self.num_terms(distinct), _AT_A_TIME):
            first, last = np.searchsorted(of, [some.start, some.stop])
            its = order[first:last]
            skipped = LeftOut(left_out.starts[its], left_out.ends[its], left_out.ids)
            scored = self._scores_with(distinct[some])
            ranks = _ranks_of_few(*scored, of[first:last] - some.start, answers[its], skipped, self.rows.num_rows)
            found[:, its] = ranks.above, ranks.tied, ranks.candidates
        return LinkRanks(*found)

    def _scores_with(self, anchors: Ids) -> tuple[Ids, Numbers]:
        """Pairs that share a column, as place of the anchor * num_nodes + the other node, ascending, and scores."""
        of, nodes, terms = self._terms(anchors)
        num_pairs = len(anchors) * self.rows.num_rows
        pairs = of * self.rows.num_rows + nodes
        if len(terms) > _DENSE_FROM * num_pairs:
            scores = _sums(pairs, terms, num_pairs)
            keys = np.flatnonzero(scores)
            return keys, scores[keys]
        keys, place = np.unique(pairs, return_inverse=True)
        return keys, _sums(place.reshape(-1), terms, len(keys))

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


def _ranks_of_few(keys: Ids, scores: Numbers, rows: Ids, answers: Ids, left_out: LeftOut, num_nodes: int) -> LinkRanks:
    """Rank answers [q], each in its row [q]; `keys`, row * num_nodes + node, have scores, all other candidates 0."""

    def looked_up(wanted: Ids) -> Numbers:
        if not len(keys):
            return np.zeros(len(wanted))
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, scores[place], 0.0)

    own = looked_up(rows * num_nodes + answers)
    values, place = np.unique(np.concatenate([scores, own]), return_inverse=True)
    of_scores, of_own = np.split(place.reshape(-1), [len(scores)])
    row_of = keys // num_nodes
    ordered = np.sort(row_of * len(values) + of_scores)  # within a row by score
    begins = np.searchsorted(row_of, rows)
    ends = np.searchsorted(row_of, rows, side="right")
    below, not_above = (np.searchsorted(ordered, rows * len(values) + of_own, side=side) for side in _SIDES)
    zeros = num_nodes - (ends - begins)
    above = ends - not_above + np.where(own < 0, zeros, 0)
    tied = not_above - below + np.where(own == 0, zeros, 0) - 1
    of_all = LinkRanks(above, tied, np.full(len(answers), num_nodes - 1))
    return without(of_all, own, lambda of, ids: looked_up(rows[of] * num_nodes + ids), answers, left_out)


def without(
    ranks: LinkRanks, own: Numbers, looked_up: Callable[[Ids, Ids], Numbers], answers: Ids, left_out: LeftOut
) -> LinkRanks:
    """Take nodes that are not candidates out of the ranks; `looked_up`: scores of queries with nodes."""
    of, ids = left_out.flat()
    is_other = ids != answers[of]
    of, ids = of[is_other], ids[is_other]
    left = looked_up(of, ids)
    count = len(answers)
    return LinkRanks(
        ranks.above - np.bincount(of[left > own[of]], minlength=count),
        ranks.tied - np.bincount(of[left == own[of]], minlength=count),
        ranks.candidates - np.bincount(of, minlength=count),
    )


def ranks_of_one_row(scores: Numbers, answers: Ids, left_out: LeftOut) -> LinkRanks:
    """Rank answers [q] whose candidates have the same scores [num_nodes] whatever the query."""
    ordered, own = np.sort(scores), scores[answers]
    below, not_above = (np.searchsorted(ordered, own, side=side) for side in _SIDES)
    of_all = LinkRanks(len(scores) - not_above, not_above - below - 1, np.full(len(answers), len(scores) - 1))
    return without(of_all, own, lambda _, ids: scores[ids], answers, left_out)
