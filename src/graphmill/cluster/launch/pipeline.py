"""The stages of a pipeline as runs on this machine: their state, their plans, and how far each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from graphmill.base.errors import AbsentDataError, UserError
from graphmill.cluster.launch.run_graph import NEW, Planner, PlanOf, RunGraph, RunState, Wording, checked_plans
from graphmill.record.evaluations import read_evaluations
from graphmill.record.events import Sync, events_in
from graphmill.record.judged import not_better_than_it_began
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.pipeline import Pipeline, StageSpec, load_stage
from graphmill.spec.plan import Plan

_WORDING: Final = Wording(
    noun="pipeline",
    one="stage",
    resumes="resumes",
    stopped="stopped (exit status {code}); run the same command again to resume",
    failed="failed (exit status {code}); see {folder}",
    left="{few} of {all} stages are not done: {names}",
)


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a pipeline, and where their runs are."""

    pipeline: Pipeline
    logs_root: Path

    @property
    def runs(self) -> RunGraph:
        """The stages as runs, each with the runs whose weights it needs."""
        needs = {stage.name: stage.needs() for stage in self.pipeline.stages}
        sources = {stage.name: stage.needs_for_sources() for stage in self.pipeline.stages}
        return RunGraph(self.pipeline.name, self.logs_root, _WORDING, needs, sources)

    def state(self, stage: StageSpec) -> RunState:
        """State of a stage's run, by its run folder."""
        return self.runs.state(stage.name)

    def missing(self, stage: StageSpec) -> list[str]:
        """The stages whose weights this one takes, and which are not done."""
        return self.runs.missing(stage.name)

    def planned_by(self, planner: Planner) -> PlanOf:
        """Plans of the stages as the pipeline's file has them now."""

        def plan_of(name: str) -> Plan:
            stage = self.pipeline.stage(name)
            experiment = load_stage(self.pipeline, stage, self.logs_root, missing=self.missing(stage))
            return planner(experiment, self.pipeline.run_id(stage))

        return plan_of


def plans_of_stages(stages: Stages, chosen: Sequence[StageSpec], plan_of: PlanOf) -> list[Plan]:
    """The plans of the chosen stages, or one `UserError` with all problems. Runs and changes nothing.

    Other stages need no data. Where weights are evaluated on all stages, nothing else may be wrong with them.
    """
    others = [stage for stage in stages.pipeline.stages if stage not in chosen]
    read = others if stages.pipeline.evaluate_on == "all" else []
    also = [stage.name for stage in read if stages.state(stage).status == NEW]
    return checked_plans(stages.runs, [stage.name for stage in chosen], plan_of, also=also)


def stages_without_data(stages: Stages, chosen: Sequence[StageSpec], plan_of: PlanOf) -> dict[str, AbsentDataError]:
    """Stages that have not begun and whose data are not prepared, with what to type. Changes nothing."""
    found = {}
    for stage in chosen:
        if stages.state(stage).status != NEW:
            continue
        try:
            _ = plan_of(stage.name).dataset.prepared_checksum
        except AbsentDataError as error:
            found[stage.name] = error
        except UserError:
            continue  # something else is wrong with it: said where it is planned
    return found


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a stage is, and how good: from its run folder. Empty if it has not begun."""

    epochs: int = 0  # completed
    of_epochs: int = 0
    steps: int = 0  # of each rank, by the last synchronisation that is known
    of_steps: int = 0
    attempts: int = 0
    best: dict[str, Any] | None = None  # measures on the validation split, and their epoch
    best_text: str = "-"


def progress(state: RunState) -> StageProgress:
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
