"""Spans: seconds by name, also of one that raises, and listeners that hear of each."""

import pytest

from graphmill.runtime import spans as module
from graphmill.runtime.spans import Spans


@pytest.fixture
def clock(monkeypatch):
    hands = [100.0]
    monkeypatch.setattr(module, "perf_counter", lambda: hands[0])
    return hands


def test_seconds_add_up_by_name_and_include_what_is_inside(clock):
    spans = Spans()
    for _ in range(2):
        with spans("step") as step:
            clock[0] += 1
            with spans("sync"):
                clock[0] += 0.25
        assert step.seconds == 1.25
    assert spans.seconds == {"step": 2.5, "sync": 0.5}


def test_a_span_that_raises_counts_and_is_heard(clock):
    spans, heard = Spans(), []
    spans.listeners.append(lambda *span: heard.append(span))

    def fails() -> None:
        with spans("gather"):
            clock[0] += 2
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fails()
    assert spans.seconds["gather"] == 2
    assert heard == [("gather", 100.0, 102.0)]


def test_a_listener_hears_inner_spans_before_the_outer(clock):
    spans, heard = Spans(), []
    spans.listeners.append(lambda name, began, ended: heard.append((name, ended - began)))
    with spans("evaluate"):
        with spans("sync"):
            clock[0] += 1
        clock[0] += 1
    assert heard == [("sync", 1.0), ("evaluate", 2.0)]
