"""pipeline.json: a pipeline as it was submitted, from which its jobs make the runs of the stages.

Every choice but one was made where it was submitted: which weights a stage begins with is known when the stages that
they come from are done.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from graphmill.base.files import write_text
from graphmill.cluster.launch.pipeline import PlanOf, Stages
from graphmill.config.frozen import Spec
from graphmill.record.documents import read_document
from graphmill.record.find_weights import find_initial_weights, find_sources
from graphmill.record.run_folder import PIPELINE_FILE, RunFolder
from graphmill.spec.job.resolve import Job
from graphmill.spec.pipeline import Pipeline, StageSpec
from graphmill.spec.plan import Plan
from graphmill.spec.weights import InitFromSpec

_OF_ONE_STAGE: Final = {
    *("name", "time_s", "mem", "signal_before_s", "run_folders", "output_dir", "array", "dependency", "pipeline"),
    *("on_time_limit", "remarks"),
}


class PlannedStage(Spec):
    """One stage with every choice made but its initial weights."""

    stage: StageSpec
    plan: Plan = Field(description="of a run that begins with random weights")
    init_from: InitFromSpec = Field(
        description="the weights that it begins with once they are known; paths are absolute"
    )
    sources: dict[str, InitFromSpec] = Field({}, description="the weights that its task uses; paths are absolute")
    job: Job = Field(description="of the stage alone: for `graphmill submit --resume`")
    least_s: float = Field(description="with less time left of a job, an attempt is not worth its start-up")

    @property
    def kind_of_job(self) -> str:
        """What jobs must agree on to run each other's stages."""
        return self.job.model_dump_json(exclude=_OF_ONE_STAGE)


class SubmittedPipeline(Spec):
    """The content of pipeline.json."""

    name: str
    evaluate_on: Literal["own", "all"]
    logs_root: str = Field(description="absolute")
    time: float = Field(description="of the submission, Unix time, s")
    chosen: tuple[str, ...] = Field(description="stages that the jobs are to run, in order")
    stages: tuple[PlannedStage, ...] = Field(description="all of them, in order")

    def planned(self, name: str) -> PlannedStage:
        """The stage called `name`."""
        return next(each for each in self.stages if each.stage.name == name)


@dataclass(frozen=True, slots=True)
class PipelineFolder:
    """`<logs root>/<pipeline>/`: the runs of the stages, and next to them what belongs to all of them."""

    path: Path

    @property
    def record_path(self) -> Path:
        """The pipeline as it was submitted."""
        return self.path / PIPELINE_FILE

    @property
    def jobs(self) -> RunFolder:
        """Keeps the job ids and the stop request, in the same files as a run."""
        return RunFolder(self.path)

    def script_path(self, number: int) -> Path:
        """The script of a job of the chain, counted from 1."""
        return self.path / f"job-{number}.sbatch"

    def write(self, submitted: SubmittedPipeline) -> None:
        """Replace pipeline.json."""
        write_text(self.record_path, submitted.model_dump_json(indent=2) + "\n")

    def read(self) -> SubmittedPipeline:
        """What was submitted last; `UserError` if nothing was, or another version wrote it."""
        return read_document(self.record_path, SubmittedPipeline, "submit it with `graphmill pipeline submit`")


def stages_of(folder: PipelineFolder, submitted: SubmittedPipeline) -> Stages:
    """The stages and their runs, which are next to pipeline.json, even if the folder was moved."""
    specs = tuple(each.stage for each in submitted.stages)
    pipeline = Pipeline(submitted.name, {}, (), submitted.evaluate_on, specs)
    return Stages(pipeline, folder.path.parent)


def plans_of(folder: PipelineFolder, submitted: SubmittedPipeline, report: Callable[[str, str], None]) -> PlanOf:
    """Plans of the stages as they were submitted. `report(checkpoint, problem)`: of damaged initial weights."""
    stages = stages_of(folder, submitted)

    def plan_of(stage: StageSpec) -> Plan:
        planned, missing = submitted.planned(stage.name), stages.missing(stage)
        found: dict[str, Any] = {}
        if stage.init_from is not None and stage.init_from.stage not in missing:
            found["init_from"] = find_initial_weights(planned.init_from, report)
        if not stages.missing_sources(stage):
            found["sources"] = find_sources(planned.sources, report)
        return planned.plan.model_copy(update=found)

    return plan_of
