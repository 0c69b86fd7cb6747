"""When a run stops early, against looking at all evaluations at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from graphmill.spec.columns import Measure
from graphmill.spec.early_stopping import EarlyStoppingSpec, Patience
from graphmill.spec.experiment import TrainSpec


def number_of_evaluations(values: list[float], measure: Measure, spec: EarlyStoppingSpec) -> int | None:
    """How many evaluations the run makes; None: patience is never over."""
    improved_at, reference = 0, values[0]
    for place, value in enumerate(values):
        gain = value - reference if measure.higher_is_better else reference - value
        if gain > spec.min_delta:
            improved_at, reference = place, value
        if place - improved_at >= spec.patience:
            return place + 1
    return None


@given(
    st.lists(st.integers(0, 20).map(float), min_size=1, max_size=30),
    st.booleans(),
    st.integers(1, 5),
    st.integers(0, 4).map(float),
)
def test_it_is_as_seen_from_the_end(values, higher, patience, min_delta):
    measure, spec = Measure("m", "m", higher), EarlyStoppingSpec(patience=patience, min_delta=min_delta)
    state, made = Patience(), None
    for number, value in enumerate(values, start=1):
        state = Patience.model_validate_json(
            state.after(value, measure, spec).model_dump_json()
        )  # as a checkpoint does
        if made is None and state.is_over(spec):
            made = number
    assert made == number_of_evaluations(values, measure, spec)


def test_what_is_no_number_is_no_improvement():
    measure, spec = Measure("m", "m", higher_is_better=False), EarlyStoppingSpec(patience=2)
    state = Patience().after(1.0, measure, spec).after(float("nan"), measure, spec)
    assert state == Patience(reference=1.0, num_stale=1)
    assert Patience().after(float("nan"), measure, spec) == Patience(num_stale=1)


def test_it_needs_evaluations():
    with pytest.raises(ValidationError, match="evaluate_every_epochs is 0"):
        TrainSpec.model_validate({"evaluate_every_epochs": 0, "early_stopping": {"patience": 1}})
