"""The state of all stages of a submitted pipeline: also of those that have no run folder yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphmill.cluster.jobs.pipeline_record import PipelineFolder, PlannedStage, SubmittedPipeline, stages_of
from graphmill.cluster.launch.pipeline import NEW, Stages
from graphmill.cluster.status import RunView, Watcher
from graphmill.record.documents import SubmittedJob
from graphmill.slurm.queue import JobReading, Queue, alive
from graphmill.slurm.states import in_words


@dataclass(slots=True)
class PipelineWatcher:
    """Looks at the stages again and again; in place of a `Watcher`."""

    folder: PipelineFolder
    runs: Watcher
    _seen: list[SubmittedJob] = field(default_factory=list)

    @property
    def queue(self) -> Queue:
        """The queue through which Slurm is queried."""
        return self.runs.queue

    def look(self) -> list[RunView]:
        """The state of every stage now, in order."""
        submitted = self.folder.read()
        stages = stages_of(self.folder, submitted)
        begun = [state.folder for state in stages.states() if state.status != NEW]
        self.runs.folders, self.runs.root = begun, self.folder.path.parent
        views = {view.folder: view for view in self.runs.look()}
        living = self._living(submitted)
        found = []
        for planned in submitted.stages:
            state = stages.state(planned.stage)
            view = views.get(state.folder.path) or _not_begun(planned, stages)
            found.append(_with_chain(view, planned, submitted, stages, living))
        return found

    def _living(self, submitted: SubmittedPipeline) -> list[JobReading]:
        """Jobs of the chain that run or wait, in order."""
        kept = [job for job in self.folder.jobs.jobs() if job.time >= submitted.time]
        for job in kept[len(self._seen) :]:
            self.queue.forget(job.job_id)
        self._seen = kept
        readings: Mapping[str, JobReading] = self.queue.read(kept) if kept else {}
        return alive(kept, readings)


def _not_begun(planned: PlannedStage, stages: Stages) -> RunView:
    folder = stages.state(planned.stage).folder
    missing = stages.missing(planned.stage)
    detail = f"takes weights of {', '.join(missing)}" if missing else "never started"
    epochs = planned.plan.calendar.num_epochs
    return RunView(
        run=planned.plan.run_id,
        folder=folder.path,
        state="planned",
        source="run folder",
        detail=detail,
        epochs=epochs,
    )


def _with_chain(
    view: RunView, planned: PlannedStage, submitted: SubmittedPipeline, stages: Stages, living: Sequence[JobReading]
) -> RunView:
    """A stage that has not ended waits for a job of the chain, if one is left that may run it."""
    if view.is_alive or view.state in ("done", "failed", "bad_request") or planned.stage.name not in submitted.chosen:
        return view
    failed = [name for name in planned.stage.needs() if stages.state(stages.pipeline.stage(name)).status == "failed"]
    if failed or not living:
        return replace(view, detail=f"not run: {', '.join(failed)} failed") if failed else view
    job = living[0]
    reason = in_words(job.reason) if job.phase == "waits" else None
    waits = f"for job {job.job_id}" if reason is None else f"for job {job.job_id}: {reason.meaning}"
    return replace(
        view,
        state="waiting",
        source=job.source,
        job_id=job.job_id,
        detail=f"{waits}; {view.detail}" if view.state == "planned" and planned.stage.needs() else waits,
        advice="" if reason is None else reason.advice,
        is_hopeless=reason is not None and reason.is_hopeless,
    )
