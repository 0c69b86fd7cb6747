"""Whether columns of dense features are of unlike scale."""

import numpy as np
import pytest

from graphmill.graph.features import dense, stored_as
from graphmill.graph.statistics import scales_differ

DRAW = np.random.default_rng(0)
NORMAL = DRAW.normal(size=(500, 4))


@pytest.mark.parametrize(
    ("x", "differ"),
    [
        (NORMAL, False),
        (NORMAL * [1, 1, 1, 9.0], False),
        (NORMAL * [1, 1, 1, 20.0], True),
        (NORMAL * [1, 1, 1, 0.01], True),
        (NORMAL + np.array([0, 0, 2000.0, 0]), True),  # years
        (np.column_stack([NORMAL, np.full(500, 7.0)]), False),  # a constant column has no scale
        (DRAW.poisson([0.01, 3, 900], (500, 3)), False),  # counts
        ((DRAW.random((500, 6)) < 0.1).astype(float), False),  # marks
        (np.zeros((500, 2)), False),
    ],
)
def test_by_columns(x, differ):
    features = dense(x.astype(np.float32))
    assert scales_differ(features) is differ
    assert scales_differ(stored_as(features, "float16")) is differ


def test_rows_are_looked_at_evenly(monkeypatch):
    monkeypatch.setattr("graphmill.graph.statistics._ROWS", 50)
    assert scales_differ(dense((NORMAL * [1, 1, 1, 20.0]).astype(np.float32)))
