"""pipeline.json: a pipeline as it was submitted, or run here last.

Of a submitted one, its jobs make the runs of the stages. Every choice but one was made where it was submitted: which
weights a stage begins with is known when the stages that they come from are done. One that runs here is only shown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from graphmill.base import exits
from graphmill.base.errors import AbsentDataError
from graphmill.base.files import write_text
from graphmill.base.json_text import parse_json
from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.run_graph import STOPS, PlanOf, RunState
from graphmill.config.frozen import Spec
from graphmill.record.documents import read_document
from graphmill.record.endings import ENDINGS
from graphmill.record.find_weights import find_initial_weights, find_sources
from graphmill.record.run_folder import PIPELINE_FILE, RunFolder
from graphmill.runtime.trust import code_in, refuse_foreign_code, remember
from graphmill.spec.job.resolve import Job
from graphmill.spec.pipeline import Pipeline, StageSpec
from graphmill.spec.plan import Plan
from graphmill.spec.weights import InitFromSpec

_OF_ONE_STAGE: Final = {
    *("name", "time_s", "mem", "signal_before_s", "work", "output_dir", "array", "dependency"),
    *("on_time_limit", "remarks"),
}


class RecordedStage(Spec):
    """One stage as it is shown before it has begun."""

    model_config = ConfigDict(extra="ignore")

    stage: StageSpec
    plan: Plan | None = Field(description="None: it is not to be run, and cannot be planned now")


class PipelineRecord(Spec):
    """What any pipeline.json says."""

    model_config = ConfigDict(extra="ignore")

    name: str
    evaluate_on: Literal["own", "all"]
    logs_root: str = Field(description="absolute")
    time: float = Field(description="of the submission, or the start here; Unix time, s")
    is_local: bool = Field(False, description="one process runs the stages (`graphmill pipeline run`), and no jobs")
    chosen: tuple[str, ...] = Field(description="stages that are to be run, in order")
    stages: tuple[RecordedStage, ...] = Field(description="all of them, in order")

    def has_failed(self, state: RunState) -> bool:
        """Whether a stage failed since then. It is not tried again before the pipeline is submitted, or run, anew."""
        ending = ENDINGS.get(state.status)
        if ending is None:
            return False
        failed = ending.exit_status not in (exits.DONE, *STOPS) if self.is_local else ending.fails_stage
        attempts = state.folder.attempts() if failed else []
        return bool(attempts) and attempts[-1].time >= self.time

    def why_not(self, stage: str, stages: Stages) -> dict[str, str]:
        """The stages that this one needs, directly or not, and that will not be done; with what is known of each."""
        found: dict[str, str] = {}
        for name in stages.runs.missing(stage):
            state = stages.runs.state(name)
            if self.has_failed(state):
                found[name] = "failed" if state.status == "failed" else f"failed ({state.status})"
            elif name not in self.chosen:
                found[name] = "is neither done nor to be run"
            else:
                found |= self.why_not(name, stages)
        return found


class PlannedStage(RecordedStage):
    """One stage with every choice made but its initial weights."""

    model_config = ConfigDict(extra="forbid")

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


class UnplannedStage(RecordedStage):
    """One stage that no job runs, and that could not be planned: its data are not there, for instance."""

    model_config = ConfigDict(extra="forbid")

    plan: None = None
    why: str = Field(description="it could not be planned")
    fix: str = Field(description="what to type")


class SubmittedPipeline(PipelineRecord):
    """The content of pipeline.json, where jobs run the stages."""

    model_config = ConfigDict(extra="forbid")

    stages: tuple[PlannedStage | UnplannedStage, ...] = Field(
        description="all of them, in order; those that are chosen are planned"
    )

    def planned(self, name: str) -> PlannedStage:
        """The stage called `name`; `AbsentDataError` if it could not be planned, and so was not chosen."""
        found = next(each for each in self.stages if each.stage.name == name)
        if isinstance(found, UnplannedStage):
            raise AbsentDataError(found.why, fix=found.fix)
        return found


@dataclass(frozen=True, slots=True)
class PipelineFolder:
    """`<logs root>/<pipeline>/`: the runs of the stages, and next to them what belongs to all of them."""

    path: Path

    @property
    def record_path(self) -> Path:
        """The pipeline as it was submitted, or run here."""
        return self.path / PIPELINE_FILE

    @property
    def jobs(self) -> RunFolder:
        """Folder of the job ids and the stop request, in the same files as a run's."""
        return RunFolder(self.path)

    def script_path(self, number: int) -> Path:
        """The script of a job of the chain, counted from 1."""
        return self.path / f"job-{number}.sbatch"

    def write(self, record: PipelineRecord) -> None:
        """Replace pipeline.json."""
        text = record.model_dump_json(indent=2) + "\n"
        refuse_foreign_code(parse_json(text))
        write_text(self.record_path, text)
        remember(code_in(parse_json(text)))

    def read_record(self) -> PipelineRecord:
        """What is to be run, whoever runs it; `UserError` if nothing is, or another version wrote it."""
        return read_document(self.record_path, PipelineRecord, "run or submit the pipeline again")

    def read(self) -> SubmittedPipeline:
        """What was submitted last; `UserError` if nothing was, or another version wrote it."""
        return read_document(self.record_path, SubmittedPipeline, "submit it with `graphmill pipeline submit`")


def stages_of(folder: PipelineFolder, record: PipelineRecord) -> Stages:
    """The stages and their runs, which are next to pipeline.json, even if the folder was moved."""
    specs = tuple(each.stage for each in record.stages)
    pipeline = Pipeline(record.name, {}, (), record.evaluate_on, specs)
    return Stages(pipeline, folder.path.parent)


def plans_of(folder: PipelineFolder, submitted: SubmittedPipeline, report: Callable[[str, str], None]) -> PlanOf:
    """Plans of the stages as they were submitted. `report(checkpoint, problem)`: of damaged initial weights."""
    stages = stages_of(folder, submitted)

    def plan_of(name: str) -> Plan:
        planned, missing = submitted.planned(name), stages.runs.missing(name)
        stage, found = planned.stage, dict[str, Any]()
        if stage.init_from is not None and stage.init_from.stage not in missing:
            found["init_from"] = find_initial_weights(planned.init_from, report)
        if not stages.runs.missing_sources(name):
            found["sources"] = find_sources(planned.sources, report)
        return planned.plan.model_copy(update=found)

    return plan_of
