"""What the stages of a pipeline will take: a few steps of each are measured here, once, and the rest is arithmetic."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.run_graph import DONE, NEW
from graphmill.cluster.launch.trial import measure
from graphmill.estimate.cache import Estimates
from graphmill.estimate.trial import Trial, cost_of, keep_trial, known_trial, shape_of
from graphmill.record.kept_baselines import KeptBaselines
from graphmill.record.manifest import saved_steps
from graphmill.spec.packing import StageCost, Unmeasured
from graphmill.spec.pipeline import StageSpec
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

TRIAL_STEPS: Final = 20


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is left of one stage, and what it was measured by; nothing is left of one that is done."""

    stage: str
    status: str
    cost: StageCost | Unmeasured | None
    trial: Trial | None
    steps_left: int  # of each rank
    is_recorded: bool  # measured earlier


def predict(
    stages: Stages,
    chosen: Sequence[StageSpec],
    plans: Sequence[Plan],
    estimates: Estimates,
    *,
    steps: int = TRIAL_STEPS,
    in_job: bool = False,
) -> list[Prediction]:
    """What is left of each stage. Measures those that were not measured before.

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
            whole = Unmeasured(stage.name, shape_of(plan), tuple(stage.needs()), why)
            found.append(Prediction(stage.name, state.status, whole, None, plan.last_step - saved, False))
            continue
        known = known_trial(estimates, plan)
        if known is None:
            _log.info(f"stage {stage.name}: measuring {steps} steps")
        trial = known or measure(plan, steps)
        if known is None:
            keep_trial(estimates, plan, trial)
        kept = KeptBaselines.of(stages.logs_root, plan.task).read()
        cost = cost_of(stage, plan, trial, saved, num_sets=num_sets, in_job=in_job, kept=kept)
        found.append(Prediction(stage.name, state.status, cost, trial, plan.last_step - saved, known is not None))
    return found


def _why_not_yet(stages: Stages, stage: StageSpec) -> str:
    """Why the stage cannot be measured before others are done; empty if it can."""
    missing = stages.runs.missing_sources(stage.name)
    return f"its task uses weights of {', '.join(missing)}, which is not done" if missing else ""
