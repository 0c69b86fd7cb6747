"""A run beside its baselines: which of them it loses to, by which measure."""

import math

import pytest

from graphmill.record.evaluations import Evaluated
from graphmill.record.judged import lost_to, not_better_than_it_began
from graphmill.spec.kinds import find_kind

NODES, FORECASTS = find_kind("node_classification"), find_kind("traffic")


@pytest.mark.parametrize(
    ("run", "best"),
    [(0.70, "label propagation"), (0.62, "label propagation"), (0.80, None), (0.91, None), (math.nan, None)],
)
def test_a_run_loses_to_the_best_of_those_that_beat_it(run, best):
    beside = {"majority": {"micro_f1": 0.3}, "logistic": {"micro_f1": 0.65}, "labels": {"micro_f1": 0.80}}
    lost = lost_to(NODES, {"micro_f1": run}, beside)
    assert (lost.baseline if lost else None) == best
    if lost:
        assert lost.num_better == (2 if run < 0.65 else 1)
        assert "0.8000" in str(lost)


def test_lower_errors_are_better():
    name = FORECASTS.primary.name
    beside = {"last_value": {name: 4.0}, "week_before": {name: 3.0}}
    assert lost_to(FORECASTS, {name: 3.5}, beside).best == 3.0
    worst = lost_to(FORECASTS, {name: 4.5}, beside)
    assert (worst.best, worst.num_better) == (3.0, 2)
    assert lost_to(FORECASTS, {name: 2.9}, beside) is None


def test_a_run_does_not_lose_to_a_bound():
    beside = {"oracle": {"dual_gap": 0.0}, "row_minima": {"dual_gap": 0.2}}
    assert lost_to(find_kind("assignment"), {"dual_gap": 0.1}, beside) is None
    assert lost_to(find_kind("assignment"), {"dual_gap": 0.3}, beside).best == 0.2


def test_a_measure_that_baselines_lack_is_not_what_is_compared():
    beside = {"labels": {"macro_f1": 0.5}}
    assert lost_to(NODES, {"micro_f1": 0.1, "macro_f1": 0.6}, beside) is None
    assert lost_to(NODES, {"micro_f1": 0.9, "macro_f1": 0.4}, beside).measure.name == "macro_f1"
    both = {"labels": {"micro_f1": 0.5, "macro_f1": 0.5}}
    assert lost_to(NODES, {"micro_f1": 0.6, "macro_f1": 0.4}, both) is None, "the first that both have decides"
    assert lost_to(NODES, {}, beside) is None
    assert lost_to(NODES, {"micro_f1": 0.1}, {}) is None


@pytest.mark.parametrize(("kind", "worse", "better"), [(NODES, 0.4, 0.6), (FORECASTS, 0.6, 0.4)])
def test_a_run_is_told_where_no_epoch_beats_the_weights_that_it_began_with(kind, worse, better):
    name = kind.measures[0].name

    def told(best: float, *sets: tuple[int, str]) -> str:
        rows = [Evaluated(epoch, of, name, 0.5) for epoch, of in sets]
        return not_better_than_it_began(rows, kind, {"epoch": 3, name: best})

    assert "epoch 3" in told(worse, (0, "val"))
    assert "epoch 3" in told(0.5, (0, "val")), "as good is not better"
    assert told(better, (0, "val")) == ""
    assert told(worse) == told(worse, (1, "val"), (0, "val/majority"), (0, "test")) == "", "it began with none"
    assert not_better_than_it_began([Evaluated(0, "val", name, 0.5)], kind, None) == ""
