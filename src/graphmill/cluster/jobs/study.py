"""A study as jobs of Slurm: an array whose tasks are the cells, or a chain in which each cell waits for the one before.

An array is one job script, so its tasks ask for the same hosts: cells that differ in that get arrays of their own. A
task may hold several cells, which share its host.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from graphmill.base.amounts import mib_of
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.messages import each_text_once
from graphmill.cluster.jobs.copy_code import unfit_requests, with_code
from graphmill.cluster.jobs.sbatch import Submission, check_with_slurm, note, submit_script
from graphmill.cluster.jobs.script import render_script
from graphmill.cluster.jobs.submit import (
    RunRequest,
    plan_request,
    refuse_alive,
    resubmit,
    submit_new,
)
from graphmill.cluster.launch.run_graph import DONE, NEW, RunState
from graphmill.cluster.launch.study import runs_of_study
from graphmill.config.problems import Problem, add_problem, refuse
from graphmill.record.documents import SubmittedJob
from graphmill.record.run_folder import refuse_other_plan
from graphmill.slurm.commands import SlurmSilentError
from graphmill.slurm.queue import Queue, alive
from graphmill.spec.job.limits import ResourceRequest, refuse_too_many_side_by_side
from graphmill.spec.job.resolve import Job
from graphmill.spec.job.site import Site
from graphmill.spec.job.work import TrainRuns
from graphmill.spec.study import Cell, Study, expand, load_cell

_log = logging.getLogger(__name__)

Chain = Literal["afterok", "afterany"]
_OF_ONE_CELL = ("work", "output_dir", "array")  # of a job; the tasks of an array agree in all else
_SCRIPTS = "array-{}.sbatch"


@dataclass(frozen=True, slots=True)
class Array:
    """Cells that one job script runs."""

    job: Job
    script: str
    script_path: Path
    requests: tuple[RunRequest, ...]  # in order; `job.side_by_side` of them for each index of the array
    dependency: str = ""
    waits_for: int | None = None  # index of the array before it, where all arrays together would be too many at a time

    @property
    def submission(self) -> Submission:
        """What is passed to sbatch."""
        return Submission(self.script_path, self.script, self.dependency)


@dataclass(frozen=True, slots=True)
class CellPlan:
    """A cell that is to be submitted."""

    state: RunState
    request: RunRequest


def plan_cells(
    study: Study,
    *,
    logs_root: Path,
    dataset_root: Path,
    overrides: Sequence[str],
    find_site: Callable[[str], Site],
    to_train: bool = False,
    code_snapshot: bool | None = None,
) -> list[CellPlan]:
    """Plan every cell that is neither done nor alive in a job; all problems of all cells at once.

    `code_snapshot`: as `with_code` takes it.
    """
    from graphmill.tasks import planning

    plans: list[CellPlan] = []
    problems: list[Problem] = []
    cells = {cell.name: cell for cell in expand(study)}
    with each_text_once(planning.__name__):  # of the dataset, which most cells share
        for state in _to_submit(study, logs_root):
            try:
                experiment = load_cell(study, Cell(state.name, (*cells[state.name].overrides, *overrides)))
                named = {"job_name_prefix": experiment.slurm.job_name_prefix or study.name[:100], "array": None}
                slurm = experiment.slurm.model_copy(update=named)
                experiment = experiment.model_copy(update={"slurm": slurm})
                request = plan_request(
                    experiment,
                    find_site(experiment.slurm.site),
                    dataset_root=dataset_root,
                    folder=state.folder,
                    logs_root=logs_root,
                    to_train=to_train,
                )
                if state.status != NEW:
                    refuse_other_plan(state.folder, state.folder.read_plan(), request.plan)
                plans.append(CellPlan(state, request))
            except UserError as error:
                add_problem(problems, f"cell {state.name}", error)
    if not problems:
        requests = with_code([each.request for each in plans], copies=code_snapshot, environ=os.environ)
        plans = [replace(each, request=request) for each, request in zip(plans, requests, strict=True)]
        problems = list(unfit_requests([f"cell {each.state.name}" for each in plans], requests))
    refuse(problems, f"study {study.name}")
    return plans


def _to_submit(study: Study, logs_root: Path) -> list[RunState]:
    states = runs_of_study(study, logs_root).states()
    jobs = {state.run_id: state.folder.jobs() for state in states if state.status != NEW}
    everything = [job for known in jobs.values() for job in known]
    queue = Queue()
    readings = queue.read(everything) if everything else {}
    if queue.troubles and any(job.job_id not in readings for job in everything):
        raise UserError(
            f"cannot query Slurm for the jobs of the cells: {'; '.join(queue.troubles)}",
            fix="try again when Slurm answers",
        )
    wanted = []
    for state in states:
        living = alive(jobs.get(state.run_id, ()), readings)
        if state.status == DONE:
            _log.info(f"{state.name}: done already")
        elif living:
            _log.info(f"{state.name}: job {living[0].job_id} {living[0].phase} already")
        else:
            wanted.append(state)
    return wanted


def make_arrays(
    plans: Sequence[CellPlan],
    *,
    study: Study,
    logs_root: Path,
    at_once: int | None,
    pack: int = 1,
    find_site: Callable[[str], Site] | None = None,
    dependency: str = "",
) -> list[Array]:
    """One array per kind of job. `at_once`: how many cells of all arrays together may run at a time.

    `pack`: how many cells share a job, side by side on its host; `find_site` then tells what a host holds.
    """
    kinds: dict[str, list[RunRequest]] = {}
    for plan in plans:
        kinds.setdefault(_kind(plan.request.job), []).append(plan.request)
    for requests in kinds.values():
        if pack > 1:
            _refuse_to_pack(requests[0].job, min(pack, len(requests)), find_site)
    folder = logs_root / study.name
    throttles = throttled([-(-len(requests) // pack) for requests in kinds.values()], _tasks_at_once(at_once, pack))
    arrays = [
        replace(_array(requests, folder, number, throttle.tasks, dependency, pack), waits_for=throttle.waits_for)
        for number, (requests, throttle) in enumerate(zip(kinds.values(), throttles, strict=True), start=1)
    ]
    if any(array.waits_for is not None and array.job.on_time_limit == "resubmit" for array in arrays):
        raise UserError(
            f"--at-once {at_once} is less than the {len(arrays)} arrays of unlike jobs, so some must wait for others,"
            " and they cannot wait for jobs that are submitted later (slurm.on_time_limit=resubmit)",
            fix=f"--at-once {len(arrays)} or more, or slurm.on_time_limit=requeue",
        )
    return arrays


def _tasks_at_once(at_once: int | None, pack: int) -> int | None:
    if at_once is not None and at_once < pack:
        raise UserError(
            f"--at-once {at_once} is less than the {pack} cells of --pack, which run at a time",
            fix=f"--pack {at_once}, or --at-once {pack} or more",
        )
    return None if at_once is None else at_once // pack


def _refuse_to_pack(job: Job, number: int, find_site: Callable[[str], Site] | None) -> None:
    """Raise a `UserError` where such cells cannot share a job."""
    if job.hosts > 1:
        raise UserError(
            f"--pack puts cells on one host, but those of {job.name} ask for {job.hosts} each",
            fix="leave out --pack: cells of several hosts have jobs of their own",
        )
    if job.on_time_limit == "resubmit":
        raise UserError(
            "cells that share a job cannot each submit the next one (slurm.on_time_limit=resubmit)",
            fix="set slurm.on_time_limit=requeue, or leave out --pack",
        )
    if job.gres is not None and job.gres != f"gpu:{job.gpus_per_host}":
        raise UserError(
            f"--pack cannot tell what {number} times slurm.gres={job.gres} is",
            fix="give --gpus-per-host (and a constraint for their type) in place of slurm.gres",
        )
    if find_site is not None:
        each = ResourceRequest(
            time_s=job.time_s, hosts=1, cpus=job.cpus_per_host, gpus=job.gpus_per_host, gpu_type=None,
            memory_mib=None if job.mem is None else mib_of(job.mem), qos=job.qos,
            slurm_partition=job.slurm_partition, constraint=job.constraint, account=job.account,
        )  # fmt: skip
        refuse_too_many_side_by_side(find_site(job.site), each, number)


@dataclass(frozen=True, slots=True)
class Throttle:
    """How many tasks of one array run at a time, and which array it waits for."""

    tasks: int | None  # that may run at a time; None: all
    waits_for: int | None  # index of the array that must have ended before; None: it starts with the study


def throttled(counts: Sequence[int], at_once: int | None) -> list[Throttle]:
    """How arrays of these many tasks keep to `at_once` tasks at a time, all together.

    Arrays stand in lanes, at most `at_once`, which run side by side; in a lane one waits for the one before. A lane
    gets tasks in proportion to its own.

    >>> [(each.tasks, each.waits_for) for each in throttled([6, 2, 1], 4)], throttled([3], None)[0].tasks
    ([(2, None), (1, None), (1, None)], None)
    """
    if at_once is None:
        return [Throttle(None, None) for _ in counts]
    lanes = min(len(counts), at_once)
    total = [sum(counts[lane::lanes]) for lane in range(lanes)]
    most = [max(counts[lane::lanes]) for lane in range(lanes)]
    tasks = [1] * lanes
    for _ in range(at_once - lanes):
        open_ones = [lane for lane in range(lanes) if tasks[lane] < most[lane]]
        if not open_ones:
            break
        tasks[max(open_ones, key=lambda lane: total[lane] / tasks[lane])] += 1
    return [Throttle(tasks[index % lanes], index - lanes if index >= lanes else None) for index in range(len(counts))]


def _kind(job: Job) -> str:
    return job.model_dump_json(exclude=set(_OF_ONE_CELL))


def _array(
    requests: Sequence[RunRequest], folder: Path, number: int, at_once: int | None, dependency: str, pack: int
) -> Array:
    together = min(pack, len(requests))
    count = -(-len(requests) // together)
    indices = f"0-{count - 1}" + (f"%{at_once}" if at_once is not None and at_once < count else "")
    runs = tuple(str(request.folder.path) for request in requests)
    work = TrainRuns(run_folders=runs, begin=None, side_by_side=together)
    job = requests[0].job.model_copy(update={"array": indices, "work": work, "output_dir": str(folder)})
    return Array(job, render_script(job), folder / _SCRIPTS.format(number), tuple(requests), dependency)


def submit_array(array: Array, environ: Mapping[str, str]) -> list[SubmittedJob]:
    """Submit the cells as the tasks of one array; all run folders are made, or none."""
    check_with_slurm(array.submission, environ)
    folders = [request.folder for request in array.requests]
    with ExitStack() as stack:
        for request in array.requests:
            stack.enter_context(_opened(request))
            request.folder.stop_path.unlink(missing_ok=True)
        stack.enter_context(_written(array))
        earlier = [job for folder in folders for job in folder.jobs()]
        whole = submit_script(array.submission, environ, earlier=earlier)
        jobs = [whole.model_copy(update=each) for each in _tasks(whole.job_id, len(folders), array.job.side_by_side)]
        note(folders, jobs)
    return jobs


def _tasks(job_id: str, number: int, cells_per_task: int) -> Iterator[dict[str, Any]]:
    """Task that holds each cell, in the order of cells, and how many cells that task holds."""
    for index in range(number):
        task = index // cells_per_task
        yield {"job_id": f"{job_id}_{task}", "side_by_side": min(cells_per_task, number - task * cells_per_task)}


@contextmanager
def _written(array: Array) -> Iterator[None]:
    """The script of the array; removed along with the run folders if the block fails."""
    write_text(array.script_path, array.script)
    try:
        yield
    except SlurmSilentError:  # a job may be queued that needs it
        raise
    except BaseException:
        array.script_path.unlink(missing_ok=True)
        raise


@contextmanager
def _opened(request: RunRequest) -> Iterator[None]:
    """The run folder of a cell, new or existing, with its own job and script: those that continue it alone."""
    if not request.folder.plan_path.exists():
        with request.new_folder():
            request.write()
            yield
        return
    with request.folder.lock():
        refuse_alive(request.folder)
        request.write()
        yield


def submit_chain(
    plans: Sequence[CellPlan], *, chain: Chain, dependency: str, environ: Mapping[str, str]
) -> Iterator[tuple[CellPlan, SubmittedJob]]:
    """Submit the cells as jobs of which each waits for the one before."""
    for plan in plans:
        if plan.request.job.on_time_limit == "resubmit":
            raise UserError(
                "a chain cannot wait for jobs that are submitted later: their ids are not known yet",
                fix="set slurm.on_time_limit=requeue, or leave out --chain",
            )
    for plan in plans:
        request = replace(plan.request, dependency=dependency)
        is_new = not request.folder.plan_path.exists()
        job = submit_new(request, environ) if is_new else resubmit(request, environ)
        dependency = f"{chain}:{job.job_id}"
        yield plan, job
