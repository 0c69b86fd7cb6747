"""A job that asks Slurm for something else than before: what its ranks compute stays as planned. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from graphmill.base.amounts import clock_of, mib_of, seconds_of
from graphmill.base.errors import UserError
from graphmill.config.problems import Problem, refuse
from graphmill.runtime.snapshot import Snapshot
from graphmill.spec.job.limits import ResourceRequest, limit_problems
from graphmill.spec.job.options import SlurmSpec
from graphmill.spec.job.resolve import Job, signal_before_s
from graphmill.spec.job.site import Site
from graphmill.spec.job.text import text_problems
from graphmill.spec.load import inline_experiment
from graphmill.spec.roles import fits
from graphmill.spec.world import World

_SECTION: Final = "slurm."
_RANKS: Final = "train.ranks"
_SIZES: Final = ("hosts", "ranks_per_host")
"""How many continue a run: the same global batches are cut among them, so that the plan stays as it is."""
HOW_MANY: Final = (_RANKS, *(f"{_SECTION}{name}" for name in _SIZES))
_AS_ASKED: Final = (
    *("account", "qos", "slurm_partition", "constraint", "reservation", "dependency", "exclusive", "nice", "comment"),
    *("mem", "mail_user", "mail_type", "on_time_limit", "max_attempts", "retries"),
)
_GPUS: Final = re.compile(r"(gpu(?::[A-Za-z][A-Za-z0-9_.-]*)?:)\d+")
_AFTER_THE_SITES: Final = ("modules", "setup_lines", "sbatch_args")
MAY_CHANGE: Final = (*_AS_ASKED, *_AFTER_THE_SITES, "time", "signal_before_s", "env", "interface", "port")


def changed_job(job: Job, site: Site, overrides: Sequence[str]) -> Job:
    """`job` with overrides such as `slurm.mem=8G` laid over it: what Slurm is asked for, and how many hosts and ranks.

    Raises `UserError` for a key that the run's plan depends on, and for what the site cannot give.
    """
    for text in overrides:
        _refuse_planned(text.partition("=")[0])
    asked = inline_experiment({}, "the options", list(overrides))
    slurm = asked.slurm
    problems = list(text_problems(slurm))
    changes = dict(_changes(job, slurm, site, problems)) | dict(_size(job, slurm, asked.train.ranks, problems))
    changed = Job.model_validate(job.model_dump() | changes)
    problems += limit_problems(site, _request_of(changed))
    refuse(problems, f"the request to {site.name}")
    return changed


def differences(before: Job, after: Job) -> tuple[str, ...]:
    """What a job asks for otherwise, in words such as `mem 4G → 8G`."""
    return tuple(
        f"{name.removesuffix('_s')} {_shown(name, old)} → {_shown(name, new)}"
        for name in Job.model_fields
        if name not in ("work", "remarks") and (old := getattr(before, name)) != (new := getattr(after, name))
    )


def _shown(name: str, value: object) -> str:
    if name == "time_s" and isinstance(value, int):
        return clock_of(value)
    if isinstance(value, Snapshot):
        return value.sha256[:12]
    return "none" if value in (None, (), {}) else str(value)


def _refuse_planned(key: str) -> None:
    name = key.removeprefix(_SECTION).partition(".")[0]
    may_change = name in (*MAY_CHANGE, *_SIZES) or name not in SlurmSpec.model_fields
    if key == _RANKS or (key.startswith(_SECTION) and may_change):
        return  # a key that does not exist is refused where the options are read
    raise UserError(
        f"{key} cannot change when a run is resumed: its plan depends on it, or its files lie by it",
        fix=f"resume with what Slurm is asked for only ({', '.join(sorted(MAY_CHANGE))}), with another number of hosts"
        " or ranks (hosts, ranks_per_host, train.ranks), or start a new run",
    )


def _size(
    job: Job, slurm: SlurmSpec, ranks: int | Literal["auto"], problems: list[Problem]
) -> Iterator[tuple[str, Any]]:
    """The fields of the job that say how many continue; a host keeps its CPUs, and a rank its GPU, if it has one."""
    hosts = slurm.hosts if "hosts" in slurm.model_fields_set else job.hosts
    each = job.ranks_per_host if slurm.ranks_per_host == "auto" else slurm.ranks_per_host
    if ranks != "auto":
        processes = ranks + job.samplers  # which stay
        with_samplers = f" with {job.samplers} samplers" if job.samplers else ""
        if processes % hosts:
            what = f"is {ranks}{with_samplers}, which does not divide among {hosts} hosts"
            fitting = -(-processes // hosts) * hosts - job.samplers
            problems.append(Problem(_RANKS, what, f"give {fitting}, or other slurm.hosts"))
        elif slurm.ranks_per_host not in ("auto", processes // hosts):
            what = f"is {ranks}{with_samplers}, but {hosts} hosts with slurm.ranks_per_host={each} start {hosts * each}"
            problems.append(Problem(_RANKS, what, "leave out one of the two"))
        each = max(1, processes // hosts)
    elif hosts != job.hosts and job.samplers and slurm.ranks_per_host == "auto":  # as many ranks go on
        each = max(1, (job.ranks + job.samplers) // hosts)
    if hosts != job.hosts:
        yield "hosts", hosts
        stem, number = job.name.removesuffix(f"-n{job.hosts}"), f"-n{job.hosts}"
        yield "name", f"{stem}-n{hosts}" if job.name.endswith(number) else job.name
    if each == job.ranks_per_host:
        return
    yield "ranks_per_host", each
    yield "cpus_per_rank", max(1, job.cpus_per_host // each)
    before, now = _ranks_here(job, job.hosts, job.ranks_per_host), _ranks_here(job, hosts, each)
    if job.gpus_per_host == before:
        yield "gpus_per_host", now
        if job.gres is not None:
            yield "gres", _GPUS.sub(rf"\g<1>{now}", job.gres)


def _ranks_here(job: Job, hosts: int, processes: int) -> int:
    """Ranks on each host that has ranks; all of its processes where roles do not fit, which is refused elsewhere."""
    ranks = hosts * processes - job.samplers
    if not job.samplers or ranks < 1 or not fits(job.samplers, ranks, hosts):
        return processes
    return World(hosts=hosts, ranks=ranks, threads=1, samplers=job.samplers).ranks_per_host


def _changes(job: Job, slurm: SlurmSpec, site: Site, problems: list[Problem]) -> Iterator[tuple[str, Any]]:
    """The fields of the job that differ."""
    given = slurm.model_fields_set
    for name in _AS_ASKED:
        if name in given:
            yield name, getattr(slurm, name)
    firsts = {"modules": site.modules, "setup_lines": site.setup_lines, "sbatch_args": site.defaults.sbatch_args}
    for name in _AFTER_THE_SITES:
        if name in given:
            yield name, (*firsts[name], *getattr(slurm, name))
    if "env" in given:
        yield "env", dict(sorted({**job.env, **{name: str(value) for name, value in slurm.env.items()}}.items()))
    if "interface" in given:
        yield "interface", None if slurm.interface == "auto" else slurm.interface
    if "port" in given:
        yield "port", None if slurm.port == "auto" else slurm.port
    time_s = job.time_s if slurm.time is None else seconds_of(slurm.time)
    if time_s is None:
        problems.append(
            Problem("slurm.time", f"is {slurm.time!r}, but it takes minutes, HH:MM:SS or D-HH:MM:SS", "write 00:30:00")
        )
        return
    yield "time_s", time_s
    if slurm.mem is not None and mib_of(slurm.mem) is None:
        problems.append(Problem("slurm.mem", f"is {slurm.mem!r}, but it takes an amount such as 85G", "write 85G"))
    was_auto = job.signal_before_s == signal_before_s(SlurmSpec(), job.time_s)
    warned_s = signal_before_s(slurm, time_s) if "signal_before_s" in given or was_auto else job.signal_before_s
    yield "signal_before_s", warned_s
    if warned_s >= time_s:
        problems.append(
            Problem(
                "slurm.signal_before_s",
                f"is {warned_s} s, but the job has {time_s} s in all",
                f"set slurm.signal_before_s={max(1, time_s // 4)}, or a longer slurm.time",
            )
        )


def _request_of(job: Job) -> ResourceRequest:
    return ResourceRequest(
        time_s=job.time_s,
        hosts=job.hosts,
        cpus=job.cpus_per_host,
        gpus=job.gpus_per_host,
        gpu_type=None,
        memory_mib=None if job.mem is None else mib_of(job.mem),
        qos=job.qos,
        slurm_partition=job.slurm_partition,
        constraint=job.constraint,
        account=job.account,
    )
