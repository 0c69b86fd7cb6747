"""The state of all stages of a pipeline that was submitted, or runs here: also of those that have no run folder yet."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphmill.cluster.jobs.pipeline_record import PipelineFolder, PipelineRecord, RecordedStage, stages_of
from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.run_graph import DONE, NEW
from graphmill.cluster.status import FRESH_S, RunView, Watcher
from graphmill.record.documents import SubmittedJob
from graphmill.record.lock import Owner, owner_of
from graphmill.slurm.queue import JobReading, Queue, alive
from graphmill.slurm.states import explain_reason


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
        # Read first: if it ends meanwhile, that is one look more, and not an end of the watching before the last stage.
        owner = owner_of(self.folder.path)
        record = self.folder.read_record()
        stages = stages_of(self.folder, record)
        begun = [state.folder for state in stages.runs.states() if state.status != NEW]
        self.runs.folders, self.runs.root = begun, self.folder.path.parent
        views = {view.folder: view for view in self.runs.look()}
        living = self._living(record)
        runner = owner if owner is not None and _is_alive(owner, list(views.values())) else None
        found = []
        for recorded in record.stages:
            view = views.get(stages.state(recorded.stage).folder.path) or _not_begun(recorded, stages)
            found.append(_with_what_comes(view, recorded, record, stages, living[0] if living else runner))
        return found

    def _living(self, record: PipelineRecord) -> list[JobReading]:
        """Jobs of the chain that run or wait, in order."""
        kept = [job for job in self.folder.jobs.jobs() if job.time >= record.time]
        for job in kept[len(self._seen) :]:
            self.queue.ask_again(job.job_id)
        self._seen = kept
        readings: Mapping[str, JobReading] = self.queue.read(kept) if kept else {}
        return alive(kept, readings)


def _is_alive(owner: Owner, views: Sequence[RunView]) -> bool:
    """Whether a process still runs the stages; of one on another host, by the heartbeats of its runs."""
    if owner.is_here():
        return not owner.is_dead()
    silent_s = [view.silent_s for view in views if view.silent_s is not None]
    return min([time.time() - owner.since, *silent_s]) <= FRESH_S


def _not_begun(recorded: RecordedStage, stages: Stages) -> RunView:
    state = stages.state(recorded.stage)
    missing = stages.missing(recorded.stage)
    detail = f"takes weights of {', '.join(missing)}" if missing else "never started"
    epochs = None if recorded.plan is None else recorded.plan.calendar.num_epochs
    return RunView(
        run=state.run_id,
        folder=state.folder.path,
        state="planned",
        source="run folder",
        detail=detail,
        epochs=epochs,
    )


def _with_what_comes(
    view: RunView, recorded: RecordedStage, record: PipelineRecord, stages: Stages, by: JobReading | Owner | None
) -> RunView:
    """A stage that has not ended waits for a job of the chain, or for the process, that may run it, if one is left."""
    state = stages.state(recorded.stage)
    if view.is_alive or state.status == DONE or recorded.stage.name not in record.chosen or record.has_failed(state):
        return view
    why_not = [f"{name} {why}" for name, why in record.why_not(recorded.stage.name, stages).items()]
    if why_not:
        return replace(view, detail=f"not run: {'; '.join(why_not)}")
    if by is None:
        return view
    takes = f"; {view.detail}" if view.state == "planned" and recorded.stage.needs() else ""
    if isinstance(by, Owner):
        waits = f"for process {by.pid} on {by.hostname}, which runs the stages one after another"
        return replace(view, state="waiting", source="process", detail=waits + takes)
    return _waits_for_job(view, by, takes)


def _waits_for_job(view: RunView, job: JobReading, takes: str) -> RunView:
    reason = explain_reason(job.reason) if job.phase == "waits" else None
    waits = (
        f"for its turn in job {job.job_id}, which runs the stages one after another"
        if reason is None
        else f"for job {job.job_id}: {reason.meaning}"
    )
    return replace(
        view,
        state="waiting",
        source=job.source,
        job_id=job.job_id,
        detail=waits + takes,
        advice="" if reason is None else reason.advice,
        is_hopeless=reason is not None and reason.is_hopeless,
    )
