"""A site profile from what the cluster says of itself, and Slurm's opinion of jobs by it.

`profile_of` is pure; `probe_job` asks a job on one host; `try_profile` asks `sbatch --test-only`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphmill.base.amounts import clock_of, slurm_memory
from graphmill.base.errors import UserError
from graphmill.cluster.jobs.sbatch import sbatch_environment
from graphmill.cluster.jobs.script import render_script
from graphmill.runtime.roots import SCRATCH_FOLDERS
from graphmill.slurm.commands import sbatch_test_only, srun
from graphmill.slurm.configuration import Cluster, Host, Qos, SlurmPartition
from graphmill.spec.job.resolve import resolve_job
from graphmill.spec.job.site import HostKind, Site
from graphmill.spec.load import DEFAULT_RECIPE, load_experiment

SCRATCH: Final = ("SCRATCH", "WORK", "PSCRATCH", "CSCRATCH")
"""Variables that sites name their fast shared folder by."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_START_S: Final = 60  # that an idle host may take to start a job
_DEFAULT_S: Final = 1800

# Prints `NAME<tab>KiB free<tab>folder` for every variable that names a folder which the job may write to.
_FOLDERS: Final = """for name in "$@"; do
  folder=$(printenv "$name") && [ -d "$folder" ] && [ -w "$folder" ] || continue
  printf '%s\\t%s\\t%s\\n' "$name" "$(df -Pk "$folder" | awk 'NR == 2 { print $4 }')" "$folder"
done"""


@dataclass(frozen=True, slots=True)
class OpenKey:
    """One key that Slurm does not decide."""

    key: str  # dotted: defaults.account
    about: str  # what is asked for, and what is known of it
    known: str  # what to take where nothing else is said; empty: leave the key out
    example: str  # for the line to fill in, where nothing is known
    is_list: bool = False

    def value_of(self, answer: str) -> Any:  # noqa: ANN401  # of a YAML key
        """The key's value by an answer; raises `ValueError` with what is wrong of it."""
        words = answer.replace(",", " ").split()
        if self.is_list:
            return words
        if len(words) > 1:
            raise ValueError("one word")
        word = words[0].removeprefix("$") if self.key == "scratch" else words[0]
        if self.key == "scratch" and _NAME.fullmatch(word) is None:
            raise ValueError("the name of a variable, such as SCRATCH, not a path")
        return word

    def line(self) -> str:
        """The line of the profile to fill in."""
        value = self.known or self.example
        shown = f"[{', '.join(value.split())}]" if self.is_list else value
        return f"{self.key.rpartition('.')[2]}: {shown}  # {self.about}"


def left_open(cluster: Cluster, profile: Mapping[str, Any], environ: Mapping[str, str]) -> list[OpenKey]:
    """What to ask for. `environ`: of the login node, which has the modules and variables of its user."""
    return [*_account(cluster), *_modules(environ), *([] if "scratch" in profile else _scratch(environ))]


def filled_in(profile: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The profile with answers by dotted key, ahead of what it says of hosts."""
    own = {key.removeprefix("defaults."): value for key, value in values.items() if key.startswith("defaults.")}
    top = {key: value for key, value in values.items() if not key.startswith("defaults.")}
    head = {key: profile[key] for key in ("name", "description", "checked") if key in profile}
    defaults = {**own, **profile.get("defaults", {})}
    return {
        **head,
        **({"defaults": defaults} if defaults else {}),
        **top,
        **{k: v for k, v in profile.items() if k not in {*head, "defaults"}},
    }


def with_lines(text: str, unanswered: Iterable[OpenKey]) -> str:
    """The profile's text with a line to fill in for each of what is open, behind `#`, where it belongs."""
    for each in unanswered:
        if not each.key.startswith("defaults."):
            text += f"# {each.line()}\n"
        elif "\ndefaults:\n" in text:
            text = text.replace("\ndefaults:\n", f"\ndefaults:\n  # {each.line()}\n", 1)
        else:
            text += f"# defaults:\n#   {each.line()}\n"
    return text


def _account(cluster: Cluster) -> list[OpenKey]:
    if cluster.accounts is None:  # nobody keeps any
        return []
    names = ", ".join(sorted(cluster.accounts)) or "none that sacctmgr knows"
    if cluster.default_account is not None:
        about = f"the account that pays; yours: {names}; left out: {cluster.default_account}, Slurm's default of yours"
        return [OpenKey("defaults.account", about, "", cluster.default_account)]
    only = next(iter(cluster.accounts)) if len(cluster.accounts) == 1 else ""
    return [OpenKey("defaults.account", f"the account that pays; yours: {names}", only, "NAME")]


def _modules(environ: Mapping[str, str]) -> list[OpenKey]:
    if not any(environ.get(name) for name in ("LOADEDMODULES", "MODULESHOME", "LMOD_CMD")):
        return []
    loaded = " ".join(environ.get("LOADEDMODULES", "").split(":")).strip()
    about = f"modules that every job loads; loaded here: {loaded or 'none'}"
    return [OpenKey("modules", about, loaded, "python/3.11", is_list=True)]


def _scratch(environ: Mapping[str, str]) -> list[OpenKey]:
    there = [name for name in SCRATCH if environ.get(name)]
    about = "the variable that names the fast shared folder; "
    about += f"set here: {', '.join(f'{name}={environ[name]}' for name in there)}" if there else "none is set here"
    return [OpenKey("scratch", about, there[0] if there else "", SCRATCH[0])]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that a variable names inside a job."""

    variable: str
    free_mib: float
    path: str


def probe_job(slurm_partition: str | None) -> list[Folder]:
    """Run a job of one minute on one host, and see which variables name folders there that it may write to.

    Raises `SlurmError` if it does not start within a minute.
    """
    where = [] if slurm_partition is None else [f"--partition={slurm_partition}"]
    options = ["--nodes=1", "--ntasks=1", "--time=1", f"--immediate={_START_S}", "--job-name=graphmill-site-probe"]
    script = ["sh", "-c", _FOLDERS, "sh", *SCRATCH, *SCRATCH_FOLDERS]
    out = srun(["--quiet", *options, *where, *script], timeout_s=2 * _START_S)
    rows = [line.split("\t", 2) for line in out.splitlines() if line.count("\t") >= 2]
    return [Folder(name, int(free) / 1024 if free.isdecimal() else 0.0, path) for name, free, path in rows]


def profile_of(cluster: Cluster, name: str, *, date: str, folders: Sequence[Folder] = ()) -> dict[str, Any]:
    """The mapping of a site profile (`spec.job.site.Site`). What Slurm does not say, and leaves to itself, is left out.

    `date`: of today, as it is written into `checked`. `folders`: what `probe_job` saw.
    """
    usable = [each for each in cluster.slurm_partitions if each.is_open and _is_allowed(each, cluster)]
    names = {each.name for each in usable}
    kinds = _kinds([host for host in cluster.hosts if names & set(host.slurm_partitions)], usable)
    version = cluster.setting("SLURM_VERSION")
    default = next((each for each in usable if each.is_default), None)
    qos = cluster.qos if cluster.enforces & {"qos", "all"} else ()
    profile: dict[str, Any] = {
        "name": name,
        "description": f"{cluster.setting('ClusterName') or name}, as Slurm describes it",
        "checked": f"{date}: graphmill site probe, Slurm {version or 'of unknown version'}",
        "defaults": _defaults(default, kinds),
        "scratch": _first(folders, SCRATCH),
        "host_local": _first(folders, SCRATCH_FOLDERS),
        "hosts": {kind_name: _kind(*kind) for kind_name, kind in kinds.items()},
        "qos": {each.name: _queue(each) for each in qos},
        "slurm_partitions": {each.name: _queue(each) | {"preempt_mode": each.preempt_mode} for each in usable},
        "limits": _limits(cluster, kinds),
        "gpus_as": None if "cons_tres" in (cluster.setting("SelectType") or "cons_tres") else "gres",
        "scheduler": {
            "slurm_version": version,
            "kill_wait_s": cluster.number("KillWait"),
        },
    }
    known: dict[str, Any] = _without_none(profile)
    return known


@dataclass(frozen=True, slots=True)
class Tried:
    """Slurm's opinion of a job that takes a whole host of one kind, with the profile's time."""

    slurm_partition: str
    kind: str
    is_accepted: bool
    answer: str  # of Slurm


def try_profile(site: Site) -> Iterator[Tried]:
    """Ask `sbatch --test-only` about a script for each kind of hosts in each of its partitions; submit none."""
    for name, kind in site.hosts.items():
        for partition in kind.slurm_partitions:
            try:
                script = render_script(resolve_job(load_experiment(DEFAULT_RECIPE, _full_host(kind, partition)), site))
                environment, _ = sbatch_environment(script, os.environ)
                yield Tried(partition, name, True, sbatch_test_only(script, environ=environment))
            except UserError as error:
                yield Tried(partition, name, False, error.message)


def _full_host(kind: HostKind, partition: str) -> list[str]:
    """The overrides that ask for one whole host."""
    gpus = f"slurm.gres=gpu:{kind.gpu_type}:{kind.gpus}" if kind.gpu_type else f"slurm.gpus_per_host={kind.gpus}"
    return [
        f"slurm.slurm_partition={partition}",
        f"slurm.cpus_per_host={kind.cpus}",
        f"slurm.mem={kind.memory}",
        "slurm.ranks_per_host=1",
        "train.ranks=1",
        gpus if kind.gpus else "train.device=cpu",
    ]


_Kind = tuple[Sequence[Host], Mapping[str, SlurmPartition]]


def _is_allowed(partition: SlurmPartition, cluster: Cluster) -> bool:
    """Whether an account of the user may use it; True where nobody keeps accounts."""
    return partition.accounts is None or cluster.accounts is None or bool(partition.accounts & cluster.accounts)


def _kinds(hosts: Iterable[Host], usable: Sequence[SlurmPartition]) -> dict[str, _Kind]:
    """Hosts that are alike in all that a request may name, by a name of their kind; the most numerous first."""
    by_name = {each.name: each for each in usable}
    alike: dict[tuple[Any, ...], list[Host]] = {}
    for host in hosts:
        key = (host.gpu_type, host.gpus, host.cpus, host.memory_mib, host.features, host.slurm_partitions)
        alike.setdefault(key, []).append(host)
    kinds: dict[str, _Kind] = {}
    for members in sorted(alike.values(), key=len, reverse=True):
        first = members[0]
        gpus = f"-{first.gpus}{first.gpu_type or 'gpu'}" if first.gpus else ""
        stem = f"{first.cpus}cpu-{slurm_memory(first.memory_mib)}{gpus}"
        taken = sum(known == stem or known.startswith(f"{stem}.") for known in kinds)
        of_kind = {name: by_name[name] for name in first.slurm_partitions if name in by_name}
        kinds[f"{stem}.{taken + 1}" if taken else stem] = (members, of_kind)
    return kinds


def _kind(hosts: Sequence[Host], partitions: Mapping[str, SlurmPartition]) -> dict[str, Any]:
    first = hosts[0]
    per_cpu = [each.max_memory_per_cpu_mib for each in partitions.values() if each.max_memory_per_cpu_mib]
    per_gpu = [each.cpus_per_gpu for each in partitions.values() if each.cpus_per_gpu] if first.gpus else []
    return {
        "cpus": first.cpus,
        "gpus": first.gpus or None,
        "gpu_type": first.gpu_type,
        "memory": slurm_memory(first.memory_mib),
        "memory_per_cpu": slurm_memory(min(per_cpu)) if per_cpu else None,
        "cpus_per_gpu": min(per_gpu) if per_gpu else None,
        "count": len(hosts),
        "constraints": list(first.features) or None,
        "slurm_partitions": list(partitions),
    }


def _defaults(default: SlurmPartition | None, kinds: Mapping[str, _Kind]) -> dict[str, Any]:
    """The default partition is named, so that its limits are checked; a job takes all GPUs of its smallest host."""
    if default is None:
        return {}
    there = [hosts[0] for hosts, partitions in kinds.values() if default.name in partitions]
    time_s = default.default_time_s or min(default.max_time_s or _DEFAULT_S, _DEFAULT_S)
    return {
        "slurm_partition": default.name,
        "time": clock_of(time_s),
        "gpus_per_host": min((host.gpus for host in there), default=0),
    }


def _queue(queue: SlurmPartition | Qos) -> dict[str, Any]:
    return {
        "max_time": None if queue.max_time_s is None else clock_of(queue.max_time_s),
        "max_hosts": queue.max_hosts,
    }


def _limits(cluster: Cluster, kinds: Mapping[str, _Kind]) -> dict[str, Any]:
    """MaxMemPerCPU does not refuse a job that asks for more memory: Slurm gives it more CPUs."""
    is_limited = any(each.max_memory_per_cpu_mib for _, partitions in kinds.values() for each in partitions.values())
    needs_account = (
        bool(cluster.enforces & {"associations", "limits", "qos", "all"}) and cluster.default_account is None
    )
    return {"more_memory_takes_more_cpus": is_limited or None, "account_required": needs_account or None}


def _first(folders: Sequence[Folder], names: Sequence[str]) -> str | None:
    seen = {folder.variable for folder in folders}
    return next((name for name in names if name in seen), None)


def _without_none(value: Any) -> Any:  # noqa: ANN401  # a YAML mapping
    """Drop unknown values; empty sections are left out, entries of `qos` and partitions stay."""
    if not isinstance(value, dict):
        return value
    kept = {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    sections = ("defaults", "hosts", "qos", "slurm_partitions", "limits", "scheduler")
    return {key: inner for key, inner in kept.items() if not (key in sections and inner == {})}
