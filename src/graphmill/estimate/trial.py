"""What a trial, a run of the first steps of a plan, says of the whole run, or of what is left of a stage."""

import math
import socket
import statistics
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from graphmill.base.errors import UserError
from graphmill.estimate.cache import Estimates
from graphmill.record.evaluations import AT_THE_END
from graphmill.record.events import Checkpoint, Evaluation, Event, Finish, Start, Sync, events_in
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.deadline import Reserve
from graphmill.spec.calendar import BucketedBatches
from graphmill.spec.packing import Interval, Shape, StageCost
from graphmill.spec.pipeline import StageSpec
from graphmill.spec.plan import Plan

_SPREAD: Final = 0.1  # an interval is at least this wide to either side, however evenly the trial's steps went
FEWEST_STEPS: Final = 3  # the first one makes the plans of the kernels, so it is left out; two are left


@dataclass(frozen=True, slots=True)
class Trial:
    """What the first steps cost here, and the whole run by that."""

    steps: int  # of each rank
    step_s: float  # mean; of a rank, its synchronisations included
    step_spread_s: tuple[float, float]  # quartiles
    epoch_s: float  # of what an epoch takes besides its steps, evaluation and checkpoint; 0 if the trial had only one
    val_s: float  # of one evaluation of the validation split
    test_s: float
    start_s: float  # from the start of the attempt to its first step
    process_s: float  # of that, from the start of a rank's process until it began to work
    save_s: float  # of one checkpoint
    finish_s: float  # from the last event of rank 0 to the end of the attempt
    train_h: float  # of all steps
    evaluate_h: float  # of all evaluations
    peak_rss_mib: float  # of the largest process that ran, from its start to its end, evaluations included
    baselines_s: dict[str, float] = field(default_factory=dict)  # by name: of each that is scored after the test split

    @property
    def total_h(self) -> float:
        """Hours of the whole run, without start-up and checkpoints; its baselines as if they were scored in it."""
        return self.train_h + self.evaluate_h + sum(self.baselines_s.values()) / 3600


def known_trial(estimates: Estimates, plan: Plan) -> Trial | None:
    """The trial of this plan on this host, if there was one."""
    return estimates.find(Trial, plan, "trial", socket.gethostname())


def keep_trial(estimates: Estimates, plan: Plan, trial: Trial) -> None:
    """Remember a trial that was made on this host."""
    estimates.keep(trial, plan, "trial", socket.gethostname())


def trial_of(folder: RunFolder, plan: Plan, steps: int, *, ended: float) -> Trial:
    """What the first `steps` steps of `plan` cost, by the events of a run of them. `ended`: Unix time, s."""
    events = events_in(folder.events_path(0))
    marks = [(event.steps_done, event.time) for event in events if isinstance(event, Sync)]
    per_step = _per_step(events)
    if len(per_step) < FEWEST_STEPS - 1:
        every = plan.sync.every
        raise UserError(
            f"{steps} steps are {len(marks)} synchronisations, which is too few to measure by",
            fix=f"--trial {FEWEST_STEPS * every} or more",
        )
    quartiles = statistics.quantiles(per_step, n=4, method="inclusive")
    rows = read_metrics(folder.metrics_path)
    val_s = statistics.median(float(row["eval_s"]) for row in rows if row["eval_s"])
    test_s, step_s = _test_s(events), statistics.fmean(per_step)
    saves = [later.time - sooner.time for sooner, later in pairwise(events) if isinstance(later, Checkpoint)]
    steps_marked, first_mark = marks[0]
    begun = folder.attempts()[0].time
    return Trial(
        steps=steps,
        step_s=step_s,
        step_spread_s=(min(quartiles[0], step_s), max(quartiles[2], step_s)),
        epoch_s=_epoch_s(events, step_s=step_s),
        val_s=val_s,
        test_s=test_s,
        start_s=max(0.0, first_mark - begun - steps_marked * step_s),
        process_s=next((event.process_s or 0.0 for event in events if isinstance(event, Start)), 0.0),
        save_s=statistics.median(saves) if saves else 0.0,
        finish_s=max(0.0, ended - events[-1].time),
        train_h=plan.last_step * step_s / 3600,
        evaluate_h=(num_evaluations(plan) * val_s + test_s) / 3600,
        peak_rss_mib=max(_peaks_mib(folder)),
        baselines_s=_baselines_s(events),
    )


def _test_s(events: Sequence[Event]) -> float:
    """What the evaluation of the test split took: from the last checkpoint to its event."""
    tested = next(event.time for event in events if isinstance(event, Evaluation) and event.set == AT_THE_END)
    return tested - max(event.time for event in events if isinstance(event, Checkpoint) and event.time <= tested)


def _baselines_s(events: Sequence[Event]) -> dict[str, float]:
    """Seconds of each baseline after the test split, by name; what could not be scored counts with the one after it."""
    found: dict[str, float] = {}
    after = [event for event in events if isinstance(event, Evaluation)]
    after = after[next(place for place, event in enumerate(after) if event.set == AT_THE_END) :]
    for sooner, later in pairwise(after):
        name = later.set.partition("/")[2]
        found[name] = found.get(name, 0.0) + later.time - sooner.time
    return found


def _peaks_mib(folder: RunFolder) -> Iterator[float]:
    """Peak memory of every process of the run that reached its end, MiB."""
    for path in folder.events_dir.iterdir():
        yield from (event.peak_rss_mib for event in events_in(path) if isinstance(event, Finish))


def _per_step(events: Sequence[Event]) -> list[float]:
    """Seconds per step of each round that follows another at once.

    Of all rounds but the first where those are too few, as in epochs of one step: the start of an epoch is in them.
    """
    at_once, after_any, done = [], [], 0
    for sooner, later in pairwise(events):
        done = sooner.steps_done if isinstance(sooner, Sync) else done
        if done and isinstance(later, Sync):
            after_any.append((later.time - sooner.time) / (later.steps_done - done))
            at_once += after_any[-1:] if isinstance(sooner, Sync) else []
    return at_once if len(at_once) >= FEWEST_STEPS - 1 else after_any


def _epoch_s(events: Sequence[Event], *, step_s: float) -> float:
    """What lies between two epochs, without the checkpoint, the evaluation and the round after them: the mean."""
    syncs = [(index, event) for index, event in enumerate(events) if isinstance(event, Sync)]
    found = []
    for (before, last), (after, first) in pairwise(syncs):
        between = events[before + 1 : after]
        if first.epoch == last.epoch or not between:
            continue
        work_s = (first.steps_done - last.steps_done) * step_s
        rest_s = first.time - between[-1].time - work_s  # from the last thing that is counted separately
        found.append(max(0.0, rest_s))
    return statistics.fmean(found) if found else 0.0


def num_checkpoints(plan: Plan) -> float:
    """How often the whole run saves, at most: if only better ones are saved, each is counted as better."""
    settings = plan.checkpoint
    per_epochs = settings.every_epochs
    by_epochs = plan.calendar.times_every(epochs=per_epochs) if per_epochs else num_evaluations(plan)
    return by_epochs + plan.calendar.times_every(steps=settings.every_steps)


def num_evaluations(plan: Plan) -> int:
    """How often the whole run evaluates the validation split."""
    every_epochs = plan.evaluate_every_epochs
    return math.ceil(plan.calendar.num_epochs / every_epochs) if every_epochs else 1


def whole_epochs(plan: Plan, steps: int) -> int:
    """Steps of a trial, at most the plan's; whole epochs where batches are of several sizes.

    In a part of an epoch there are more large ones, or fewer, than in the run.
    """
    if isinstance(plan.batches, BucketedBatches):
        length = plan.calendar.length(0)
        steps = math.ceil(steps / length) * length
    return min(steps, plan.last_step)


def cost_of(
    stage: StageSpec,
    plan: Plan,
    trial: Trial,
    steps_saved: int = 0,
    *,
    num_sets: int = 0,
    in_job: bool = False,
    kept: Container[str] = (),
) -> StageCost:
    """What is left of a stage after `steps_saved` steps of each rank, by its trial. Pure.

    `num_sets`: sets that its best weights are evaluated on at its end, by a process of its own. `in_job`: the driver
    and srun start before the ranks, the epilog comes after them (together about half as long as a rank's process takes
    to start, for they import no torch), and against the time limit a first checkpoint is saved. `kept`: baselines that
    another run on the same data has scored.
    """
    share = (plan.last_step - steps_saved) / plan.last_step
    evaluations = num_evaluations(plan) * share + (1 if stage.init_from is not None and not steps_saved else 0)
    checkpoints, epochs = num_checkpoints(plan) * share, plan.calendar.num_epochs * share
    aside_s = evaluations * trial.val_s + trial.test_s + checkpoints * trial.save_s + epochs * trial.epoch_s
    aside_s += trial.process_s + num_sets * trial.val_s if num_sets else 0.0
    baselines_s = [seconds for name, seconds in trial.baselines_s.items() if name not in kept]
    aside_s += sum(baselines_s)
    start_s = trial.start_s + (trial.process_s / 2 + trial.save_s if in_job else 0.0)
    steps_left = plan.last_step - steps_saved
    slow, fast = trial.step_spread_s[1], trial.step_spread_s[0]
    middle = steps_left * trial.step_s + aside_s
    peak_mib = trial.peak_rss_mib * plan.ranks_per_host
    piece_s = max(plan.sync.every * slow, trial.val_s, trial.test_s)
    reserve = Reserve(trial.process_s, longest_round_s=piece_s, longest_save_s=trial.save_s)  # the ranks leave so early
    return StageCost(
        name=stage.name,
        shape=shape_of(plan),
        start_s=start_s,
        work_s=Interval(
            min(steps_left * fast + aside_s, middle * (1 - _SPREAD)),
            max(steps_left * slow + aside_s, middle * (1 + _SPREAD)),
        ),
        piece_s=max([piece_s, *baselines_s]),
        end_s=max(trial.save_s + trial.finish_s, reserve.needed_s),
        memory_mib=Interval(peak_mib * (1 - _SPREAD), peak_mib * (1 + _SPREAD)),
        needs=tuple(stage.needs()),
        expected_s=start_s + middle + trial.finish_s,
    )


def shape_of(plan: Plan) -> Shape:
    """Hosts, ranks of each, and device."""
    return Shape(plan.hosts, plan.ranks_per_host, plan.device)
