"""Graphs divided into splits: each class alike, nothing in two, nothing left out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphmill.tasks.graph_classification.data.folds import at_random, in_folds

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=300).map(np.array)


@given(LABELS, st.integers(3, 12), st.integers(0, 2**31))
def test_every_graph_is_tested_once_and_validated_once(labels, folds, seed):
    codes = np.stack([in_folds(labels, folds, fold, seed) for fold in range(folds)])
    assert ((codes == 2).sum(axis=0) == 1).all()
    assert ((codes == 1).sum(axis=0) == 1).all()
    assert np.array_equal(codes[0] == 1, codes[1] == 2), "the next fold is for validation"
    for label in np.unique(labels):
        counts = (codes[:, labels == label] == 2).sum(axis=1)
        assert counts.max() - counts.min() <= 1
    sizes = (codes == 2).sum(axis=1)
    assert sizes.max() - sizes.min() <= 1


@given(LABELS, st.integers(0, 2**31))
def test_a_random_split_is_a_fifth_of_each_class_but_for_rounding(labels, seed):
    codes = at_random(labels, seed)
    assert np.array_equal(codes, at_random(labels, seed))
    for label in np.unique(labels):
        number, of_class = (labels == label).sum(), codes[labels == label]
        for code, share in ((0, 0.8), (1, 0.1), (2, 0.1)):
            assert abs((of_class == code).sum() - share * number) < 2


def test_seeds_divide_differently():
    labels = np.zeros(100, np.int64)
    assert not np.array_equal(in_folds(labels, 10, 0, 1), in_folds(labels, 10, 0, 2))
