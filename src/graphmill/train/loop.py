"""The loop: what one rank does from its first step to its last."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

import torch

from graphmill.base.errors import UserError
from graphmill.graph.splits import SPLITS, Split
from graphmill.nn.weights import Loaded, Weights
from graphmill.record.endings import EndingName
from graphmill.record.events import Checkpoint, Sync
from graphmill.record.judged import INITIAL
from graphmill.record.manifest import Best, Position
from graphmill.record.weights import Origin
from graphmill.runtime.machine import return_free_memory
from graphmill.spec.calendar import Calendar
from graphmill.spec.early_stopping import Patience
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import EvaluationStopped
from graphmill.sync.schemes import Step
from graphmill.tasks.baselines import BaselineScore
from graphmill.tasks.task import (
    AnyTask,
    Batch,
    CountsEpochs,
    CountsEvaluations,
    EvaluatesSets,
    Measures,
    SettlesDraws,
)
from graphmill.train.checkpoint import CheckpointStore, ResumeState
from graphmill.train.epoch_stats import EpochStats, evaluation_facts
from graphmill.train.learner import Learner
from graphmill.train.profile import StepProfile
from graphmill.train.rounds import KnownEnd, Pace, RoundEnd, Rounds
from graphmill.train.run_log import RunLog
from graphmill.train.time_left import TimeLeft


@dataclass(frozen=True, slots=True)
class LatestEvaluation:
    """The latest evaluation of the validation split, for the origin of the weights that are saved at that step."""

    steps_done: int = -1  # none yet
    values: Mapping[str, float] = field(default_factory=dict)


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
    best: Best | None = None
    measured: LatestEvaluation = LatestEvaluation()
    patience: Patience = field(default_factory=Patience)
    stopped_early: bool = False
    saved_at: int = 0  # steps_done of the latest checkpoint
    keeps_latest: bool = False  # whether the checkpoint that the attempt began with is kept for good
    calendar: Calendar = field(init=False)
    rounds: Rounds = field(init=False)
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.calendar = self.plan.calendar
        self.rounds = Rounds(self.learner.replica, self.stats)
        self.pace = Pace(self.group.device)

    def run(self) -> EndingName:
        """Train to the end of the plan, or until the ranks agree to stop."""
        self.stats.begin_attempt()
        try:
            if not self._begin():
                return "out_of_time"
            if self.steps_done == 0:
                self._before_the_first_step()
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
        """Before the first step. With a time limit, check that a checkpoint can be written, and time it."""
        votes = self.group.gather_numbers([int(self.time_left.is_up()), int(self.time_left.has_end)])
        if any(vote[0] for vote in votes):
            return False
        if any(vote[1] for vote in votes):
            self._save(keep=self.keeps_latest)
        return True

    def _before_the_first_step(self) -> None:
        """Score the baselines, and evaluate weights from another run; neither can become the best (`can_be_best`)."""
        for score in self.baselines:
            self.alive()
            self.run_log.baseline(score)
        if self.initial is None:
            return
        measures = self._evaluate("val")
        self.measured = LatestEvaluation(0, measures.values)
        self.run_log.evaluated(INITIAL, "val", measures)

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
                    self._forward_and_backward(batch)
                    synchronised = self._after_backward()
                    self.pace.step_queued()
                self.run_log.progress.step(self.epoch, self.step, batch.num_seeds)
                del batch  # its memory is that of a later one
                self.alive()
                if synchronised and not self._go_on():
                    return False
                if self.profile is not None:
                    self.profile.step_ended()
        return True

    def _forward_and_backward(self, batch: Batch) -> None:
        """Add the loss and the gradients of a batch. The model never sees a batch without seeds."""
        if batch.num_seeds:
            with self.group.spans("forward"):
                loss = self.task.loss_sum(batch)
            with self.group.spans("backward"):
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            self.rounds.add_loss(loss.detach())

    def _after_backward(self) -> bool:
        weights = self.task.weights(self.epoch, self.step)
        closes_round = self.calendar.closes_round(self.steps_done + 1)
        synchronised = self.learner.update(Step(weights[self.group.rank], sum(weights), closes_round), self.steps_done)
        self.step += 1
        self.steps_done += 1
        return synchronised

    def _go_on(self) -> bool:
        """After a sync: check that the replicas agree, and decide together whether to go on (invariants 3 and 10).

        On a device it is the replicas of the round before that are compared: `rounds.Rounds`.
        """
        self.time_left.end_round()
        traffic = self.group.traffic
        this = RoundEnd(self.epoch + 1, self.steps_done, traffic.payload_bytes, traffic.num_syncs)
        known = self.rounds.ended(this)
        votes = self.group.gather_numbers([_signed(known), int(self.time_left.is_up())])
        if known is not None:
            self._compared_replicas(known, [vote[0] for vote in votes])
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
            self._compared_replicas(known, [vote[0] for vote in self.group.gather_numbers([_signed(known)])])

    def _compared_replicas(self, known: KnownEnd, digests: list[int]) -> None:
        """Record the sync at the end of a round; RuntimeError if replicas differ. `digests`: of all ranks."""
        agree = all(digest == digests[0] for digest in digests)
        ended = known.round
        self.run_log.events.write(
            Sync(
                epoch=ended.epoch,
                steps_done=ended.steps_done,
                parameter_hash=f"{known.digest:016x}",
                replicas_agree=agree,
                payload_bytes=ended.payload_bytes,
                modelled_bytes=ended.num_syncs * self.learner.replica.num_parameters * 4,
                sync_s=round(self.group.spans.seconds["sync"], 6),
                loss_sum=known.loss_sum,
            )
        )
        self.stats.num_agreed += agree
        if not agree:
            hashes = ", ".join(f"{digest + 2**63:016x}" for digest in digests)
            raise RuntimeError(f"replicas differ after the sync at step {ended.steps_done}: {hashes}")

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
                measures = self._evaluate("val")
                improved, self.best = self._compared(measures)
                self.measured = LatestEvaluation(self.steps_done, measures.values)
                self.run_log.evaluated(self.epoch + 1, "val", measures)
                self._evaluate_own_sets()
            facts |= evaluation_facts(measures, self.best.values, span.seconds, self.plan.kind.measures)
            if isinstance(task, CountsEvaluations):
                facts |= task.evaluation_facts()
            self.stopped_early = self._agree_to_stop_early(measures) and not is_last
        self.run_log.epoch_ended(facts)
        self.epoch, self.step = self.epoch + 1, 0
        self.stats.end_epoch()
        self.rounds.end_epoch()
        self._save_after_epoch(needed=improved or is_last or self.stopped_early)

    def _evaluate(self, split: Split) -> Measures:
        with self.stats.aside():
            return self.task.evaluate(split, self._pause)

    def _evaluate_own_sets(self) -> None:
        """Evaluate the task's own evaluation sets, which do not affect what is best."""
        task: object = self.task
        if not isinstance(task, EvaluatesSets):
            return
        for name in task.evaluation_sets:
            if name in SPLITS:
                raise ValueError(f"an evaluation set is called {name!r}, as a split is")
            with self.stats.aside():
                measures = task.evaluate_set(name, self._pause)
            self.run_log.evaluated(self.epoch + 1, name, measures)

    def _pause(self) -> None:
        """In the middle of an evaluation: abort it if a rank wants to stop."""
        self.alive()
        if any(vote[0] for vote in self.group.gather_numbers([int(self.time_left.is_up())])):
            raise EvaluationStopped

    def _num_seeds(self) -> tuple[int, int]:
        """Seeds of all ranks in this epoch, and so far."""
        schedule = self.task.schedule
        in_epoch = sum(sum(schedule.counts(self.epoch, step)) for step in range(self.step))
        return in_epoch, self.epoch * schedule.num_seeds + in_epoch

    def _compared(self, measures: Measures) -> tuple[bool, Best]:
        """Whether `measures` are better than the best so far, and the best with them. Of equals the lower loss is."""
        known = self.plan.kind.measures
        if known[0].name not in measures.values:
            raise UserError(
                f"{known[0].name}, by which the best checkpoint is chosen, has no finite value on the validation split",
                fix="let it be a number in all cases, or set train.best_by to another measure",
            )
        values = dict(self.best.values) if self.best else {}
        better = {
            measure.name
            for measure in known
            if measure.name in measures.values
            and (measure.name not in values or measure.is_better(measures.values[measure.name], values[measure.name]))
        }
        values |= {name: measures.values[name] for name in better}
        name = known[0].name
        if self.best is None or name in better or self.best.loses_tie(name, measures.values[name], measures.loss):
            return True, Best(step=self.steps_done, epoch=self.epoch + 1, values=values, loss=measures.loss)
        return False, self.best.model_copy(update={"values": values})

    def _agree_to_stop_early(self, measures: Measures) -> bool:
        """Whether the run is to end with this evaluation. The ranks have the same measures, and vote all the same."""
        spec, measure = self.plan.early_stopping, self.plan.kind.measures[0]
        if not spec.patience:
            return False
        self.patience = self.patience.after(measures.values[measure.name], measure, spec)
        return any(vote[0] for vote in self.group.gather_numbers([int(self.patience.is_over(spec))]))

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
            books=self.stats.books(self.steps_done, mid_epoch=self.step > 0),
            best=self.best,
            patience=self.patience if self.plan.early_stopping.patience else None,
        )
        replica = self.learner.replica
        weights = Weights.of(dict(replica.named_tensors()), self._origin())
        state = ResumeState(self.learner.state(), position)
        with self.group.spans("checkpoint") as span:
            with self.stats.aside():
                self.checkpoints.save(weights, state, parameter_hash=replica.hash(), keep=keep)
            self.saved_at = self.steps_done
            self._prune()
        self.time_left.reserve.saw_save(span.seconds)
        self.time_left.begin_round()
        self.run_log.events.write(Checkpoint(epoch=self.epoch, step=self.step, steps_done=self.steps_done))

    def _origin(self) -> Origin:
        """The origin of the current weights. A function of plan and step: no clock, no attempt."""
        return Origin(
            run_id=self.plan.run_id,
            task=self.plan.task.kind,
            dataset=self.plan.dataset.name,
            step=self.steps_done,
            epoch=self.epoch,
            plan_hash=self.checkpoints.plan_hash,
            measures=dict(self.measured.values) if self.measured.steps_done == self.steps_done else {},
        )

    def _prune(self) -> None:
        """Keep the latest checkpoint and the best, and those that are kept for good."""
        if self.group.rank == 0:
            self.checkpoints.prune([self.steps_done, *([self.best.step] if self.best else [])])

    def restore(self) -> bool:
        """Continue from the latest whole checkpoint. False: there is none, and the run starts over."""
        if self.group.rank == 0:
            self.checkpoints.remove_leftovers()
        manifest = self.checkpoints.latest(self.run_log.damaged)
        if manifest is None:
            return False
        weights = self.checkpoints.load_weights(manifest.steps_done)
        state = self.checkpoints.load(manifest.steps_done, are_alike=self.learner.scheme.leaves_ranks_alike)
        position = state.position
        if position.best is not None:
            self.checkpoints.load_weights(position.best.step)  # a damaged one must be found now, not at the end
        self.learner.load(weights, state.tensors)
        if weights.origin is not None:
            self.measured = LatestEvaluation(position.steps_done, weights.origin.measures)
        self.stats.reopen(position.books)
        self.run_log.reopen(position.epoch, position.steps_done)
        self.epoch, self.step, self.steps_done = position.epoch, position.step, position.steps_done
        self.best, self.saved_at, self.keeps_latest = position.best, position.steps_done, manifest.keep
        self.patience = position.patience or Patience()
        is_over = self.patience.is_over(self.plan.early_stopping)
        self.stopped_early = is_over and self.epoch < self.calendar.num_epochs
        self._prune()  # an attempt killed right after its last checkpoint did not prune
        return True

    def test_best(self) -> Measures:
        """Measures of the test split with the weights of the best checkpoint."""
        assert self.best is not None
        self.checkpoints.load_weights(self.best.step).load_all_into(self.learner.replica.model)
        measures = self._evaluate("test")
        self.run_log.evaluated(self.best.epoch, "test", measures)
        return measures


def _signed(known: KnownEnd | None) -> int:
    """A replica's hash as ranks exchange it; 0 where none is known yet, on any rank."""
    return 0 if known is None else known.digest - 2**63
