"""Where steps went, from spans alone: phases add up to the step, whatever is nested in what, and on which thread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.record.phases import OTHER, DurationSpread, SpanRecord, StepSpan, read_profile, summarised

STEP, BEHIND = 11, 12  # threads


def spans_of(*spans: tuple[str, float, float], thread: int = STEP) -> list[SpanRecord]:
    return [SpanRecord(name, thread, began, ended) for name, began, ended in spans]


def means(spans: list[SpanRecord], *steps: StepSpan) -> dict[tuple[str, bool], float]:
    _, phases = summarised(spans, steps, thread=STEP)
    return {(phase.name, phase.background): phase.per_step.mean_s for phase in phases}


def test_what_is_nested_counts_once():
    spans = spans_of(
        ("sample", 0, 2), ("wait", 0, 3), ("forward", 4, 6), ("sync", 8, 9), ("optimizer", 7, 10), ("step", 3.5, 10.5)
    )
    found = means(spans, StepSpan(0, 11))
    assert found == {
        ("sample", False): 2,
        ("wait", False): 1,
        ("forward", False): 2,
        ("sync", False): 1,
        ("optimizer", False): 2,
        (OTHER, False): 3,
    }


def test_an_evaluation_between_two_steps_is_time_of_neither():
    spans = spans_of(("wait", 0, 1), ("sync", 3, 4), ("evaluate", 2, 7), ("checkpoint", 7, 8))
    assert means(spans, StepSpan(0, 9)) == {("wait", False): 1, (OTHER, False): 2}


def test_batches_made_behind_a_step_are_told_apart_and_add_nothing_to_it():
    spans = spans_of(("wait", 0, 1), ("forward", 1, 10)) + spans_of(("gather", 0.5, 3), ("gather", 4, 5), thread=BEHIND)
    step, phases = summarised(spans, [StepSpan(0, 10)], thread=STEP)
    assert step.mean_s == 10
    assert next(phase for phase in phases if phase.background).per_step == DurationSpread.of([2.5, 1.0])


def test_a_phase_that_some_steps_lack_took_no_time_in_those():
    spans = spans_of(("wait", 0, 1), ("sync", 1, 2), ("wait", 2, 3))
    assert means(spans, StepSpan(0, 2), StepSpan(2, 4))["sync", False] == 0.5


@st.composite
def nested_spans(draw) -> list[SpanRecord]:
    """Spans as context managers make them: properly nested, on a grid that floats hold exactly."""
    found: list[SpanRecord] = []
    names = st.sampled_from(["wait", "sample", "forward", "backward", "sync", "optimizer", "step", "evaluate"])

    def fill(begin: int, end: int, depth: int) -> None:
        at = begin
        while depth and end - at > 2 and draw(st.booleans()):
            began = draw(st.integers(at, end - 1))
            ended = draw(st.integers(began + 1, end))
            fill(began, ended, depth - 1)
            found.append(SpanRecord(draw(names), STEP, float(began), float(ended)))
            at = ended

    fill(0, 64, 3)
    return found


@given(nested_spans())
def test_phases_add_up_to_the_step(spans):
    step, phases = summarised(spans, [StepSpan(0.0, 64.0)], thread=STEP)
    assert sum(phase.per_step.mean_s for phase in phases) == step.mean_s
    assert all(phase.per_step.mean_s >= 0 for phase in phases)
    outermost = [span for span in spans if span.name == "evaluate"]
    if not outermost:
        assert step.mean_s == 64


def test_quartiles():
    assert DurationSpread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == DurationSpread(mean_s=3, median_s=3, low_s=2, high_s=4)
    assert DurationSpread.of([2.0]) == DurationSpread(mean_s=2, median_s=2, low_s=2, high_s=2)


def test_a_folder_without_a_profile_says_how_to_make_one(tmp_path):
    with pytest.raises(UserError, match=r"phases\.json") as refused:
        read_profile(tmp_path)
    assert "train.profile=true" in refused.value.fix
