"""Rules of verify that no damage to a whole run tries: they are asked of events made here."""

from types import SimpleNamespace

import pytest

from graphmill.record.documents import Outcome
from graphmill.record.events import Evaluation, EventWriter, Finish, Start, Sync
from graphmill.record.run_folder import RunFolder
from graphmill.spec.early_stopping import EarlyStoppingSpec
from graphmill.tasks.traffic.page import KIND as TRAFFIC
from graphmill.verify.events import EventLog, read_event_log
from graphmill.verify.job import _stopped_early
from graphmill.verify.metrics import _best


def start(steps_done: int) -> Start:
    return Start(
        resumed=steps_done > 0, steps_done=steps_done, parameters=1, hostname="h", world_size=2, backend="gloo",
        plan_hash="0", process_s=0.0, data="",
    )  # fmt: skip


def sync(steps_done: int) -> Sync:
    return Sync(epoch=1, steps_done=steps_done, parameter_hash=str(steps_done), replicas_agree=True, loss_sum=0.0)


def test_a_resume_forgets_the_syncs_after_the_step_that_it_began_with_and_no_others(tmp_path):
    folder = RunFolder(tmp_path)
    events = EventWriter(folder.events_path(1), rank=1)
    for event in (start(0), sync(2), sync(4), sync(6), start(4), sync(8)):
        events.write(event)
    log = read_event_log(folder, 1)
    assert log.problem == ""
    assert list(log.syncs) == [2, 4, 8]


@pytest.mark.parametrize("then", [None, start(4), sync(8)], ids=["nothing", "another start", "another sync"])
def test_a_rank_has_finished_only_where_that_is_the_last_it_said(tmp_path, then):
    with EventWriter(RunFolder(tmp_path).events_path(0), rank=0) as events:
        for event in (start(0), sync(4), Finish(steps_done=4, status="done"), then):
            if event is not None:
                events.write(event)
    assert (read_event_log(RunFolder(tmp_path), 0).finish is None) == (then is not None)


def test_the_best_epoch_of_errors_is_the_one_with_the_lowest():
    name = TRAFFIC.measures[0].name
    assert not TRAFFIC.measures[0].higher_is_better
    log = EventLog(0)
    for epoch, value in ((0, 1.0), (1, 3.0), (2, 2.0), (3, 2.5)):  # epoch 0: weights of another run, which do not count
        log.val[epoch] = Evaluation(epoch=epoch, set="val", measures={name: value})
    plan = SimpleNamespace(kind=TRAFFIC)
    assert list(_best(plan, {"epoch": 2, name: 2.0}, log)) == []
    (problem,) = _best(plan, {"epoch": 1, name: 3.0}, log)
    assert f"best {name} is 3.0" in problem
    (problem,) = _best(plan, {"epoch": 3, name: 2.0}, log)
    assert "epoch 3" in problem


@pytest.mark.parametrize(("claimed", "told"), [(5.0, 0), (4.0, 0), (4.5, 1)], ids=["epoch's", "best of any", "neither"])
def test_other_measures_are_the_best_epochs_or_as_in_older_runs_the_best_of_any(claimed, told):
    of_epochs = {1: {"mae": 3.0, "rmse": 4.0}, 2: {"mae": 2.0, "rmse": 5.0}}
    log = EventLog(0)
    log.val |= {epoch: Evaluation(epoch=epoch, set="val", measures=values) for epoch, values in of_epochs.items()}
    found = list(_best(SimpleNamespace(kind=TRAFFIC), {"epoch": 2, "mae": 2.0, "rmse": claimed}, log))
    assert len(found) == told


def test_patience_that_is_over_with_the_last_epoch_is_no_early_stop():
    measure = TRAFFIC.measures[0].name
    log = EventLog(0)
    for epoch, value in ((0, 0.5), (1, 1.0), (2, 2.0), (3, 3.0)):
        log.val[epoch] = Evaluation(epoch=epoch, set="val", measures={measure: value})

    def problems(planned_epochs: int, *, stopped_early: bool) -> list[str]:
        calendar = SimpleNamespace(num_epochs=planned_epochs)
        planned = SimpleNamespace(early_stopping=EarlyStoppingSpec(patience=2), calendar=calendar)
        evidence = SimpleNamespace(plan=SimpleNamespace(kind=TRAFFIC), planned=planned, throughout=[log])
        ended = {"status": "done", "exit_code": 0, "epochs": 3, "steps_per_rank": 9, "wall_s": 1.0}
        return list(_stopped_early(evidence, Outcome(**ended, stopped_early=stopped_early)))

    assert problems(3, stopped_early=False) == problems(4, stopped_early=True) == []
    assert len(problems(3, stopped_early=True)) == len(problems(4, stopped_early=False)) == 1
