"""A pipeline that runs on this machine: one process at a time, on record for those who watch it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.pipeline_record import PipelineFolder, PipelineRecord, RecordedStage
from graphmill.cluster.jobs.submit import refuse_jobs_known_alive
from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.run_graph import DONE, PlanOf
from graphmill.record.documents import SubmittedJob
from graphmill.record.lock import OwnedError, hold, owner_of
from graphmill.spec.pipeline import StageSpec
from graphmill.spec.plan import Plan


@contextmanager
def running_here(stages: Stages, chosen: Sequence[StageSpec], plan_of: PlanOf) -> Iterator[None]:
    """Own the pipeline while its stages run here, and write it down for `watch`.

    `UserError` if another process owns it, or a job of it waits or runs. If no stage can begin, nothing is written.
    """
    folder = PipelineFolder(stages.logs_root / stages.pipeline.name)
    if not _can_begin(stages, chosen) and owner_of(folder.path) is None:
        yield
        return
    with hold_pipeline(folder.path):
        troubles = refuse_jobs_known_alive(all_jobs(folder, stages), folder.path)
        if not troubles:  # else a job may wait that will read what was submitted
            folder.write(_record(stages, chosen, plan_of))
        yield


@contextmanager
def hold_pipeline(path: Path) -> Iterator[None]:
    """Own the folder of a pipeline, which is made if there is none."""
    with ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(hold(path))
        except OwnedError as error:
            raise UserError(error.message, fix=f"wait for it, or `graphmill stop {path}` first") from None
        except OSError as error:
            raise UserError(
                f"the folder {path} cannot be written: {error.strerror}", fix="give a --logs-root that you may write to"
            ) from None
        yield


def all_jobs(folder: PipelineFolder, stages: Stages) -> list[SubmittedJob]:
    """The jobs of the pipeline, and those of its stages alone."""
    runs = [state.folder for state in stages.runs.states()]
    return [job for kept in (folder.jobs, *runs) for job in kept.jobs()]


def _can_begin(stages: Stages, chosen: Sequence[StageSpec]) -> bool:
    names = {stage.name for stage in chosen}
    left = [stage for stage in chosen if stages.state(stage).status != DONE]
    return any(names.issuperset(stages.missing(stage)) for stage in left)


def _record(stages: Stages, chosen: Sequence[StageSpec], plan_of: PlanOf) -> PipelineRecord:
    def plan(stage: StageSpec) -> Plan | None:
        try:
            return plan_of(stage.name)
        except UserError:  # one that is not to be run now: the others were planned before
            return None

    return PipelineRecord(
        name=stages.pipeline.name,
        evaluate_on=stages.pipeline.evaluate_on,
        logs_root=str(stages.logs_root.absolute()),
        time=time.time(),
        is_local=True,
        chosen=tuple(stage.name for stage in chosen),
        stages=tuple(RecordedStage(stage=stage, plan=plan(stage)) for stage in stages.pipeline.stages),
    )
