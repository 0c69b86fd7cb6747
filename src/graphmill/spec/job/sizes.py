"""How many hosts, ranks, cores and GPUs a job asks for, and for how long. Pure."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from graphmill.base.amounts import mib_of, seconds_of
from graphmill.base.errors import UserError
from graphmill.config.problems import Problem
from graphmill.spec.experiment import Experiment, without_trial
from graphmill.spec.job.limits import ResourceRequest, fitting_kinds
from graphmill.spec.job.options import SlurmSpec
from graphmill.spec.job.site import HostKind, Site
from graphmill.spec.roles import RolesSpec, fits, hosts_that_train, refuse_other_ranks

_GPUS_IN_GRES: Final = re.compile(r"(?:^|,)gpu(?::([A-Za-z][A-Za-z0-9_.-]*))?(?::([0-9]+))?(?=,|$)")


@dataclass(frozen=True, slots=True)
class JobSize:
    """What is asked of the batch system, and how it is shared out on a host."""

    request: ResourceRequest
    ranks: int  # processes of each host, of both roles
    cpus_per_rank: int


def sizes_of(experiment: Experiment, slurm: SlurmSpec, site: Site, problems: list[Problem]) -> JobSize:
    """Every size with its choice made; what clashes is added to `problems`."""
    gpu_type, in_gres = gpus_in_gres(slurm.gres)
    kinds = fitting_kinds(site, constraint=slurm.constraint, slurm_partition=slurm.slurm_partition, gpu_type=gpu_type)
    gpus = _gpus(experiment, slurm, site, in_gres, kinds)
    ranks = _ranks(experiment, slurm, gpus, problems)
    cpus = _cpus(experiment, slurm, site, ranks, gpus, kinds)
    if cpus % ranks:
        lower = cpus // ranks * ranks
        problems.append(
            Problem(
                "slurm.cpus_per_host",
                f"is {cpus}, which does not divide among {ranks} ranks of a host",
                f"set slurm.cpus_per_host={lower or ranks} or {lower + ranks}",
            )
        )
    time_s = seconds_of(slurm.time or "")
    if time_s is None:
        problems.append(
            Problem("slurm.time", f"is {slurm.time!r}, but it takes minutes, HH:MM:SS or D-HH:MM:SS", "write 00:30:00")
        )
    memory = None if slurm.mem is None else mib_of(slurm.mem)
    if slurm.mem is not None and memory is None:
        problems.append(Problem("slurm.mem", f"is {slurm.mem!r}, but it takes an amount such as 85G", "write 85G"))
    request = ResourceRequest(
        time_s=time_s or 0,
        hosts=slurm.hosts,
        cpus=cpus,
        gpus=gpus,
        gpu_type=gpu_type,
        memory_mib=memory,
        qos=slurm.qos,
        slurm_partition=slurm.slurm_partition,
        constraint=slurm.constraint,
        account=slurm.account,
    )
    return JobSize(request, ranks, max(1, cpus // ranks))


def gpus_in_gres(gres: str | None) -> tuple[str | None, int | None]:
    """The type and number of GPUs that --gres names."""
    found = _GPUS_IN_GRES.search(gres or "")
    return (found[1], int(found[2] or 1)) if found else (None, None)


def _gpus(experiment: Experiment, slurm: SlurmSpec, site: Site, in_gres: int | None, kinds: dict[str, HostKind]) -> int:
    if slurm.gpus_per_host is not None:
        return slurm.gpus_per_host
    if in_gres is not None:
        return in_gres
    none_has_gpus = bool(kinds) and not any(kind.gpus for kind in kinds.values())
    if experiment.train.device == "cpu" or none_has_gpus:
        return 0
    roles = experiment.roles
    if roles is None or not fits(roles.samplers, roles.trainers, slurm.hosts):
        return site.defaults.gpus_per_host
    return min(site.defaults.gpus_per_host, roles.trainers // hosts_that_train(roles, slurm.hosts))


def _of_roles(
    roles: RolesSpec, ranks: int | Literal["auto"], slurm: SlurmSpec, gpus: int, problems: list[Problem]
) -> int:
    """Processes of each host, of both roles."""
    try:
        refuse_other_ranks(roles, ranks)
        train_on = hosts_that_train(roles, slurm.hosts)
    except UserError as error:
        problems.append(Problem("roles", error.message.removeprefix("roles: "), error.fix))
        return 1
    each, trainers_here = roles.num_processes // slurm.hosts, roles.trainers // train_on
    if slurm.ranks_per_host not in ("auto", each):
        what = f"is {slurm.ranks_per_host} on {slurm.hosts} hosts, but roles starts {each} processes on each"
        problems.append(Problem("slurm.ranks_per_host", what, "leave it out"))
    if gpus and trainers_here > gpus:
        what = f"puts {trainers_here} trainers on a host, and each wants a GPU, but a host has {gpus}"
        fix = f"set roles.trainers={gpus * train_on}, slurm.gpus_per_host={trainers_here}, or train.device=cpu"
        problems.append(Problem("roles.trainers", what, fix))
    return each


def _ranks(experiment: Experiment, slurm: SlurmSpec, gpus: int, problems: list[Problem]) -> int:
    """Ranks of each host; with roles, the processes of each host."""
    in_all, each = experiment.train.ranks, slurm.ranks_per_host
    if experiment.roles is not None:
        return _of_roles(experiment.roles, in_all, slurm, gpus, problems)
    if in_all != "auto" and in_all % slurm.hosts:
        up = -(-in_all // slurm.hosts) * slurm.hosts
        problems.append(
            Problem(
                "train.ranks",
                f"is {in_all}, which does not divide among {slurm.hosts} hosts",
                f"set train.ranks={up}, or slurm.ranks_per_host instead",
            )
        )
    elif in_all != "auto" and each not in ("auto", in_all // slurm.hosts):
        problems.append(
            Problem(
                "slurm.ranks_per_host",
                f"is {each} on {slurm.hosts} hosts, but train.ranks is {in_all}",
                "leave out one of the two",
            )
        )
    if each != "auto":
        return each
    if in_all != "auto":
        return max(1, in_all // slurm.hosts)
    return gpus or 1


def _cpus(
    experiment: Experiment, slurm: SlurmSpec, site: Site, ranks: int, gpus: int, kinds: dict[str, HostKind]
) -> int:
    """Cores of each host."""
    threads = without_trial(experiment.train.threads)
    if slurm.cpus_per_host != "auto":
        return slurm.cpus_per_host
    per_gpu = [kind.cpus_per_gpu for kind in kinds.values() if kind.cpus_per_gpu and kind.gpus >= gpus]
    if threads == "auto" and gpus and per_gpu:
        return max(1, min(per_gpu) * gpus // ranks) * ranks
    return ranks * (site.defaults.cpus_per_rank if threads == "auto" else threads)
