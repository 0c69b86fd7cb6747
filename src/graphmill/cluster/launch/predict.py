"""What the stages of a pipeline will take: a few steps of each are measured here, and the rest is arithmetic.

Measurements are kept next to the runs, in `<logs root>/<pipeline>/measured.json`, each under the digest of what was
measured and the name of the host: the same stage is not measured twice.
"""

import hashlib
import logging
import math
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import write_json
from graphmill.base.json_text import parse_json
from graphmill.base.python import python_m
from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.run_graph import DONE, NEW
from graphmill.cluster.launch.trial import Trial, num_checkpoints, num_evaluations
from graphmill.record.manifest import saved_steps
from graphmill.record.run_folder import plan_text
from graphmill.runtime.deadline import Reserve
from graphmill.spec.calendar import BucketedBatches
from graphmill.spec.packing import Interval, Shape, StageCost, Unmeasured
from graphmill.spec.pipeline import StageSpec
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

TRIAL_STEPS: Final = 20
_TRIAL_S: Final = 2.0  # of steps at least, if the stage has enough: twenty steps of a millisecond measure little
_SPREAD: Final = 0.1  # an interval is at least this wide to either side, however evenly the trial's steps went
_TRIAL: Final = TypeAdapter(Trial)
MEASURED_FILE: Final = "measured.json"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is left of one stage, and what it was measured by; nothing is left of one that is done."""

    stage: str
    status: str
    cost: StageCost | Unmeasured | None
    trial: Trial | None
    steps_left: int  # of each rank
    is_recorded: bool  # measured earlier


class Measurements:
    """Trials that were made earlier, in a file; only read if `keep` is False."""

    def __init__(self, folder: Path, *, keep: bool) -> None:
        self._path = folder / MEASURED_FILE
        self._keep = keep
        self._known: dict[str, Any] = {}
        if self._path.exists():
            try:
                self._known = parse_json(self._path.read_bytes())
            except ValueError:
                raise UserError(f"{self._path} is damaged", fix="remove it: stages are measured again") from None

    def find(self, plan: Plan) -> Trial | None:
        """The trial of this plan on this host, if there was one."""
        known = self._known.get(self._key(plan))
        try:
            return (
                None
                if known is None
                else _TRIAL.validate_python({**known, "step_spread_s": tuple(known["step_spread_s"])})
            )
        except (ValidationError, KeyError):  # of another version
            return None

    def keep(self, plan: Plan, trial: dict[str, Any]) -> None:
        """Remember a trial."""
        self._known[self._key(plan)] = trial
        if self._keep:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self._known)

    def _key(self, plan: Plan) -> str:
        # Weights to begin with cost no time; those that the task uses do, whoever trained them and wherever they are.
        sources = {name: each.model_copy(update={"source": "", "path": ""}) for name, each in plan.sources.items()}
        text = plan_text(plan.model_copy(update={"run_id": "", "init_from": None, "sources": sources}))
        return f"{socket.gethostname()} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def predict(
    stages: Stages,
    chosen: Sequence[StageSpec],
    plans: Sequence[Plan],
    measurements: Measurements,
    *,
    steps: int = TRIAL_STEPS,
    in_job: bool = False,
) -> list[Prediction]:
    """What is left of each stage. Measures those that were not measured before, each in a process of its own.

    A stage whose task uses weights of one that is not done is not measured: without them, it does something else.
    `in_job`: as it is run by a job, with what the job's driver takes.
    """
    num_sets = len(stages.pipeline.stages) if stages.pipeline.evaluate_on == "all" else 0
    found = []
    for stage, plan in zip(chosen, plans, strict=True):
        state = stages.state(stage)
        if state.status == DONE:
            found.append(Prediction(stage.name, state.status, None, None, 0, False))
            continue
        saved = 0 if state.status == NEW else saved_steps(state.folder.checkpoints_dir)
        why = _why_not_yet(stages, stage)
        if why:
            _log.info(f"stage {stage.name}: not measured, because {why}; so its job asks for all the time that it may")
            whole = Unmeasured(stage.name, _shape(plan), tuple(stage.needs()), why)
            found.append(Prediction(stage.name, state.status, whole, None, plan.last_step - saved, False))
            continue
        trial, is_recorded = measurements.find(plan), True
        if trial is None:
            _log.info(f"stage {stage.name}: measuring {steps} steps")
            values = measure(plan, steps)
            measurements.keep(plan, values)
            trial, is_recorded = (
                _TRIAL.validate_python({**values, "step_spread_s": tuple(values["step_spread_s"])}),
                False,
            )
        cost = cost_of(stage, plan, trial, saved, num_sets=num_sets, in_job=in_job)
        found.append(Prediction(stage.name, state.status, cost, trial, plan.last_step - saved, is_recorded))
    return found


def _why_not_yet(stages: Stages, stage: StageSpec) -> str:
    """Why the stage cannot be measured before others are done; empty if it can."""
    missing = stages.runs.missing_sources(stage.name)
    return f"its task uses weights of {', '.join(missing)}, which is not done" if missing else ""


def measure(plan: Plan, steps: int) -> dict[str, Any]:
    """A trial of `steps` steps with random weights; of more, if they take too little time. As plain JSON values."""
    steps = whole_epochs(plan, steps)
    values = _trial(plan, steps)
    enough = math.ceil(_TRIAL_S / max(values["step_s"], 1e-6))
    if steps * values["step_s"] >= _TRIAL_S / 2 or plan.last_step <= steps:
        return values
    longer = _trial(plan, whole_epochs(plan, enough))
    once_a_run = ("start_s", "process_s", "finish_s", "test_s")
    return longer | {name: (values[name] + longer[name]) / 2 for name in once_a_run}


def whole_epochs(plan: Plan, steps: int) -> int:
    """Steps of a trial, at most the plan's; whole epochs where batches are of several sizes.

    In a part of an epoch there are more large ones, or fewer, than in the run.
    """
    if isinstance(plan.batches, BucketedBatches):
        length = plan.calendar.length(0)
        steps = math.ceil(steps / length) * length
    return min(steps, plan.last_step)


def _trial(plan: Plan, steps: int) -> dict[str, Any]:
    """In a separate process; with the plan's sources, which the task may need."""
    own = plan.model_copy(update={"init_from": None})
    with tempfile.NamedTemporaryFile("w", prefix="graphmill-plan-", suffix=".json", encoding="utf-8") as file:
        file.write(plan_text(own))
        file.flush()
        command = python_m("graphmill.cluster.launch.trial", file.name, str(steps))
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode != exits.DONE:
        raise UserError(
            f"the trial of {plan.run_id} failed with exit status {child.returncode}; the error is above",
            fix="correct it, or measure nothing: `graphmill pipeline submit` with --trial 0",
        )
    values: dict[str, Any] = parse_json(child.stdout)
    return values


def cost_of(
    stage: StageSpec, plan: Plan, trial: Trial, steps_saved: int = 0, *, num_sets: int = 0, in_job: bool = False
) -> StageCost:
    """What is left of a stage after `steps_saved` steps of each rank, by its trial. Pure.

    `num_sets`: sets that its best weights are evaluated on at its end, by a process of its own. `in_job`: the driver
    and srun start before the ranks, the epilog comes after them (together about half as long as a rank's process takes
    to start, for they import no torch), and against the time limit a first checkpoint is saved.
    """
    share = (plan.last_step - steps_saved) / plan.last_step
    evaluations = num_evaluations(plan) * share + (1 if stage.init_from is not None and not steps_saved else 0)
    checkpoints, epochs = num_checkpoints(plan) * share, plan.calendar.num_epochs * share
    aside_s = evaluations * trial.val_s + trial.test_s + checkpoints * trial.save_s + epochs * trial.epoch_s
    aside_s += trial.process_s + num_sets * trial.val_s if num_sets else 0.0
    start_s = trial.start_s + (trial.process_s / 2 + trial.save_s if in_job else 0.0)
    steps_left = plan.last_step - steps_saved
    slow, fast = trial.step_spread_s[1], trial.step_spread_s[0]
    middle = steps_left * trial.step_s + aside_s
    peak_mib = trial.peak_rss_mib * plan.ranks_per_host
    piece_s = max(plan.sync.every * slow, trial.val_s, trial.test_s)
    reserve = Reserve(trial.process_s, longest_round_s=piece_s, longest_save_s=trial.save_s)  # the ranks leave so early
    return StageCost(
        name=stage.name,
        shape=_shape(plan),
        start_s=start_s,
        work_s=Interval(
            min(steps_left * fast + aside_s, middle * (1 - _SPREAD)),
            max(steps_left * slow + aside_s, middle * (1 + _SPREAD)),
        ),
        piece_s=piece_s,
        end_s=max(trial.save_s + trial.finish_s, reserve.needed_s),
        memory_mib=Interval(peak_mib * (1 - _SPREAD), peak_mib * (1 + _SPREAD)),
        needs=tuple(stage.needs()),
        expected_s=start_s + middle + trial.finish_s,
    )


def _shape(plan: Plan) -> Shape:
    return Shape(plan.hosts, plan.ranks_per_host, plan.device)
