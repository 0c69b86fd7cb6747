"""Measures of several labels per item against scikit-learn's and OGB's; the loss against torch's."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import f1_score, roc_auc_score

from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.spec.classification import CrossEntropySpec
from graphmill.tasks.multilabel import (
    LabelsLoss,
    measures,
    measures_of_guesses,
    positive_weights,
    predicted,
    roc_auc,
    tally,
)

CPU = torch.device("cpu")


@st.composite
def judged(draw):
    """Truths and logits of one shape, some logits equal, some labels had by all or none."""
    shape = (draw(st.integers(1, 30)), draw(st.integers(2, 6)))
    truths = draw(arrays(np.int8, shape, elements=st.integers(0, 1)))
    logits = draw(arrays(np.float32, shape, elements=st.sampled_from([-3.0, -0.5, 0.0, 0.25, 2.0])))
    return truths, logits


@given(judged(), st.integers(1, 3))
@example((np.zeros((4, 3), np.int8), np.full((4, 3), -1, np.float32)), 2)  # nothing is true, nothing is said
@example((np.ones((1, 2), np.int8), np.full((1, 2), 1, np.float32)), 3)  # ranks without an item
def test_scikit_learn_says_the_same(case, parts):
    truths, logits = case
    shares = np.array_split(np.arange(len(truths)), parts)
    total = sum(tally(torch.from_numpy(logits[mine]), torch.from_numpy(truths[mine])) for mine in shares)
    found, guesses = measures(total), logits > 0
    of = {name: float(f1_score(truths, guesses, average=name, zero_division=0)) for name in ("micro", "macro")}
    assert found.values == {"micro_f1": of["micro"], "macro_f1": of["macro"], "macro_f1_all_classes": of["macro"]}
    assert found.num_seeds == len(truths)
    assert measures_of_guesses(guesses, truths) == found.values
    exact = torch.nn.BCEWithLogitsLoss()(torch.from_numpy(logits).double(), torch.from_numpy(truths).double())
    assert found.loss == pytest.approx(float(exact), rel=1e-12)


@given(judged())
def test_the_area_is_that_of_ogbs_evaluator(case):
    """Which takes the mean of scikit-learn's over the labels that some items have and others not."""
    truths, logits = case
    has_both = [label for label in range(truths.shape[1]) if 0 < truths[:, label].sum() < len(truths)]
    found = roc_auc(torch.from_numpy(logits), torch.from_numpy(truths))
    if not has_both:
        assert np.isnan(found)
        return
    expected = np.mean([roc_auc_score(truths[:, label], logits[:, label]) for label in has_both])
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_label_is_predicted_over_one_half():
    logits = torch.tensor([[-1e-7, 0.0, 1e-7]])
    assert predicted(logits).tolist() == [[False, False, True]]
    assert (logits.sigmoid() > 0.5).tolist()[0][:2] == [False, False]


def labels_of(*rows: str) -> torch.Tensor:
    return torch.tensor([[int(each) for each in row] for row in rows], dtype=torch.int8)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("none", None), ("balanced", [3.0, 1 / 3, 1.0, 0.0]), ((1.0, 2.0, 0.0, 5.0), [1.0, 2.0, 0.0, 5.0])],
)
def test_weights_of_ones_by_label(asked, expected):
    """Balanced: zeros for each one; 1 where no seed has the label, for then it weighs nothing."""
    found = positive_weights(CrossEntropySpec(class_weights=asked), labels_of("1101", "0101", "0101", "0001"), CPU)
    assert (None if found is None else found.tolist()) == (expected and pytest.approx(expected))


@pytest.mark.parametrize("class_weights", ["none", "balanced"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_torchs_summed_over_seeds(class_weights, smoothing):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 4, generator=generator, requires_grad=True)
    labels = (torch.rand(9, 4, generator=generator) < 0.4).to(torch.int8)
    asked = CrossEntropySpec(class_weights=class_weights, label_smoothing=smoothing)
    weights = positive_weights(asked, labels, CPU)
    loss = LabelsLoss(asked, weights, None)
    found = loss.sum(EvaluationSeeds(SeedIds(np.arange(9))), logits, labels)
    truths = labels.float() * (1 - smoothing) + smoothing / 2
    exact = torch.nn.BCEWithLogitsLoss(pos_weight=weights)(logits, truths)  # a mean over seeds and labels
    assert (found / 9).item() == pytest.approx(exact.item(), rel=1e-6)
    (ours,) = torch.autograd.grad(found / 9, logits)
    (torchs,) = torch.autograd.grad(exact, logits)
    assert torch.allclose(ours, torchs, rtol=1e-5, atol=1e-8)
