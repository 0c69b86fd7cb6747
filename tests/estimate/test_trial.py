"""What is left of a stage, by arithmetic; what was measured is measured once."""

import json

import pytest

from graphmill.base.errors import UserError
from graphmill.estimate.cache import Estimates
from graphmill.estimate.trial import Trial, cost_of, keep_trial, known_trial, num_checkpoints, trial_of, whole_epochs
from graphmill.record.metrics import write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.batch import TriedSize
from graphmill.spec.calendar import BucketedBatches
from graphmill.spec.pipeline import SourceSpec, StageSpec
from graphmill.spec.plan import Plan
from graphmill.spec.weights import InitialWeights

FIRST = StageSpec(name="first")
SECOND = StageSpec(name="second", init_from=SourceSpec(stage="first"))


def trial(**changed) -> Trial:
    values = {
        "steps": 10, "step_s": 2.0, "step_spread_s": (1.9, 2.1), "epoch_s": 0.25, "val_s": 3.0, "test_s": 4.0,
        "start_s": 8.0, "process_s": 2.0, "save_s": 0.5, "finish_s": 0.25,
        "train_h": 0.0, "evaluate_h": 0.0, "peak_rss_mib": 400.0,
    }  # fmt: skip
    return Trial(**{**values, **changed})


def test_a_whole_stage(make_plan):
    plan = make_plan(ranks=2, epochs=2)  # 3 steps of each rank an epoch
    cost = cost_of(FIRST, plan, trial())
    aside = 2 * 3.0 + 4.0 + 2 * 0.5 + 2 * 0.25
    assert plan.last_step == 6
    assert cost.work_s.low == pytest.approx(0.9 * (6 * 2 + aside))
    assert cost.work_s.high == pytest.approx(1.1 * (6 * 2 + aside))
    assert (cost.start_s, cost.piece_s) == (8.0, 4.0)
    assert cost.end_s == pytest.approx(2 + 1.5 * (4.0 + 0.5 + 2.0)), "the ranks keep back so much of their job's time"
    assert (cost.memory_mib.low, cost.memory_mib.high) == (pytest.approx(720), pytest.approx(880)), "of two ranks"
    assert (cost.shape.hosts, cost.shape.ranks_per_host, cost.shape.device) == (1, 2, "cpu")
    on_two = cost_of(FIRST, plan.model_copy(update={"hosts": 2}), trial())
    assert (on_two.shape.ranks_per_host, on_two.memory_mib.high) == (1, pytest.approx(440)), "of a host"


def test_a_trial_of_batches_of_several_sizes_is_of_whole_epochs(make_plan, monkeypatch):
    plan = make_plan(epochs=4)  # 6 steps an epoch
    length = plan.calendar.length(0)
    assert [whole_epochs(plan, steps) for steps in (1, length, 10**6)] == [1, length, plan.last_step]
    monkeypatch.setattr(Plan, "batches", property(lambda _: BucketedBatches((5, 3), 4, 1)))
    asked = [1, length, length + 1, 2 * length, 10**6]
    assert [whole_epochs(plan, steps) for steps in asked] == [length, length, 2 * length, 2 * length, plan.last_step]


def test_uneven_steps_widen_the_interval(make_plan):
    cost = cost_of(FIRST, make_plan(), trial(step_spread_s=(0.5, 9.0)))
    assert cost.work_s.low == pytest.approx(6 * 0.5 + 11.5)
    assert cost.work_s.high == pytest.approx(6 * 9 + 11.5)


def test_weights_from_elsewhere_are_evaluated_first(make_plan):
    plan = make_plan()
    first, second = (cost_of(stage, plan, trial()) for stage in (FIRST, SECOND))
    assert second.work_s.high - first.work_s.high == pytest.approx(1.1 * 3.0)
    assert second.needs == ("first",)


def test_a_job_takes_more_and_so_do_evaluations_on_all_sets(make_plan):
    plan = make_plan()
    alone, in_job = cost_of(FIRST, plan, trial()), cost_of(FIRST, plan, trial(), in_job=True)
    assert in_job.start_s - alone.start_s == pytest.approx(2.0 / 2 + 0.5), "the driver and the first checkpoint"
    on_all = cost_of(FIRST, plan, trial(), num_sets=3)
    assert on_all.work_s.high - alone.work_s.high == pytest.approx(1.1 * (2.0 + 3 * 3.0))


def test_baselines_that_no_run_has_scored_count(make_plan):
    plan, scored = make_plan(), trial(baselines_s={"labels": 30.0, "logistic": 1.0})
    without, new = cost_of(FIRST, plan, trial()), cost_of(FIRST, plan, scored)
    assert new.work_s.high - without.work_s.high == pytest.approx(1.1 * 31.0)
    assert (new.piece_s, new.end_s) == (30.0, without.end_s), "a baseline is one piece, which the ranks do not wait for"
    one_kept = cost_of(FIRST, plan, scored, kept=["labels"])
    assert one_kept.work_s.high - without.work_s.high == pytest.approx(1.1 * 1.0)
    assert one_kept.piece_s == without.piece_s


def test_the_test_split_and_the_baselines_after_it_are_told_apart(make_plan, tmp_path):
    plan = make_plan(epochs=1)
    folder = RunFolder.create(plan, tmp_path)
    folder.begin_attempt(resumed=False, command=["test"])
    write_metrics(folder.metrics_path, [{"epoch": 1, "eval_s": 3.0}], plan.kind.columns)
    sync = {"epoch": 1, "parameter_hash": "", "replicas_agree": True, "loss_sum": 0.0}
    saved = {"epoch": 1, "step": 0, "steps_done": 3}
    begun = folder.attempts()[0].time
    events = [
        {"kind": "evaluate", "time": 1, "set": "val/majority"},  # scored before the first step: of the start
        {"kind": "evaluate", "time": 1.5, "set": "test/majority"},
        *({"kind": "sync", "time": time, "steps_done": step, **sync} for step, time in enumerate((4, 6, 8), 1)),
        {"kind": "evaluate", "time": 11, "set": "val"},
        {"kind": "checkpoint", "time": 11.5, **saved},
        {"kind": "evaluate", "time": 15.5, "set": "test"},
        {"kind": "evaluate", "time": 45, "set": "val/labels"},
        {"kind": "evaluate", "time": 45.5, "set": "test/labels"},
        {"kind": "evaluate", "time": 47.5, "set": "val/logistic"},
        {"kind": "evaluate", "time": 48, "set": "test/logistic"},
        {"kind": "finish", "time": 48.25, "steps_done": 3, "status": "done", "peak_rss_mib": 300},
    ]
    evaluated = {"epoch": 1, "measures": {}}
    lines = [json.dumps({"rank": 0, **evaluated, **event, "time": begun + event["time"]}) for event in events]
    folder.events_dir.mkdir(exist_ok=True)
    folder.events_path(0).write_text("".join(f"{line}\n" for line in lines))
    found = trial_of(folder, plan, 3, ended=begun + 49)
    assert (found.step_s, found.val_s, found.test_s) == pytest.approx((2.0, 3.0, 4.0))
    assert found.baselines_s == pytest.approx({"labels": 30.0, "logistic": 2.5})
    assert (found.start_s, found.save_s, found.finish_s) == pytest.approx((2.0, 0.5, 0.75))


def test_checkpoints_between_epochs_count(make_plan):
    plan = make_plan(epochs=2)
    often = plan.model_copy(update={"checkpoint": plan.checkpoint.model_copy(update={"every_steps": 2})})
    assert num_checkpoints(plan) == 2
    assert num_checkpoints(often) == 2 + often.last_step // 2
    if_better = plan.model_copy(update={"checkpoint": plan.checkpoint.model_copy(update={"every_epochs": 0})})
    assert num_checkpoints(if_better) == 2, "one of each evaluation may be better"


def test_what_is_saved_is_not_predicted_again(make_plan):
    plan = make_plan()
    assert cost_of(SECOND, plan, trial(), 3).work_s.high == pytest.approx(1.1 * (3 * 2 + 3.0 + 4.0 + 0.5 + 0.25))
    assert cost_of(FIRST, plan, trial(), plan.last_step).work_s.high == pytest.approx(1.1 * 4.0), "the test split"


def test_what_was_measured_is_found_again(make_plan, tmp_path):
    plan = make_plan("p/a")
    assert known_trial(Estimates(tmp_path), plan) is None
    keep_trial(Estimates(tmp_path), plan, trial())
    again = Estimates(tmp_path, keep=False)
    assert known_trial(again, make_plan("q/b")) == trial(), "of another name, but the same work"
    longer = make_plan("p/a", epochs=3)
    assert known_trial(again, longer) is None
    keep_trial(again, longer, trial())
    assert known_trial(again, longer) == trial()
    assert known_trial(Estimates(tmp_path, keep=False), longer) is None, "it was not to be kept"


def test_what_another_version_measured_is_measured_again(make_plan, tmp_path, monkeypatch):
    keep_trial(Estimates(tmp_path), make_plan("p/a"), trial())
    monkeypatch.setattr("graphmill.estimate.cache.version", lambda package: {"torch": "9.9"}.get(package, "0.1.0"))
    assert known_trial(Estimates(tmp_path), make_plan("p/a")) is None


def test_with_other_sources_it_is_another_measurement(make_plan, tmp_path):
    def taught(checksum: str, path: str = "w", **names):
        weights = InitialWeights(source=path, path=path, checksum=checksum, include=(), exclude=())
        return make_plan("p/pupil").model_copy(update={"sources": {"teacher": weights, **names}})

    kept = Estimates(tmp_path)
    keep_trial(kept, make_plan("p/pupil"), trial())
    assert known_trial(kept, taught("1")) is None, "measured without its teacher, which it can do without"
    keep_trial(kept, taught("1"), trial(step_s=24.0))
    assert known_trial(kept, taught("1", path="elsewhere")) == trial(step_s=24.0)
    assert known_trial(kept, taught("2")) is None
    begun = taught("1").model_copy(update={"init_from": taught("3").sources["teacher"]})
    assert known_trial(kept, begun) == trial(step_s=24.0), "which weights it begins with costs nothing"


def test_a_damaged_file_is_named_and_one_of_another_version_is_not_taken(make_plan, tmp_path):
    kept, plan = Estimates(tmp_path), make_plan("p/a")
    kept.keep(trial(), plan)
    path = kept.path(plan)
    assert kept.find(TriedSize, plan) is None
    path.write_text("{")
    with pytest.raises(UserError, match=path.name):
        kept.find(Trial, plan)
