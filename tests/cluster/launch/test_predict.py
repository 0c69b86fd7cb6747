"""What is left of stages, by trials that were kept."""

import pytest

from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.predict import predict
from graphmill.estimate.cache import Estimates
from graphmill.estimate.trial import Trial, keep_trial
from graphmill.record.kept_baselines import KeptBaselines
from graphmill.spec.pipeline import Pipeline, StageSpec


def expected_s(logs, plan, trial: Trial, **asked) -> float:
    """Of a pipeline of one stage, by a trial that is kept."""
    stage, estimates = StageSpec(name="one"), Estimates(logs)
    keep_trial(estimates, plan, trial)
    (found,) = predict(Stages(Pipeline("p", {}, (), "own", (stage,)), logs), [stage], [plan], estimates, **asked)
    return found.cost.expected_s


def test_in_a_job_its_driver_and_a_first_checkpoint_count(make_plan, tmp_path):
    plan = make_plan("p/one")
    trial = Trial(20, 1.0, (1.0, 1.0), 0.0, 0.0, 0.0, 1.0, 4.0, 0.5, 0.0, 0.0, 0.0, 100.0)
    here, in_job = (expected_s(tmp_path, plan, trial, in_job=each) for each in (False, True))
    assert in_job - here == pytest.approx(4.0 / 2 + 0.5)


def test_a_baseline_that_a_run_in_the_logs_root_has_scored_is_not_predicted(make_plan, tmp_path):
    plan, taking = make_plan("p/one"), {"labels": 30.0, "logistic": 10.0}
    trial = Trial(20, 1.0, (1.0, 1.0), 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 100.0, taking)
    before = expected_s(tmp_path, plan, trial)
    KeptBaselines.of(tmp_path, plan.task).keep("labels", {"test": {"micro_f1": 0.5}})
    assert before - expected_s(tmp_path, plan, trial) == pytest.approx(30.0)
