"""Run a pipeline on this machine: its stages one after another, each a run of its own in `<logs root>/<pipeline>/`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from graphmill.base import exits
from graphmill.base.errors import AbsentDataError, UserError
from graphmill.cluster.launch.check_model import unfit_problems
from graphmill.cluster.launch.local import WORKER
from graphmill.cluster.launch.run import resume_run, start_run
from graphmill.config.problems import Problem, refuse
from graphmill.record.evaluations import read_evaluations
from graphmill.record.events import Sync, events_in
from graphmill.record.judged import not_better_than_it_began
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder, refuse_other_plan
from graphmill.spec.experiment import Experiment
from graphmill.spec.pipeline import Pipeline, StageSpec, load_stage
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

NEW: Final = "new"
UNFINISHED: Final = "unfinished"  # it has begun, and has no outcome: it runs, or was killed
DONE: Final = "done"
Planner = Callable[[Experiment, str], Plan]
"""Makes the plan of one run from its experiment and run id. The caller has it, since it must open the dataset."""
PlanOf = Callable[[StageSpec], Plan]
"""Makes the plan of a stage. It names its initial weights and its sources once the stages that these come from are
done."""
AfterStage = Callable[[StageSpec, RunFolder], None]
"""Called with each stage that is done: at its end, and again whenever the pipeline is run."""

STOPS: Final = (exits.OUT_OF_TIME, 130)  # a user or a scheduler asked: the whole pipeline stops


@dataclass(frozen=True, slots=True)
class StageState:
    """One stage and what became of it so far."""

    stage: StageSpec
    run_id: str
    folder: RunFolder
    status: str  # NEW, UNFINISHED, or the status of its outcome


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a pipeline, and where their runs are."""

    pipeline: Pipeline
    logs_root: Path

    def state(self, stage: StageSpec) -> StageState:
        """By its run folder."""
        run_id = self.pipeline.run_id(stage)
        folder = RunFolder(self.logs_root / run_id)
        status = NEW
        if folder.plan_path.exists():
            outcome = folder.read_outcome()
            status = UNFINISHED if outcome is None else outcome.status
        return StageState(stage, run_id, folder, status)

    def states(self) -> list[StageState]:
        """Of all stages, in order."""
        return [self.state(stage) for stage in self.pipeline.stages]

    def missing(self, stage: StageSpec) -> list[str]:
        """The stages whose weights this one takes, and which are not done."""
        return [name for name in stage.needs() if self.state(self.pipeline.stage(name)).status != DONE]

    def missing_sources(self, stage: StageSpec) -> list[str]:
        """Of those, the stages whose weights its task uses: until they are done, the stage cannot be tried out."""
        missing = self.missing(stage)
        return [name for name in stage.needs_for_sources() if name in missing]

    def planned_by(self, planner: Planner) -> PlanOf:
        """Plans of the stages as the pipeline's file has them now."""

        def plan_of(stage: StageSpec) -> Plan:
            experiment = load_stage(self.pipeline, stage, self.logs_root, missing=self.missing(stage))
            return planner(experiment, self.pipeline.run_id(stage))

        return plan_of


def run_pipeline(
    stages: Stages,
    chosen: Sequence[StageSpec],
    *,
    plan_of: PlanOf,
    command: Sequence[str] = WORKER,
    after_stage: AfterStage | None = None,
) -> int:
    """Run the chosen stages that are not done yet; continue what was interrupted. Returns the exit status.

    All are planned before (`checked_plans`), so that a wrong value in the last one costs no hours. A stage that fails
    stops those that take its weights, and no others: 1 at the end. A stop (75, or 130) stops the pipeline.
    """
    problems: list[str] = []
    for stage in chosen:
        number = stages.pipeline.stages.index(stage) + 1
        title = f"[{number}/{len(stages.pipeline.stages)}] {stage.name}"
        missing = stages.missing(stage)
        if missing:
            _log.info(f"{title}: not run, because it takes weights of {', '.join(missing)}, which is not done")
            problems.append(stage.name)
            continue
        code = _run(stages, stage, title, plan_of=plan_of, command=command)
        if code in STOPS:
            _log.info(f"{title}: stopped (exit status {code}); run the same command again to resume")
            return code
        if code != exits.DONE:
            _log.info(f"{title}: failed (exit status {code}); see {stages.state(stage).folder.path}")
            problems.append(stage.name)
        elif after_stage is not None:
            after_stage(stage, stages.state(stage).folder)
    if problems:
        _log.info(f"{len(problems)} of {len(chosen)} stages are not done: {', '.join(problems)}")
    return exits.ANSWER_IS_NO if problems else exits.DONE


def checked_plans(stages: Stages, chosen: Sequence[StageSpec], plan_of: PlanOf) -> list[Plan]:
    """The plans of the chosen stages, or one `UserError` with all problems. Runs and changes nothing.

    Other stages need no data. Where weights are evaluated on all stages, nothing else may be wrong with them.
    """
    problems: list[Problem] = []
    plans: list[Plan] = []
    for stage in chosen:
        try:
            plans.append(checked_plan(stages, stage, plan_of))
        except UserError as error:
            add_problem(problems, stage, error)
    for stage in stages.pipeline.stages if stages.pipeline.evaluate_on == "all" else ():
        if stage in chosen or stages.state(stage).status != NEW:
            continue
        try:
            plan_of(stage)
        except AbsentDataError:
            continue
        except UserError as error:
            add_problem(problems, stage, error)
    if not problems:
        new = [
            (f"stage {stage.name}", plan)
            for stage, plan in zip(chosen, plans, strict=True)
            if stages.state(stage).status == NEW and not stages.missing_sources(stage)
        ]
        problems = list(unfit_problems([name for name, _ in new], [plan for _, plan in new]))
    refuse(problems, f"pipeline {stages.pipeline.name}")
    return plans


def add_problem(problems: list[Problem], stage: StageSpec, error: UserError) -> None:
    """What is wrong with a stage, unless an earlier one has the same problem."""
    if error.message not in {problem.what for problem in problems}:
        problems.append(Problem(f"stage {stage.name}", error.message, error.fix))


def stages_without_data(stages: Stages, chosen: Sequence[StageSpec], plan_of: PlanOf) -> dict[str, AbsentDataError]:
    """Of the stages that have not begun, those whose data are not prepared, and what to type. Changes nothing."""
    found = {}
    for stage in chosen:
        if stages.state(stage).status != NEW:
            continue
        try:
            _ = plan_of(stage).dataset.prepared_checksum
        except AbsentDataError as error:
            found[stage.name] = error
        except UserError:
            continue  # something else is wrong with it: said where it is planned
    return found


def checked_plan(stages: Stages, stage: StageSpec, plan_of: PlanOf) -> Plan:
    """The plan of one stage; `UserError` if its run has begun by another one."""
    plan, state = plan_of(stage), stages.state(stage)
    if state.status == NEW:
        return plan
    begun = state.folder.read_plan()
    missing = stages.missing(stage)
    if missing and (begun.init_from is not None or begun.sources):
        raise UserError(
            f"{state.folder.path} has begun with weights of {', '.join(missing)}, which is not done any more",
            fix=f"move {state.folder.path} away, to run the stage from the start",
        )
    refuse_other_plan(state.folder, begun, plan)
    return plan


def _run(stages: Stages, stage: StageSpec, title: str, *, plan_of: PlanOf, command: Sequence[str]) -> int:
    state = stages.state(stage)
    if state.status == DONE:
        _log.info(f"{title}: done already")
        return exits.DONE
    try:
        if state.status == NEW:
            _log.info(f"{title}: starts")
            plan = checked_plan(stages, stage, plan_of)  # now with the weights of the stages before it
            return start_run(plan, logs_root=stages.logs_root, command=command)
        _log.info(f"{title}: resumes")
        return resume_run(state.folder, command=command)
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a stage is, and how good: from its run folder. Empty if it has not begun."""

    epochs: int = 0  # completed
    of_epochs: int = 0
    steps: int = 0  # of each rank, by the last synchronisation that is known
    of_steps: int = 0
    attempts: int = 0
    best: dict[str, Any] | None = None  # measures on the validation split, and their epoch
    best_in_words: str = "-"


def progress(state: StageState) -> StageProgress:
    """How far one stage is."""
    if state.status == NEW:
        return StageProgress()
    folder, plan, outcome = state.folder, state.folder.read_plan(), state.folder.read_outcome()
    epochs = len(read_metrics(folder.metrics_path, is_growing=True)) if folder.metrics_path.exists() else 0
    best = None if outcome is None else outcome.best
    words, name = "-", plan.kind.primary.name
    if best is not None and name in best:
        words = f"{name} {best[name]:.4g}, epoch {best['epoch']}"
        rows = read_evaluations(folder, is_growing=True) if plan.init_from is not None else []
        words += ", no better than it began" if not_better_than_it_began(rows, plan.kind, best) else ""
    steps = _steps_done(folder) if outcome is None else outcome.steps_per_rank
    return StageProgress(epochs, plan.calendar.num_epochs, steps, plan.last_step, len(folder.attempts()), best, words)


def _steps_done(folder: RunFolder) -> int:
    path = folder.events_path(0)
    synced = (event for event in reversed(events_in(path)) if isinstance(event, Sync)) if path.exists() else iter(())
    return next((event.steps_done for event in synced), 0)
