"""What is left of stages, by trials that were kept."""

import pytest

from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.predict import predict
from graphmill.estimate.cache import Estimates
from graphmill.estimate.trial import Trial, keep_trial
from graphmill.record.kept_baselines import KeptBaselines
from graphmill.spec.pipeline import Pipeline, StageSpec


def test_a_baseline_that_a_run_in_the_logs_root_has_scored_is_not_predicted(make_plan, tmp_path):
    plan, stage, logs = make_plan("p/one"), StageSpec(name="one"), tmp_path / "logs"
    taking = {"labels": 30.0, "logistic": 10.0}
    trial = Trial(20, 1.0, (1.0, 1.0), 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 100.0, taking)
    keep_trial(Estimates(logs), plan, trial)

    def expected_s() -> float:
        (found,) = predict(Stages(Pipeline("p", {}, (), "own", (stage,)), logs), [stage], [plan], Estimates(logs))
        return found.cost.expected_s

    before = expected_s()
    KeptBaselines.of(logs, plan.task).keep("labels", {"test": {"micro_f1": 0.5}})
    assert before - expected_s() == pytest.approx(30.0)
