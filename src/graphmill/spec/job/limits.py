"""Whether a site can give what a job asks for, in the site's own numbers; and whether its GPUs have our kernels."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from graphmill.base.amounts import clock_of, mib_of, seconds_of
from graphmill.base.names import did_you_mean
from graphmill.config.problems import Problem, refuse
from graphmill.runtime.gpus import capability_of, kernels_text
from graphmill.spec.attention import gpu_clash, is_fused, width_clash
from graphmill.spec.experiment import Experiment
from graphmill.spec.job.site import HostKind, QueueLimits, Site


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What the limits are about. The amounts are those of one host."""

    time_s: int
    hosts: int
    cpus: int
    gpus: int
    gpu_type: str | None
    memory_mib: float | None  # None: what Slurm gives; 0: all of it
    qos: str | None
    slurm_partition: str | None
    constraint: str | None
    account: str | None


def fitting_kinds(
    site: Site, *, constraint: str | None, slurm_partition: str | None, gpu_type: str | None
) -> dict[str, HostKind]:
    """The kinds of hosts that such a request may land on; empty if the site lists none, or none fits."""
    listed = _listed_constraints(site)
    words = set(_words(constraint)) & listed  # an unknown word is a problem of its own
    partitions = set((slurm_partition or "").split(",")) - {""}
    chosen = {}
    for name, kind in site.hosts.items():
        by_constraint = not words or bool(words & set(kind.constraints))
        by_partition = not partitions or not kind.slurm_partitions or bool(partitions & set(kind.slurm_partitions))
        by_type = gpu_type is None or kind.gpu_type == gpu_type
        if by_constraint and by_partition and by_type:
            chosen[name] = kind
    return chosen


def limit_problems(site: Site, request: ResourceRequest) -> Iterator[Problem]:
    """What the site cannot give. Nothing if its profile does not say."""
    if site.limits.account_required and request.account is None:
        yield Problem(
            "slurm.account", f"is not given, and {site.name} takes no job without one", "give --account, or set it"
        )
    yield from _unknown("qos", request.qos, site.qos, site)
    for partition in (request.slurm_partition or "").split(","):
        yield from _unknown("slurm_partition", partition or None, site.slurm_partitions, site)
    yield from _unknown_constraint(site, request.constraint)
    yield from _too_long(site, request)
    yield from _too_many_hosts(site, request)
    yield from _too_large(site, request)


def refuse_too_many_side_by_side(site: Site, each: ResourceRequest, number: int) -> None:
    """Raise a `UserError` if no host of the site holds `number` runs at a time. `each`: what one asks for."""
    memory = None if each.memory_mib is None else each.memory_mib * number
    together = replace(each, cpus=each.cpus * number, gpus=each.gpus * number, memory_mib=memory)
    refuse(list(limit_problems(site, together)), f"{number} runs side by side on a host of {site.name}")


def cpus_paid_for(site: Site, request: ResourceRequest) -> tuple[int, str] | None:
    """CPUs that the memory asked for takes beyond those asked for, and why; None if it takes none."""
    if not (site.limits.more_memory_takes_more_cpus and request.memory_mib):
        return None
    each_of = {
        name: mib_of(kind.memory_per_cpu) or 0.0
        for name, kind in _kinds(site, request).items()
        if kind.memory_per_cpu and kind.gpus >= request.gpus
    }
    name = min(each_of, key=lambda known: each_of[known], default=None)
    if name is None or request.memory_mib <= each_of[name] * request.cpus:
        return None
    return math.ceil(request.memory_mib / each_of[name]), f"{each_of[name]:.0f}M each on {name} hosts"


def _kinds(site: Site, request: ResourceRequest) -> dict[str, HostKind]:
    """Kinds of hosts with GPUs if the job uses some, without if not; all fitting kinds if there are none such."""
    kinds = fitting_kinds(
        site, constraint=request.constraint, slurm_partition=request.slurm_partition, gpu_type=request.gpu_type
    )
    alike = {name: kind for name, kind in kinds.items() if bool(kind.gpus) == bool(request.gpus)}
    return alike or kinds


def _words(constraint: str | None) -> list[str]:
    return re.findall(r"[A-Za-z_][A-Za-z0-9_.:=-]*", constraint or "")


def _listed_constraints(site: Site) -> set[str]:
    return {word for kind in site.hosts.values() for word in kind.constraints}


def _unknown(field: str, given: str | None, known: Mapping[str, object], site: Site) -> Iterator[Problem]:
    if given is not None and known and given not in known:
        yield Problem(
            f"slurm.{field}",
            f"is {given}, which {site.name} does not have; {did_you_mean(given, known)}",
            f"set slurm.{field} to one of them",
        )


def _unknown_constraint(site: Site, constraint: str | None) -> Iterator[Problem]:
    known = _listed_constraints(site)
    for word in _words(constraint) if known else ():
        if word not in known:
            yield Problem(
                "slurm.constraint",
                f"names {word}, which {site.name} does not have; {did_you_mean(word, known)}",
                "set slurm.constraint to one of them",
            )


def _queues(site: Site, request: ResourceRequest) -> Iterator[tuple[str, QueueLimits]]:
    if request.qos in site.qos:
        yield f"qos {request.qos}", site.qos[str(request.qos)]
    for name in (request.slurm_partition or "").split(","):
        if name in site.slurm_partitions:
            yield f"partition {name}", site.slurm_partitions[name]


def _too_long(site: Site, request: ResourceRequest) -> Iterator[Problem]:
    limits = [(f"in {name}", queue.max_time) for name, queue in _queues(site, request)]
    alone = site.limits.max_time_one_host if request.hosts == 1 else None
    limits.append(("on one host", alone) if alone else ("", site.limits.max_time))
    known = [(seconds_of(limit) or 0, where) for where, limit in limits if limit]
    if known and request.time_s > min(known)[0]:
        seconds, where = min(known)
        allowed = clock_of(seconds)
        yield Problem(
            "slurm.time",
            f"is {clock_of(request.time_s)}, but {site.name} allows {allowed}{' ' if where else ''}{where}",
            f"set slurm.time={allowed} or less; a longer run continues in further jobs",
        )


def _too_many_hosts(site: Site, request: ResourceRequest) -> Iterator[Problem]:
    limits = [(queue.max_hosts, f"allows {queue.max_hosts} in {name}") for name, queue in _queues(site, request)]
    limits.append((site.limits.max_hosts, f"allows {site.limits.max_hosts}"))
    kinds = _kinds(site, request)
    if kinds and all(kind.count for kind in kinds.values()):
        total = sum(kind.count or 0 for kind in kinds.values())
        limits.append((total, f"has {total} such hosts ({', '.join(kinds)})"))
    known = [(most, says) for most, says in limits if most]
    if known and request.hosts > min(known)[0]:
        most, says = min(known)
        yield Problem("slurm.hosts", f"is {request.hosts}, but {site.name} {says}", f"set slurm.hosts={most} or less")


def _too_large(site: Site, request: ResourceRequest) -> Iterator[Problem]:
    """The problems with the kind of host that comes nearest."""
    kinds = _kinds(site, request)
    if not kinds:
        if site.hosts and request.gpu_type is not None:
            types = sorted({kind.gpu_type for kind in site.hosts.values() if kind.gpu_type})
            yield Problem(
                "slurm.gres",
                f"names {request.gpu_type} GPUs, which {site.name} does not have in such hosts;"
                f" it has {', '.join(types) or 'none'}",
                f"set slurm.gres=gpu:{types[0]}:1" if types else "leave out slurm.gres",
            )
        return
    yield from min((list(_beyond(site, name, kind, request)) for name, kind in kinds.items()), key=len)


def _beyond(site: Site, name: str, kind: HostKind, request: ResourceRequest) -> Iterator[Problem]:
    hosts = f"{site.name}'s {name} hosts"
    if request.gpus > kind.gpus:
        yield Problem(
            "slurm.gpus_per_host",
            f"is {request.gpus}, but {hosts} have {kind.gpus or 'no GPU'}",
            f"set slurm.gpus_per_host={kind.gpus}" + (" or less" if kind.gpus else " and train.device=cpu"),
        )
    if request.cpus > kind.cpus:
        yield Problem(
            "slurm.cpus_per_host",
            f"is {request.cpus}, but {hosts} have {kind.cpus}",
            f"set slurm.cpus_per_host={kind.cpus} or less",
        )
    elif request.gpus and kind.max_cpus_per_gpu and request.cpus > request.gpus * kind.max_cpus_per_gpu:
        most = request.gpus * kind.max_cpus_per_gpu
        yield Problem(
            "slurm.cpus_per_host",
            f"is {request.cpus} for {request.gpus} GPUs, but {hosts} give {kind.max_cpus_per_gpu} CPUs to a GPU",
            f"set slurm.cpus_per_host={most} or less",
        )
    yield from _too_much_memory(site, hosts, kind, request)


def _too_much_memory(site: Site, hosts: str, kind: HostKind, request: ResourceRequest) -> Iterator[Problem]:
    memory = request.memory_mib
    of_host, of_cpu = mib_of(kind.memory) or 0, mib_of(kind.memory_per_cpu) if kind.memory_per_cpu else None
    if memory is None:
        return
    if memory > of_host:
        yield Problem(
            "slurm.mem",
            f"is {memory:.0f}M for each host, but {hosts} have {kind.memory} for jobs",
            f"set slurm.mem={kind.memory} or less",
        )
    elif of_cpu and memory > of_cpu * request.cpus and not site.limits.more_memory_takes_more_cpus:
        yield Problem(
            "slurm.mem",
            f"is {memory:.0f}M for {request.cpus} CPUs, but {hosts} give {kind.memory_per_cpu} to a CPU",
            f"set slurm.mem={math.floor(of_cpu * request.cpus)}M or less,"
            f" or slurm.cpus_per_host={math.ceil(memory / of_cpu)}",
        )


def _gpu_types(experiment: Experiment, site: Site, request: ResourceRequest) -> list[str]:
    """The GPUs, by Slurm's name, that fused attention may come to run on; none where there is no such thing."""
    if not request.gpus or experiment.train.device == "cpu" or not is_fused(getattr(experiment, "model", None)):
        return []
    kinds = fitting_kinds(
        site, constraint=request.constraint, slurm_partition=request.slurm_partition, gpu_type=request.gpu_type
    )
    types = {kind.gpu_type for kind in kinds.values() if kind.gpu_type and kind.gpus >= request.gpus}
    return sorted(types or ({request.gpu_type} if request.gpu_type else set()))


def kernel_problems(experiment: Experiment, site: Site, request: ResourceRequest) -> Iterator[Problem]:
    """A problem where attention runs on none of the GPUs that the job may get."""
    precision = experiment.train.precision
    types = _gpu_types(experiment, site, request)
    wide = width_clash(getattr(experiment, "model", None)) if types else None
    clashes = [gpu_clash(precision, gpu, capability_of(gpu)) or wide for gpu in types]
    first = clashes[0] if clashes and None not in clashes else None
    if first is not None:
        yield Problem("model.attention", first[0].removeprefix("model.attention "), first[1])


def kernel_notes(experiment: Experiment, site: Site, request: ResourceRequest) -> Iterator[str]:
    """Say in which formats attention runs on the GPUs that the job may get."""
    types = _gpu_types(experiment, site, request)
    if types:
        told = "; ".join(kernels_text(gpu, capability_of(gpu)) for gpu in types)
        yield f"attention is fused, by Triton on GPUs, in these formats: {told}"
