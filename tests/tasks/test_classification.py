"""Measures of a classification against scikit-learn's: equal to the last bit, whatever classes there are."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score
from slow_cases import num_examples

from graphmill.tasks.classification import measures, tally

NUM_CLASSES = (1, 2, 7, 1000)


@st.composite
def guessed(draw):
    """Number of classes, labels and guesses; each drawn from a few of the classes, so that there are gaps."""
    num_classes = draw(st.sampled_from(NUM_CLASSES))
    classes = st.integers(0, num_classes - 1)
    some = st.sampled_from(draw(st.lists(classes, min_size=1, max_size=12)))
    pairs = draw(st.lists(st.tuples(some, some | classes), min_size=1, max_size=60))
    labels, guesses = np.array(pairs).T
    return num_classes, labels, guesses


def measured(num_classes: int, labels: np.ndarray, guesses: np.ndarray, parts: int = 1) -> dict[str, float]:
    """As `evaluate` adds up the tallies of `parts` ranks."""
    total = torch.zeros(1 + num_classes**2, dtype=torch.float64)
    for mine in np.array_split(np.arange(len(labels)), parts):
        logits = torch.zeros(len(mine), num_classes)
        logits[range(len(mine)), guesses[mine]] = 1
        total += tally(logits, torch.from_numpy(labels[mine]))
    return measures(total, num_classes).values


@settings(max_examples=num_examples(40))
@given(guessed(), st.integers(1, 3))
@example((31, np.array([0, 10, 20, 30]), np.array([0, 10, 20, 30])), 1)  # numbers with gaps
@example((1000, np.arange(1000), np.arange(1000) // 3), 2)
@example((5, np.array([4, 4, 4]), np.array([1, 1, 1])), 1)  # nothing is right
@example((3, np.array([1]), np.array([1])), 1)  # the only class of the split
def test_scikit_learn_says_the_same(case, parts):
    num_classes, labels, guesses = case
    found = measured(num_classes, labels, guesses, parts)
    macro = float(f1_score(labels, guesses, average="macro", zero_division=0))
    of_all = float(f1_score(labels, guesses, labels=range(num_classes), average="macro", zero_division=0))
    assert found == {
        "micro_f1": float(accuracy_score(labels, guesses)),
        "macro_f1": macro,
        "macro_f1_all_classes": of_all,
    }
    seen = len(np.union1d(labels, guesses))
    assert found["macro_f1_all_classes"] == pytest.approx(macro * seen / num_classes, rel=1e-12)
