"""The loop knows no task: here it trains one of another kind, judged by an error, with targets that may be missing."""

import dataclasses
import math
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rounding import Bounded, assert_near, magnitude
from torch import Tensor, nn

from graphmill.access.draws import SettledDraws
from graphmill.record.events import Checkpoint, Drawn, Evaluation, EventWriter, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.deadline import Deadline
from graphmill.runtime.rank import ALONE
from graphmill.runtime.stop import StopRequest
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.sync.group import Group
from graphmill.sync.pause import Pause, never_pause
from graphmill.tasks.task import Measures
from graphmill.tasks.traffic.page import KIND, TrafficExperiment, TrafficInfo
from graphmill.train import worker
from graphmill.train.checkpoint import CheckpointStore
from graphmill.train.epoch_stats import EpochStats
from graphmill.train.learner import Learner
from graphmill.train.loop import Training
from graphmill.train.resume import restore
from graphmill.train.run_log import Progress, RunLog
from graphmill.train.time_left import NO_DEADLINE, TimeLeft

CPU = torch.device("cpu")
NUM_WINDOWS, BATCH = 50, 8


def plan_of(run_id: str = "run", **train) -> Plan:
    facts = TrafficInfo(
        name="toy", path="/nowhere", checksum="0", synthetic=True, num_train=NUM_WINDOWS, num_sensors=1, num_edges=1,
        num_steps=80, interval_s=300, unit="mph", num_val=10, num_test=10,
    )  # fmt: skip
    train = {"epochs": 4, "batch_size": BATCH, "ranks": 1, "optimizer": {"kind": "adam", "lr": 0.3}, **train}
    experiment = TrafficExperiment.model_validate({"dataset": {"horizon": 1}, "train": train})
    return resolve(experiment, machine=MachineInfo(num_cores=1, num_gpus=0), dataset=facts, run_id=run_id)


@dataclass
class Windows:
    """A batch: rows of a table, and what is to be forecast for them; NaN where nobody read it."""

    x: Tensor
    y: Tensor

    @property
    def num_seeds(self) -> int:
        return len(self.x)


@dataclass
class Readings:
    """y = x · (1, 2, 3), one target in three missing; `val_errors`, where given, is what validation finds in turn."""

    plan: Plan
    val_errors: list[float] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)  # where given, in place of the errors

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(NUM_WINDOWS, 3, generator=generator)
        self.y = self.x @ torch.tensor([1.0, 2.0, 3.0])
        self.y[::3] = torch.nan
        torch.manual_seed(1)
        self.model = nn.Linear(3, 1)
        self.schedule = SeedSchedule.equal(np.arange(NUM_WINDOWS), self.plan.batches, self.plan.seed)

    def batches(self, epoch: int, first_step: int) -> Generator[Windows]:
        for step in range(first_step, self.plan.calendar.steps_in(epoch)):
            rows = torch.from_numpy(self.schedule.seeds(epoch, step, 0).ids)
            yield Windows(self.x[rows], self.y[rows])

    def weights(self, epoch: int, step: int) -> tuple[int, ...]:
        rows = torch.from_numpy(self.schedule.seeds(epoch, step, 0).ids)
        return (int((~self.y[rows].isnan()).sum()),)

    def loss_sum(self, batch: Windows) -> Tensor:
        error = (self.model(batch.x)[:, 0] - batch.y).abs()
        return torch.where(batch.y.isnan(), 0, error).sum()

    @torch.no_grad()
    def evaluate(self, split: str, pause: Pause = never_pause) -> Measures:
        pause()
        known = ~self.y.isnan()
        error = float((self.model(self.x)[:, 0] - self.y)[known].abs().mean())
        if self.val_errors and split == "val":
            error = self.val_errors.pop(0)
        loss = self.val_losses.pop(0) if self.val_losses and split == "val" else error
        return Measures(loss=loss, values={"mae": error, "rmse": 2 * error}, num_seeds=int(known.sum()))


@pytest.fixture
def training_of(tmp_path):
    """Makes what one rank trains with, in a folder of its own; None of it is of node classification."""
    opened = []

    def make(plan: Plan, *, again: bool = False, **fields) -> Training:
        folder = RunFolder.open(tmp_path / plan.run_id) if again else RunFolder.create(plan, tmp_path)
        group = Group(ALONE.rank, ALONE.world_size, CPU)
        task = Readings(plan, fields.pop("val_errors", []), fields.pop("val_losses", []))
        learner = Learner.build(plan, task.model, group)
        opened.append(events := EventWriter(folder.events_path(0), rank=0))
        given = {"interface": None, "attempt": 1, "num_hosts": 1, **fields}
        stats = EpochStats(plan=plan, group=group, num_parameters=learner.replica.num_parameters, **given)
        store = CheckpointStore(folder.checkpoints_dir, folder.plan_hash(), group)
        run_log = RunLog(folder, 0, events, Progress(plan, shown=True), plan.kind)
        return Training(plan, group, task, learner, store, stats, run_log, TimeLeft(StopRequest()), lambda: None)

    yield make
    for events in opened:
        events.close()


def rows_of(training: Training) -> list[dict[str, str]]:
    return read_metrics(training.run_log.folder.metrics_path)


def test_a_run_of_another_task_has_its_own_columns_and_says_so(training_of, capsys):
    training = training_of(plan_of())
    assert training.run() == "done"
    rows = rows_of(training)
    assert list(rows[0]) == list(KIND.columns)
    assert [row["num_seeds"] for row in rows] == ["50"] * 4
    assert rows[-1]["num_seeds_cum"] == "200"
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert float(rows[0]["val_rmse"]) == 2 * float(rows[0]["val_mae"])
    assert (rows[0]["val_mae_15min"], rows[0]["synthetic"]) == ("", "true")
    assert "val MAE" in (said := capsys.readouterr().out)
    assert "windows/s" in said
    evaluations = events_in(training.run_log.folder.events_path(0), Evaluation)
    assert {"mae", "rmse", "loss", "num_seeds"} <= evaluations[0].measures.keys()


def test_the_mean_loss_counts_what_was_there_to_be_forecast(training_of):
    """With a rate of nothing the loss of an epoch is the error of the initial weights, over observed targets alone."""
    training = training_of(plan_of(optimizer={"kind": "adam", "lr": 1e-30}, epochs=1))
    task = training.task
    known = ~task.y.isnan()
    size = magnitude(task.model, task.x)[:, 0] + task.y.abs()  # three products, a bias, a difference
    errors = Bounded((task.model(task.x)[:, 0] - task.y).detach().abs().double(), (4 + 2) * size)[known]
    training.run()
    assert_near(float(rows_of(training)[0]["loss"]), errors.sum(0) / int(known.sum()))


def test_the_best_is_the_lowest_error(training_of):
    training = training_of(plan_of(), val_errors=[3.0, 1.0, 2.0, 1.5])
    training.run()
    assert [row["best_val_mae"] for row in rows_of(training)] == ["3.0", "1.0", "1.0", "1.0"]
    assert (training.evaluations.best.epoch, training.evaluations.best.step) == (
        2,
        2 * training.plan.calendar.steps_in(0),
    )
    assert training.evaluations.best.facts() == {"step": 14, "epoch": 2, "mae": 1.0, "rmse": 2.0}
    kept = {path.name for path in training.checkpoints.folder.glob("step_*")}
    assert kept == {"step_0000000014", "step_0000000028"}


def test_of_equal_measures_the_lower_loss_is_the_best(training_of):
    training = training_of(plan_of(epochs=6), val_errors=[1.0] * 6, val_losses=[5.0, 4.0, 4.0, 3.0, 6.0, math.nan])
    training.run()
    assert (training.evaluations.best.epoch, training.evaluations.best.loss) == (4, 3.0)
    assert training.evaluations.best.facts() == {"step": 28, "epoch": 4, "mae": 1.0, "rmse": 2.0}


def test_a_lower_loss_does_not_make_up_for_a_worse_measure(training_of):
    training = training_of(plan_of(), val_errors=[1.0, 1.5, 2.0, 1.25], val_losses=[5.0, 4.0, 3.0, 2.0])
    training.run()
    assert training.evaluations.best.epoch == 1


def test_the_test_split_is_judged_with_the_best_weights_and_not_the_last(training_of):
    training = training_of(plan_of(), val_errors=[3.0, 1.0, 2.0, 1.5])
    training.run()
    of_last = training.task.evaluate("test")
    best, last = (training.checkpoints.load_weights(steps).tensors for steps in (14, 28))
    assert not torch.equal(best["weight"], last["weight"])
    measured = training.test_best()
    assert torch.equal(training.task.model.weight, best["weight"])
    assert measured == training.task.evaluate("test") != of_last


def test_it_resumes_to_the_bit(training_of):
    whole = training_of(
        plan_of("whole", optimizer={"kind": "adam", "lr": 0.3, "schedule": {"kind": "multistep", "milestones": [1, 3]}})
    )
    whole.run()
    plan = plan_of(
        "halved", optimizer={"kind": "adam", "lr": 0.3, "schedule": {"kind": "multistep", "milestones": [1, 3]}}
    )
    first = training_of(plan)
    first.run_log.progress = StopAt(first, steps=10)
    assert first.run() == "out_of_time"
    second = training_of(plan, again=True)
    assert restore(second)
    assert second.steps_done == 10
    assert second.run() == "done"
    assert torch.equal(second.learner.replica.values, whole.learner.replica.values)
    same = ("epoch", "loss", "val_mae", "best_val_mae", "num_seeds_cum")
    assert [[row[name] for name in same] for row in rows_of(second)] == [
        [row[name] for name in same] for row in rows_of(whole)
    ]


def test_seeds_so_far_are_those_of_the_steps_that_were_done(training_of):
    training = training_of(plan_of(max_steps=10))
    assert training.run() == "done"
    rows = [(row["num_seeds"], row["num_seeds_cum"]) for row in rows_of(training)]
    assert rows == [("50", "50"), ("24", "74")], "three batches of eight in the second epoch"


def test_a_checkpoint_is_taken_at_the_first_sync_past_so_many_steps(training_of):
    """Rounds of three steps in epochs of seven: syncs need not fall on multiples of four."""
    settings = {"every_steps": 4, "every_epochs": 0}
    training = training_of(
        plan_of(checkpoint=settings, sync={"scheme": "deferred_allreduce", "every": 3}, evaluate_every_epochs=0)
    )
    training.run()
    saved = [e.steps_done for e in events_in(training.run_log.folder.events_path(0), Checkpoint)]
    assert saved == [6, 10, 13, 17, 20, 24, 28, 28]


def test_time_of_an_epoch_is_carried_over_within_it_alone(training_of):
    first = training_of(plan_of(epochs=2))
    first.run_log.progress = StopAt(first, steps=9)
    first.run()
    spent = {steps: first.checkpoints.load(steps).position.books.epoch_s for steps in (7, 9)}
    assert spent[7] == 0 < spent[9]


class Killed(Exception):
    pass


def test_what_is_kept_for_good_is_kept_by_the_next_attempt_too(training_of):
    """Which, against a deadline, writes the checkpoint again that it began with."""
    plan = plan_of(epochs=3, checkpoint={"keep_every_epochs": 1})
    first = training_of(plan, val_errors=[3.0])

    def die() -> None:
        if first.steps_done == 8:
            raise Killed

    first.alive = die
    with pytest.raises(Killed):
        first.run()
    second = training_of(plan, again=True, val_errors=[2.0, 1.0])
    second.time_left = second.evaluations.time_left = UpAtQuestion(0, has_end=True)
    assert restore(second)
    assert second.run() == "done"
    saved = [e.steps_done for e in events_in(second.run_log.folder.events_path(0), Checkpoint)]
    assert saved.count(7) == 2
    kept = {path.name for path in second.checkpoints.folder.glob("step_*")}
    assert kept == {f"step_{steps:010d}" for steps in (7, 14, 21)}


class StopAt(Progress):
    """Asks for a stop as a signal would, in the middle of an epoch."""

    def __init__(self, training: Training, steps: int) -> None:
        super().__init__(training.plan, shown=False)
        self.training, self.steps = training, steps

    def step(self, epoch: int, step: int, num_seeds: int) -> None:
        if self.training.steps_done == self.steps:
            self.training.time_left.stop.requested = True


def test_what_the_monitor_saw_of_an_epoch_stands_in_its_row(training_of):
    spans = []

    def busy(begin: float, end: float):
        spans.append((begin, end))
        return SimpleNamespace(cpu_util_avg=50.0 + len(spans), gpu_util_avg=None)

    training = training_of(plan_of(epochs=2), utilisation=busy)
    training.run()
    assert [(row["cpu_util_avg"], row["gpu_util_avg"]) for row in rows_of(training)] == [("51.0", ""), ("52.0", "")]
    assert all(begin <= end for begin, end in spans)
    assert spans[0][1] <= spans[1][0]


def test_what_crosses_the_interface_while_it_evaluates_is_no_training(training_of, monkeypatch):
    crossed = [1000]
    monkeypatch.setattr("graphmill.train.epoch_stats.interface_bytes", lambda name: crossed[0])
    training = training_of(plan_of(epochs=3), interface="lo")

    def also(method, num_bytes: int):
        def call(*arguments, **options):
            crossed[0] += num_bytes
            return method(*arguments, **options)

        return call

    training.task.evaluate = also(training.task.evaluate, 7 << 20)
    training.task.loss_sum = also(training.task.loss_sum, 1 << 20)
    checkpoints = SimpleNamespace(
        save=also(training.checkpoints.save, 5 << 20), prune=training.checkpoints.prune, plan_hash="0"
    )
    training = dataclasses.replace(training, checkpoints=checkpoints)
    training.run()
    rows = rows_of(training)
    assert [row["interface_mib_epoch"] for row in rows] == ["7.0"] * 3, "one MiB in each of seven steps"
    assert [row["interface_mib_cum"] for row in rows] == ["7.0", "14.0", "21.0"]


def test_an_evaluation_that_is_given_up_is_no_training_either(training_of, monkeypatch):
    crossed = [0]
    monkeypatch.setattr("graphmill.train.epoch_stats.interface_bytes", lambda name: crossed[0])
    training = training_of(plan_of(), interface="lo")

    def stop_midway(split: str, pause: Pause) -> Measures:
        crossed[0] += 7 << 20
        training.time_left.stop.requested = True
        pause()
        raise AssertionError("the ranks agreed to stop")

    training.task.evaluate = stop_midway
    assert training.run() == "out_of_time"
    assert training.stats.counters().interface_bytes == 0


class UpAtQuestion(TimeLeft):
    """Time is up when it is asked for the n-th time, wherever in the run that is; never for n = 0."""

    def __init__(self, question: int, *, has_end: bool = False) -> None:
        super().__init__(StopRequest(), Deadline(4e9, "a test") if has_end else NO_DEADLINE)
        self.question, self.asked = question, 0

    def is_up(self) -> bool:
        self.asked += 1
        return self.asked == self.question


@pytest.mark.parametrize("has_end", [False, True], ids=["no deadline", "with a deadline"])
def test_a_stop_at_any_moment_costs_nothing(training_of, has_end):
    """At the start, after a sync, in the middle of an evaluation, in the last one: saved, and resumed to the bit."""
    whole = training_of(plan_of("whole", epochs=2))
    whole.time_left = whole.evaluations.time_left = UpAtQuestion(0)
    whole.run()
    assert whole.time_left.asked > 2 * whole.plan.calendar.steps_in(0) + 2  # once at the start, and in evaluations
    for question in range(1, whole.time_left.asked + 1):
        plan = plan_of(f"stopped-at-{question}", epochs=2)
        first = training_of(plan)
        first.time_left = first.evaluations.time_left = UpAtQuestion(question, has_end=has_end)
        assert first.run() == "out_of_time"
        second = training_of(plan, again=True)
        assert restore(second) or question == 1
        assert second.steps_done == first.steps_done
        assert second.run() == "done"
        assert torch.equal(second.learner.replica.values, whole.learner.replica.values)
        assert [row["val_mae"] for row in rows_of(second)] == [row["val_mae"] for row in rows_of(whole)]


class WithAnother(Group):
    """A rank that is asked together with another one, who answers as this one does, but for one question."""

    def __init__(self, asked_in: str, answer: Callable[[list[int]], list[int]]) -> None:
        super().__init__(ALONE.rank, ALONE.world_size, CPU)
        self.asked_in, self.answer = asked_in, answer

    def gather_numbers(self, numbers: list[int]) -> list[list[int]]:
        is_asked = sys._getframe(1).f_code.co_name == self.asked_in
        return [numbers, self.answer(numbers) if is_asked else numbers]


STOP = {"_begin": lambda _: [1, 0], "_go_on": lambda numbers: [numbers[0], 1], "_pause": lambda _: [1]}


@pytest.mark.parametrize("place", STOP)
def test_any_ranks_wish_to_stop_stops_all(training_of, place):
    """At the start, after a sync, in the middle of an evaluation; not only rank 0's (invariant 10)."""
    training = training_of(plan_of("stopped", epochs=2))
    training.group = training.evaluations.group = WithAnother(place, STOP[place])
    assert training.run() == "out_of_time"
    assert not training.time_left.is_up(), "this rank had time left"
    assert training.steps_done == {"_begin": 0, "_go_on": 1, "_pause": training.plan.calendar.steps_done(1)}[place]


class Meeting(Group):
    """At each barrier it looks at what this rank has recorded last."""

    def __init__(self, path: Path) -> None:
        super().__init__(ALONE.rank, ALONE.world_size, CPU)
        self.path, self.recorded = path, []

    def barrier(self) -> None:
        self.recorded.append(events_in(self.path)[-1].kind)


@pytest.mark.parametrize(("steps", "last"), [(0, "finish"), (10, "stop")])
def test_ranks_wait_for_each_other_once_they_have_recorded_their_end(training_of, steps, last):
    """srun kills the others as soon as one exits with 75."""
    training = training_of(plan_of())
    training.run_log.progress = StopAt(training, steps=steps)
    training.group = meeting = Meeting(training.run_log.folder.events_path(0))
    worker._train(training, resume=False, began=0.0)
    assert meeting.recorded == [last]


def test_replicas_that_differ_end_the_run(training_of):
    training = training_of(plan_of())
    training.group = WithAnother("_go_on", lambda numbers: [numbers[0] ^ 1, 0])
    with pytest.raises(RuntimeError, match=r"replicas differ .* step 1"):
        training.run()


def test_against_a_deadline_the_first_checkpoint_comes_before_the_first_step(training_of):
    training = training_of(plan_of())
    training.time_left = training.evaluations.time_left = UpAtQuestion(2, has_end=True)
    training.run()
    saved = [e.steps_done for e in events_in(training.run_log.folder.events_path(0), Checkpoint)]
    assert saved == [0, 1]
    assert training.time_left.reserve.longest_save_s > 0


EARLY = {"early_stopping": {"patience": 2, "min_delta": 0.25}, "epochs": 8}
ERRORS = [3.0, 2.0, 1.9, 2.5, 1.0, 0.5, 0.4, 0.3]
"""The second is the last that improves by more than 0.25, and two more do not: it ends after the fourth epoch."""


def test_it_stops_early_once_patience_is_over(training_of):
    training = training_of(plan_of(**EARLY), val_errors=list(ERRORS))
    assert training.run() == "done"
    assert training.stopped_early
    assert [row["val_mae"] for row in rows_of(training)] == ["3.0", "2.0", "1.9", "2.5"]
    assert (training.epoch, training.steps_done) == (4, training.calendar.steps_done(4))
    assert training.evaluations.best.epoch == 3, "the best is the best, also where it is too little of an improvement"


@pytest.mark.parametrize("steps", [3, 16, 21, 25])
def test_a_resumed_run_stops_early_at_the_same_epoch(training_of, steps):
    whole = training_of(plan_of("whole", **EARLY), val_errors=list(ERRORS))
    whole.run()
    plan = plan_of("halved", **EARLY)
    first = training_of(plan, val_errors=list(ERRORS))
    first.run_log.progress = StopAt(first, steps=steps)
    assert first.run() == "out_of_time"
    second = training_of(plan, again=True, val_errors=ERRORS[first.epoch :])
    assert restore(second)
    assert second.run() == "done"
    assert (second.stopped_early, second.epoch, second.evaluations.best) == (True, 4, whole.evaluations.best)
    assert torch.equal(second.learner.replica.values, whole.learner.replica.values)


@pytest.mark.parametrize("every_epochs", [1, 0])
def test_a_run_killed_after_it_stopped_early_trains_no_more(training_of, every_epochs):
    """Also where nothing else would save the epoch in which it stopped, which is not the best."""
    plan = plan_of(**EARLY, checkpoint={"every_epochs": every_epochs})
    first = training_of(plan, val_errors=list(ERRORS))
    first.run()
    assert first.saved_at == first.steps_done, "its end is saved, whatever else is"
    second = training_of(plan, again=True)
    assert restore(second)
    assert second.run() == "done"
    assert (second.stopped_early, second.steps_done) == (True, first.steps_done)
    assert torch.equal(second.learner.replica.values, first.learner.replica.values)


def test_at_the_planned_end_nothing_is_early(training_of):
    training = training_of(plan_of(**{**EARLY, "epochs": 4}), val_errors=list(ERRORS))
    assert training.run() == "done"
    assert not training.stopped_early


def test_who_draws_is_settled_before_the_first_step_of_an_attempt(training_of):
    """A resumed attempt is told who drew before."""
    told = []

    def settling(training: Training) -> Training:
        def settle_draws(before: str | None) -> SettledDraws:
            told.append((before, training.steps_done))
            return SettledDraws("cpu", "measured", 2.0, 1.0)

        training.task.settle_draws = settle_draws
        return training

    plan = plan_of("drawn")
    first = settling(training_of(plan))
    first.run_log.progress = StopAt(first, steps=10)
    assert first.run() == "out_of_time"
    second = settling(training_of(plan, again=True))
    assert restore(second)
    assert second.run() == "done"
    assert told == [(None, 0), ("cpu", 10)]
    assert [each.by for each in events_in(second.run_log.folder.events_path(0), Drawn)] == ["cpu", "cpu"]
