"""A pipeline as jobs of Slurm: planned, packed, and submitted as a chain in which each job waits for the one before.

A job waits for the end of the one before it, whatever that is (afterany): it continues what is unfinished, and knows
from the run folders what has failed. Nothing is written before every choice is made, and sbatch would take the first
job.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from graphmill.base.amounts import mib_of
from graphmill.base.errors import AbsentDataError, UserError
from graphmill.base.files import write_text
from graphmill.cluster.jobs.copy_code import unfit_requests, with_code
from graphmill.cluster.jobs.pipeline_here import all_jobs, hold_pipeline
from graphmill.cluster.jobs.pipeline_record import PipelineFolder, PlannedStage, SubmittedPipeline, UnplannedStage
from graphmill.cluster.jobs.sbatch import Submission, check_with_slurm, note, submit_script
from graphmill.cluster.jobs.script import render_script
from graphmill.cluster.jobs.submit import RunRequest, plan_request, refuse_alive_jobs, write_code
from graphmill.cluster.launch.pipeline import Stages
from graphmill.cluster.launch.predict import Prediction
from graphmill.cluster.launch.run_graph import DONE
from graphmill.config.problems import Problem, add_problem, refuse
from graphmill.record.documents import SubmittedJob
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.commands import SlurmSilentError, scancel
from graphmill.spec.job.resolve import Job
from graphmill.spec.job.site import Site
from graphmill.spec.job.work import RunStages
from graphmill.spec.packing import JobLimits, PackedJob, Packing, Shape, StageCost, Unmeasured, least_time_s, pack
from graphmill.spec.pipeline import Pipeline, SourceSpec, StageSpec, load_stage, source_section
from graphmill.spec.weights import InitFromSpec

DRIVER_MIB: Final = 128
"""On the first host, besides its ranks: the driver and srun (90 MiB measured: Python 3.11, Slurm 22.05)."""


@dataclass(frozen=True, slots=True)
class ChainedJob:
    """One job of the chain, with every choice made."""

    packed: PackedJob
    job: Job
    script: str
    script_path: Path

    def submission(self, dependency: str) -> Submission:
        """What is passed to sbatch."""
        return Submission(self.script_path, self.script, dependency)


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """A pipeline that could be submitted: nothing is written."""

    folder: PipelineFolder
    submitted: SubmittedPipeline
    jobs: tuple[ChainedJob, ...]
    stages: tuple[RunRequest, ...]  # each alone: what they import is copied


def plan_stages(
    stages: Stages,
    chosen: Sequence[StageSpec],
    *,
    overrides: Sequence[str],
    dataset_root: Path,
    find_site: Callable[[str], Site],
    to_train: bool,
    code_snapshot: bool | None = None,
) -> dict[str, RunRequest | UserError]:
    """Plan every stage, by name, for the hosts of its job; all problems at once. Writes nothing, unless `to_train`:
    then data that come with the package are prepared. `code_snapshot`: as `with_code` takes it.

    Of a stage that is not chosen a plan is wanted where there can be one: else, why there is none.
    """
    problems: list[Problem] = []
    found: dict[str, RunRequest | UserError] = {}
    names = {stage.name for stage in chosen}
    is_read = stages.pipeline.evaluate_on == "all"  # what is not chosen as well: weights are evaluated on its data
    for stage in stages.pipeline.stages:
        is_chosen = stage.name in names
        try:
            found[stage.name] = _plan_stage(
                stages,
                stage,
                overrides=overrides,
                dataset_root=dataset_root,
                find_site=find_site,
                to_train=to_train and (is_chosen or is_read),
                is_chosen=is_chosen,
            )
        except UserError as error:
            found[stage.name] = error
            if is_chosen or (is_read and not isinstance(error, AbsentDataError)):
                add_problem(problems, f"stage {stage.name}", error)
    if not problems:
        requests = {name: each for name, each in found.items() if name in names and isinstance(each, RunRequest)}
        coded = dict(
            zip(requests, with_code([*requests.values()], copies=code_snapshot, environ=os.environ), strict=True)
        )
        found |= coded
        whole = [stage.name for stage in chosen if not stages.runs.missing_sources(stage.name)]
        problems = list(unfit_requests([f"stage {name}" for name in whole], [coded[name] for name in whole]))
    refuse(problems, f"pipeline {stages.pipeline.name}")
    return found


def _plan_stage(
    stages: Stages,
    stage: StageSpec,
    *,
    overrides: Sequence[str],
    dataset_root: Path,
    find_site: Callable[[str], Site],
    to_train: bool,
    is_chosen: bool,
) -> RunRequest:
    experiment = load_stage(stages.pipeline, stage, None, overrides)
    _refuse_resubmit(experiment.slurm.on_time_limit)
    slurm = experiment.slurm.model_copy(update={"array": None})
    state = stages.state(stage)
    request = plan_request(
        experiment.model_copy(update={"slurm": slurm}),
        find_site(experiment.slurm.site),
        dataset_root=dataset_root,
        folder=state.folder,
        logs_root=stages.logs_root,
        to_train=to_train,
    )
    if to_train and is_chosen and state.status != DONE:
        _ = request.plan.dataset.prepared_checksum  # else a job waits in the queue for what it cannot read
    return request


def _refuse_resubmit(on_time_limit: str) -> None:
    if on_time_limit == "resubmit":
        raise UserError(
            "slurm.on_time_limit is resubmit, but jobs of a chain cannot wait for jobs that are submitted later",
            fix="set slurm.on_time_limit=requeue, or stop",
        )


def _recorded(stages: Stages, stage: StageSpec, planned: RunRequest | UserError) -> PlannedStage | UnplannedStage:
    if isinstance(planned, UserError):
        return UnplannedStage(stage=stage, why=planned.message, fix=planned.fix)

    def weights(source: SourceSpec) -> InitFromSpec:
        return _weights(stages.pipeline, source, stages.logs_root)

    return PlannedStage(
        stage=stage,
        plan=planned.plan,
        init_from=InitFromSpec() if stage.init_from is None else weights(stage.init_from),
        sources={name: weights(source) for name, source in stage.sources.items()},
        job=planned.job,
        least_s=0.0,
    )


def _weights(pipeline: Pipeline, source: SourceSpec, logs_root: Path) -> InitFromSpec:
    section = source_section(pipeline, source, logs_root)
    paths = {key: str(Path(section[key]).expanduser().absolute()) for key in ("run", "file") if key in section}
    return InitFromSpec.model_validate({**section, **paths})


def record_of(
    stages: Stages, chosen: Sequence[StageSpec], requests: Mapping[str, RunRequest | UserError]
) -> SubmittedPipeline:
    """What the jobs will read. `UserError` if a chosen stage needs one that is neither done nor chosen."""
    names = [stage.name for stage in chosen]
    for stage in chosen:
        missing = [name for name in stages.missing(stage) if name not in names]
        if missing:
            raise UserError(
                f"stage {stage.name} takes weights of {', '.join(missing)}, which is not done and not among --stages",
                fix=f"give --stages {' '.join([*missing, *names])}",
            )
    return SubmittedPipeline(
        name=stages.pipeline.name,
        evaluate_on=stages.pipeline.evaluate_on,
        logs_root=str(stages.logs_root),
        time=time.time(),
        chosen=tuple(name for name in names if stages.runs.state(name).status != DONE),
        stages=tuple(_recorded(stages, stage, requests[stage.name]) for stage in stages.pipeline.stages),
    )


def limits_of(planned: Sequence[PlannedStage], memory_mib: float | None) -> JobLimits:
    """What one job may ask for: slurm.time and slurm.mem of the stages, which must agree on them, or `memory_mib`."""
    times = {each.stage.name: each.job.time_s for each in planned}
    memories = {each.stage.name: each.job.mem for each in planned}
    for key, values, option in (("time", times, "--time-limit"), ("mem", memories, "--memory-limit")):
        if len(set(values.values())) > 1:
            said = ", ".join(f"{value} in {name}" for name, value in values.items())
            raise UserError(f"slurm.{key} differs between stages: {said}", fix=f"give {option} for all")
    mem = next(iter(memories.values()))
    limit = memory_mib if memory_mib is not None or mem is None else mib_of(mem)
    room = None if limit is None else limit - DRIVER_MIB
    return JobLimits(float(next(iter(times.values()))), room)


def pack_stages(
    record: SubmittedPipeline, predictions: Mapping[str, Prediction], limits: JobLimits
) -> tuple[Packing, SubmittedPipeline]:
    """The jobs of the chosen stages, in order; the record, with the least time of an attempt at each of them.

    A stage without a prediction has a job of its own, with all the time that a job may ask for.
    """
    costs: list[StageCost | Unmeasured] = []
    least: dict[str, float] = {}
    for name in record.chosen:
        planned = record.planned(name)
        shape, cost = _shape(planned), predictions[name].cost if name in predictions else None
        if isinstance(cost, StageCost):
            least[name] = least_time_s(cost)
        costs.append(replace(cost or Unmeasured(name, shape, tuple(planned.stage.needs()), ""), shape=shape))
    stages = tuple(
        each.model_copy(update={"least_s": least.get(each.stage.name, 0.0)}) if each.stage.name in least else each
        for each in record.stages
    )
    return pack(costs, limits), record.model_copy(update={"stages": stages})


def _shape(planned: PlannedStage) -> Shape:
    plan = planned.plan
    return Shape(plan.hosts, plan.world.processes_per_host, plan.device, planned.kind_of_job)


def make_request(
    folder: PipelineFolder, record: SubmittedPipeline, packing: Packing, stages: Sequence[RunRequest]
) -> PipelineRequest:
    """The jobs and their scripts. Pure."""
    count = len(packing.jobs)
    jobs = []
    for number, packed in enumerate(packing.jobs, start=1):
        job = _job(folder, record, packed, f"{record.name}-{number}" if count > 1 else record.name)
        jobs.append(ChainedJob(packed, job, render_script(job), folder.script_path(number)))
    return PipelineRequest(folder, record, tuple(jobs), tuple(stages))


def _job(folder: PipelineFolder, record: SubmittedPipeline, packed: PackedJob, name: str) -> Job:
    """A job like those of its stages, which agree but for what is set here."""
    names = tuple(part.stage for part in packed.parts)
    planned = record.planned(names[0])
    alone = planned.job
    update: dict[str, Any] = {
        "name": name,
        "time_s": packed.time_s,
        "signal_before_s": min(alone.signal_before_s, max(1, packed.time_s // 4)),
        "mem": f"{packed.memory_mib + DRIVER_MIB}M" if packed.memory_mib else alone.mem,
        "output_dir": str(folder.path),
        "work": RunStages(folder=str(folder.path), stages=names, hands_over=packed.hands_over),
        "on_time_limit": "stop" if packed.hands_over else alone.on_time_limit,
    }
    return alone.model_copy(update=update)


def refuse_alive(folder: PipelineFolder, stages: Stages) -> None:
    """Raise a `UserError` if a job of the pipeline waits or runs, or if Slurm cannot be queried."""
    refuse_alive_jobs(all_jobs(folder, stages), folder.path)


def submit_pipeline(request: PipelineRequest, stages: Stages, environ: Mapping[str, str]) -> list[SubmittedJob]:
    """Submit the chain. If one of its jobs is refused, those before it are cancelled."""
    folder, first = request.folder, request.jobs[0]
    check_with_slurm(first.submission(""), environ)
    with hold_pipeline(folder.path):
        refuse_alive(folder, stages)
        runs = [state.folder for state in stages.runs.states() if state.folder.plan_path.exists()]
        for run in (folder.jobs, *runs):
            run.stop_path.unlink(missing_ok=True)
        for leftover in folder.path.glob("job-*.sbatch"):
            leftover.unlink()
        for stage in request.stages:
            write_code(stage)
        folder.write(request.submitted)
        return _submit_chain(request, environ)


def _submit_chain(request: PipelineRequest, environ: Mapping[str, str]) -> list[SubmittedJob]:
    submitted: list[SubmittedJob] = []
    dependency = ""
    try:
        for chained in request.jobs:
            write_text(chained.script_path, chained.script)
            known = [*request.folder.jobs.jobs()]
            job = submit_script(chained.submission(dependency), environ, earlier=known)
            submitted.append(job)
            note([request.folder.jobs], [job])
            dependency = f"afterany:{job.job_id}"
    except SlurmSilentError as error:
        raise UserError(
            f"{error.message}: whether job {len(submitted) + 1} of the chain was queued is not known",
            fix=f"`graphmill stop {request.folder.path}`, look with squeue, and submit the pipeline again",
        ) from None
    except BaseException:
        if submitted:
            scancel([job.job_id for job in submitted])
        raise
    for chained, job in zip(request.jobs, submitted, strict=True):
        for part in chained.packed.parts:
            run = RunFolder(Path(request.submitted.logs_root) / request.submitted.planned(part.stage).plan.run_id)
            if run.plan_path.exists():
                run.note_job(job)
    return submitted
