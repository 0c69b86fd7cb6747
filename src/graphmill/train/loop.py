"""The loop: what one rank does from its first step to its last."""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

import torch

from graphmill.nn.weights import Loaded, Weights
from graphmill.record.endings import EndingName
from graphmill.record.events import Checkpoint
from graphmill.record.manifest import Position
from graphmill.runtime.machine import return_free_memory
from graphmill.spec.calendar import Calendar
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import EvaluationStopped
from graphmill.sync.schemes import Step
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.task import AnyTask, Batch, CountsEpochs, CountsEvaluations, Measures, SettlesDraws
from graphmill.train.checkpoint import CheckpointStore, ResumeState
from graphmill.train.epoch_stats import EpochStats, evaluation_facts
from graphmill.train.evaluations import Evaluations
from graphmill.train.learner import Learner
from graphmill.train.profile import StepProfile
from graphmill.train.rounds import Pace, RoundEnd, Rounds, signed
from graphmill.train.run_log import RunLog
from graphmill.train.time_left import TimeLeft


@dataclass(slots=True)
class Training:
    """One rank's training, from a plan. `epoch`, `step` and `steps_done` say where the next step begins."""

    plan: Plan
    group: Group
    task: AnyTask
    learner: Learner
    checkpoints: CheckpointStore
    stats: EpochStats
    run_log: RunLog
    time_left: TimeLeft
    alive: Callable[[], None]  # called at every step; feeds the watchdog
    profile: StepProfile | None = None  # None: no step is profiled
    data: str = ""  # the folder that the task's data are read from
    baselines: Iterable[BaselineScore] = ()  # scored while they are taken, before the first step of the run
    epoch: int = 0
    step: int = 0  # within the epoch
    steps_done: int = 0
    initial: Loaded | None = None  # what the plan's initial weights filled; None: they are random
    stopped_early: bool = False
    saved_at: int = 0  # steps_done of the latest checkpoint
    keeps_latest: bool = False  # whether the checkpoint that the attempt began with is kept for good
    calendar: Calendar = field(init=False)
    evaluations: Evaluations = field(init=False)
    rounds: Rounds = field(init=False)
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.calendar = self.plan.calendar
        self.evaluations = Evaluations(
            self.plan, self.group, self.task, self.stats, self.run_log, self.time_left, self.alive
        )
        self.rounds = Rounds(self.learner.replica, self.stats)
        self.pace = Pace(self.group.device)

    def run(self) -> EndingName:
        """Train to the end of the plan, or until the ranks agree to stop."""
        self.stats.begin_attempt()
        try:
            if not self._begin():
                return "out_of_time"
            if self.steps_done == 0:
                self.evaluations.before_the_first_step(self.baselines, has_initial_weights=self.initial is not None)
            self._settle_draws()
            return_free_memory()  # of the start: batches are made by a thread of their own, which would not reuse it
            while self.epoch < self.calendar.num_epochs and not self.stopped_early:
                if not self._train_epoch():
                    self._save()
                    return "out_of_time"
                self._finish_epoch()
        except EvaluationStopped:
            self._save()
            return "out_of_time"
        return "done"

    def _begin(self) -> bool:
        """Decide whether to begin. With a time limit, check that a checkpoint can be written, and time it."""
        votes = self.group.gather_numbers([int(self.time_left.is_up()), int(self.time_left.has_end)])
        if any(vote[0] for vote in votes):
            return False
        if any(vote[1] for vote in votes):
            self._save(keep=self.keeps_latest)
        return True

    def _settle_draws(self) -> None:
        task: object = self.task
        if not isinstance(task, SettlesDraws):
            return
        before = self.run_log.drawn_before() if self.steps_done else None
        if (draws := task.settle_draws(before)) is not None:
            self.run_log.drawn(draws)

    def _train_epoch(self) -> bool:
        """What is left of the epoch. False: the ranks agreed to stop before its end."""
        self.stats.begin_epoch()
        self.time_left.begin_round()
        steps_left = self.calendar.steps_in(self.epoch) - self.step
        with closing(self.task.batches(self.epoch, self.step)) as batches:
            for batch in islice(self.stats.timed(batches), steps_left):
                with self.stats.computing():
                    synchronised = self._take_step(batch)
                    self.pace.step_queued()
                self.run_log.progress.step(self.epoch, self.step, batch.num_seeds)
                del batch  # its memory is that of a later one
                self.alive()
                if synchronised and not self._go_on():
                    return False
                if self.profile is not None:
                    self.profile.step_ended()
        return True

    def _take_step(self, batch: Batch) -> bool:
        """Learn from a batch. True if the ranks synchronised. The model never sees a batch without seeds."""
        weights = self.task.weights(self.epoch, self.step)
        step = Step(weights[self.group.rank], sum(weights), self.calendar.closes_round(self.steps_done + 1))
        if batch.num_seeds:
            with self.group.spans("forward"):
                loss = self.task.loss_sum(batch)
            self.learner.before_backward(step)
            with self.group.spans("backward"):
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            self.rounds.add_loss(loss.detach())
        synchronised = self.learner.update(step, self.steps_done)
        self.step += 1
        self.steps_done += 1
        return synchronised

    def _go_on(self) -> bool:
        """Check after a sync that replicas agree, and decide together whether to go on (invariants 3 and 10).

        On a device it is the replicas of the round before that are compared: `rounds.Rounds`.
        """
        self.time_left.end_round()
        traffic = self.group.traffic
        this = RoundEnd(self.epoch + 1, self.steps_done, traffic.payload_bytes, traffic.num_syncs)
        known = self.rounds.ended(this)
        votes = self.group.gather_numbers([signed(known), int(self.time_left.is_up())])
        if known is not None:
            self.rounds.compare(
                known, [vote[0] for vote in votes], self.run_log.events, self.group.spans.seconds["sync"]
            )
        if any(vote[1] for vote in votes):
            return False
        every = self.plan.checkpoint.every_steps
        if every and self.steps_done // every > self.saved_at // every:
            self._save()
        return True

    def _settle(self) -> None:
        """Compare the replicas of the last round, if a device has not said yet what it holds."""
        self.stats.read_clocks()
        if (known := self.rounds.rest()) is not None:
            votes = self.group.gather_numbers([signed(known)])
            self.rounds.compare(
                known, [vote[0] for vote in votes], self.run_log.events, self.group.spans.seconds["sync"]
            )

    def _finish_epoch(self) -> None:
        self._settle()
        loss_sum = float(self.group.sum_numbers(torch.tensor([self.stats.loss_sum], dtype=torch.float64))[0])
        weight = sum(sum(self.task.weights(self.epoch, step)) for step in range(self.step))
        facts = self.stats.facts(
            epoch=self.epoch, steps_done=self.steps_done, loss=loss_sum / (weight or 1), num_seeds=self._num_seeds()
        )
        task: object = self.task
        if isinstance(task, CountsEpochs):
            facts |= task.epoch_facts()
        is_last = self.calendar.is_last(self.steps_done)
        every = self.plan.evaluate_every_epochs
        improved = False
        if is_last or (every and (self.epoch + 1) % every == 0):
            with self.group.spans("evaluate") as span:
                measures, best, improved = self.evaluations.after_epoch(self.epoch + 1, self.steps_done)
            facts |= evaluation_facts(measures, best.values, span.seconds, self.plan.kind.measures)
            if isinstance(task, CountsEvaluations):
                facts |= task.evaluation_facts()
            self.stopped_early = self.evaluations.agree_to_stop_early(measures) and not is_last
        self.run_log.epoch_ended(facts)
        self.epoch, self.step = self.epoch + 1, 0
        self.stats.end_epoch()
        self.rounds.end_epoch()
        self._save_after_epoch(needed=improved or is_last or self.stopped_early)

    def _num_seeds(self) -> tuple[int, int]:
        """Seeds of all ranks in this epoch, and so far."""
        schedule = self.task.schedule
        in_epoch = sum(sum(schedule.counts(self.epoch, step)) for step in range(self.step))
        return in_epoch, self.epoch * schedule.num_seeds + in_epoch

    def _save_after_epoch(self, *, needed: bool) -> None:
        settings = self.plan.checkpoint
        keep = bool(settings.keep_every_epochs) and self.epoch % settings.keep_every_epochs == 0
        periodic = bool(settings.every_epochs) and self.epoch % settings.every_epochs == 0
        if needed or keep or periodic:
            self._save(keep=keep)

    def _save(self, *, keep: bool = False) -> None:
        self._settle()
        position = Position(
            epoch=self.epoch,
            step=self.step,
            steps_done=self.steps_done,
            books=self.stats.saved(self.steps_done, mid_epoch=self.step > 0),
            best=self.evaluations.best,
            patience=self.evaluations.patience if self.plan.early_stopping.patience else None,
        )
        replica = self.learner.replica
        weights = Weights.of(
            dict(replica.named_tensors()),
            self.evaluations.origin(self.epoch, self.steps_done, self.checkpoints.plan_hash),
        )
        state = ResumeState(self.learner.state(), position)
        with self.group.spans("checkpoint") as span:
            with self.stats.excluded():
                self.checkpoints.save(weights, state, parameter_hash=replica.hash(), keep=keep)
            self.saved_at = self.steps_done
            self.prune()
        self.time_left.reserve.saw_save(span.seconds)
        self.time_left.begin_round()
        self.run_log.events.write(Checkpoint(epoch=self.epoch, step=self.step, steps_done=self.steps_done))

    def prune(self) -> None:
        """Keep the latest checkpoint and the best, and those that are kept for good."""
        best = self.evaluations.best
        if self.group.rank == 0:
            self.checkpoints.prune([self.steps_done, *([best.step] if best else [])])

    def test_best(self) -> Measures:
        """Measures of the test split with the weights of the best checkpoint."""
        best = self.evaluations.best
        assert best is not None
        self.checkpoints.load_weights(best.step).load_all_into(self.learner.replica.model)
        return self.evaluations.test(best)
