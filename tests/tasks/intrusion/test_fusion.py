"""Stacked scores, against scikit-learn's logistic regression."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.fusion import Stacking


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(0, 40), st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=60, deadline=None)
def test_it_is_the_regression_of_scikit_learn(seed, num_scores, apart, unit):
    rng = np.random.default_rng(seed)
    is_attack = rng.random(50) < 0.3
    is_attack[:2] = [True, False]
    columns = {f"score {n}": unit * (rng.normal(size=50) + apart * is_attack) for n in range(num_scores)}
    found = Stacking.fit(columns, is_attack)
    x = np.stack(list(columns.values()), axis=1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    peer = LogisticRegression(C=1, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(x, is_attack)
    assert found.weight == pytest.approx(peer.coef_[0], abs=1e-5)
    assert found.bias == pytest.approx(peer.intercept_[0], abs=1e-5)
    assert found.probability(columns) == pytest.approx(peer.predict_proba(x)[:, 1], abs=1e-6)


def test_it_is_calibrated_where_it_was_fitted():
    """The mean probability is the share of attacks: the gradient of the bias, which nothing penalises."""
    rng = np.random.default_rng(0)
    is_attack = rng.random(500) < 0.2
    columns = {"a": rng.normal(size=500) + is_attack, "b": rng.normal(size=500)}
    assert Stacking.fit(columns, is_attack).probability(columns).mean() == pytest.approx(is_attack.mean(), abs=1e-9)


def test_scores_that_do_not_vary_or_tell_all():
    is_attack = np.arange(40) >= 30
    found = Stacking.fit({"same": np.ones(40), "tells all": is_attack * 1e3}, is_attack)
    assert found.weight[0] == 0
    assert ((found.probability({"same": np.ones(40), "tells all": is_attack * 1e3}) > 0.5) == is_attack).all()


def test_scores_are_taken_by_name():
    is_attack = np.array([True, False, True, False])
    a, b = np.array([1.0, 0.0, 2.0, 0.5]), np.array([0.0, 1.0, 0.0, 3.0])
    found = Stacking.fit({"a": a, "b": b}, is_attack)
    assert (found.probability({"b": b, "a": a}) == found.probability({"a": a, "b": b})).all()
    with pytest.raises(ValueError, match="lacks b"):
        found.probability({"a": a})
    with pytest.raises(ValueError, match="finite"):
        found.probability({"a": a, "b": np.array([np.nan, 0, 0, 0])})


@pytest.mark.parametrize("is_attack", [[True, True], [False, False]])
def test_windows_of_one_kind_fit_nothing(is_attack):
    with pytest.raises(UserError, match=f"{sum(is_attack)} are attacked"):
        Stacking.fit({"a": np.array([0.0, 1.0])}, np.array(is_attack))
