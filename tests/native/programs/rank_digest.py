"""Rank made-up vectors of whole numbers, whose scores are exact; print a digest."""

import hashlib
import sys

import numpy as np

from graphmill import _native

rng = np.random.default_rng(0)
digest = hashlib.sha256()
for width in (1, 3, 16, 37):
    queries = rng.integers(-2, 3, (101, width)).astype(np.float32)
    table = rng.integers(-2, 3, (333, width)).astype(np.float32)
    answers, given = rng.integers(0, 333, 101), rng.integers(0, 333, (101, 45))
    scores = queries @ table.T
    own = scores[np.arange(101), answers, None]
    counts = [np.empty(101, np.int64) for _ in range(3)]
    out = dict(zip(("above", "tied", "candidates"), counts, strict=True))
    none = {"starts": None, "ends": None}
    found = _native.count_above(queries=queries, answers=answers, table=table, **none, ids=None, **out, num_threads=2)
    assert found == -1
    assert np.array_equal(counts[0], (scores > own).sum(1))
    assert np.array_equal(counts[1], (scores == own).sum(1) - 1)
    digest.update(b"".join(each.tobytes() for each in counts))
    _native.count_above_given(queries=queries, answers=answers, table=table, given=given, **out, num_threads=2)
    digest.update(b"".join(each.tobytes() for each in counts))
    ids, best = np.empty((101, 50), np.int64), np.empty((101, 50), np.float32)
    _native.best_rows(queries=queries, table=table, **none, left_out=None, ids=ids, scores=best, num_threads=2)
    assert np.array_equal(ids, np.argsort(-scores, axis=1, kind="stable")[:, :50])
    digest.update(ids.tobytes() + best.tobytes())
    nan = np.full_like(queries, np.nan)
    nan[:7] = 0
    assert _native.count_above(queries=nan, answers=answers, table=table, **none, ids=None, **out, num_threads=2) == 7
sys.stdout.write(f"{digest.hexdigest()}\n")
