"""What a cluster says of itself: its configuration, Slurm partitions, hosts, and what the user may ask for.

Read with `scontrol show config|partition|node --oneliner` and sacctmgr. What a version does not print is None.
"""

import getpass
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from graphmill.base.amounts import mib_of, span_of
from graphmill.slurm.accounting import tres
from graphmill.slurm.commands import SlurmError, call, scontrol

# A value ends at the next blank: those that hold blanks (OS=, Reason=, Comment=) are not asked for here.
_ENTRY: Final = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z_]*)=(\S*)")
_SETTING: Final = re.compile(r"^(\S+)\s*=\s?(.*)$", re.MULTILINE)
_GPU: Final = re.compile(r"gpu(?::([A-Za-z_][A-Za-z0-9_.-]*))?(?::([0-9]+))?(?:\([^)]*\))?")
_NO_VALUE: Final = ("", "(null)", "N/A", "NONE", "UNLIMITED", "INFINITE")


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition as Slurm has configured it."""

    name: str
    is_default: bool
    is_open: bool  # it starts jobs, and not for root alone
    max_time_s: float | None
    default_time_s: float | None
    max_hosts: int | None
    max_memory_per_cpu_mib: float | None
    cpus_per_gpu: int | None  # that come with a GPU unless a job says otherwise
    preempt_mode: str  # off, cancel, requeue or suspend: what befalls its jobs
    accounts: frozenset[str] | None  # that may use it; None: all
    qos: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Host:
    """A host as Slurm has configured it."""

    name: str
    cpus: int  # for jobs
    memory_mib: int  # for jobs
    gpus: int
    gpu_type: str | None  # None: without GPUs, or their type is not configured
    features: tuple[str, ...]
    slurm_partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service that the user may ask for."""

    name: str
    max_time_s: float | None
    max_hosts: int | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """Configuration of a cluster, as Slurm reports it."""

    settings: Mapping[str, str]  # `scontrol show config`
    slurm_partitions: tuple[SlurmPartition, ...]
    hosts: tuple[Host, ...]
    qos: tuple[Qos, ...]  # empty: no accounting, or it enforces none
    accounts: frozenset[str] | None  # of the user; None: no accounting
    default_account: str | None  # of the user

    @property
    def enforces(self) -> frozenset[str]:
        """What the accounting enforces: associations, limits, qos."""
        return frozenset((self.setting("AccountingStorageEnforce") or "").lower().split(","))

    def setting(self, name: str) -> str | None:
        """A line of the configuration; None where it is unset, unlimited or unknown to this version."""
        value = self.settings.get(name, "").strip()
        return None if value in _NO_VALUE else value

    def number(self, name: str) -> int | None:
        """The number that a setting begins with: `30 sec` is 30."""
        found = re.match(r"[0-9]+", self.setting(name) or "")
        return int(found[0]) if found else None


def read_cluster() -> Cluster:
    """Ask Slurm. Raises `SlurmError` if the controller does not answer; a cluster without accounting is none."""
    settings = dict(_SETTING.findall(scontrol(["show", "config"])))
    cluster_mode = _mode(settings.get("PreemptMode", "OFF"), otherwise="off")
    has_preemption = settings.get("PreemptType", "").strip() not in ("", "(null)", "preempt/none")
    user = getpass.getuser()
    associations = _accounting("association", f"user={user}", "format=Account,QOS")
    default = _accounting("user", f"name={user}", "format=User,DefaultAccount")
    limits = _accounting("qos", "", "format=Name,MaxWall,MaxTRES")
    allowed = {name for row in associations or () for name in row["QOS"].split(",") if name}
    inherited = {"MaxMemPerCPU": settings["MaxMemPerCPU"]} if "MaxMemPerCPU" in settings else {}
    return Cluster(
        settings={name: value.strip() for name, value in settings.items()},
        slurm_partitions=tuple(
            partition_of(inherited | entry, cluster_mode if has_preemption else None) for entry in _entries("partition")
        ),
        hosts=tuple(host_of(entry) for entry in _entries("node") if entry.get("Partitions")),
        qos=tuple(_qos(row) for row in limits or () if row["Name"] in allowed),
        accounts=None if associations is None else frozenset(row["Account"] for row in associations),
        default_account=next(
            filter(None, (row.get("Def Acct") or row.get("DefaultAccount") for row in default or ())), None
        ),
    )


def partition_of(entry: Mapping[str, str], cluster_mode: str | None) -> SlurmPartition:
    """A line of `scontrol show partition`. `cluster_mode`: PreemptMode of the cluster; None: nothing is preempted."""
    defaults = dict(part.partition("=")[::2] for part in _list(entry.get("JobDefaults", "")) or ())
    return SlurmPartition(
        name=entry["PartitionName"],
        is_default=entry.get("Default") == "YES",
        is_open=entry.get("State") == "UP" and entry.get("RootOnly") != "YES" and entry.get("ReqResv") != "YES",
        max_time_s=span_of(entry.get("MaxTime", "")),
        default_time_s=span_of(entry.get("DefaultTime", "")),
        max_hosts=_count(entry.get("MaxNodes", "")),
        max_memory_per_cpu_mib=_memory(entry.get("MaxMemPerCPU", "")),
        cpus_per_gpu=_count(defaults.get("DefCpuPerGPU", "")),
        preempt_mode="off" if cluster_mode is None else _mode(entry.get("PreemptMode", ""), otherwise=cluster_mode),
        accounts=_allowed(entry.get("AllowAccounts", "ALL")),
        qos=_allowed(entry.get("AllowQos", "ALL")),
    )


def host_of(entry: Mapping[str, str]) -> Host:
    """A line of `scontrol show node`.

    >>> one = {"NodeName": "n1", "CPUTot": "8", "RealMemory": "4000", "Gres": "gpu:a100:4(S:0-1)", "Partitions": "gpu"}
    >>> host_of(one).gpus, host_of(one).gpu_type
    (4, 'a100')
    """
    gpus = [_GPU.fullmatch(part) for part in _gres_parts(entry.get("Gres", ""))]
    found = [(match[1], int(match[2] or 1)) for match in gpus if match]
    types = {kind for kind, _ in found}
    return Host(
        name=entry["NodeName"],
        cpus=int(entry.get("CPUEfctv") or entry["CPUTot"]),
        memory_mib=int(entry["RealMemory"]) - (_count(entry.get("MemSpecLimit", "")) or 0),
        gpus=sum(count for _, count in found),
        gpu_type=types.pop() if len(types) == 1 else None,
        features=_list(entry.get("AvailableFeatures", "")) or (),
        slurm_partitions=_list(entry.get("Partitions", "")) or (),
    )


def _entries(what: str) -> list[dict[str, str]]:
    lines = scontrol(["show", what, "--oneliner"]).splitlines()
    return [entry for line in lines if len(entry := dict(_ENTRY.findall(line))) > 1]


def _accounting(what: str, where: str, fields: str) -> list[dict[str, str]] | None:
    """Rows of sacctmgr; None where nobody keeps accounts."""
    try:
        out, _ = call("sacctmgr", ["--parsable2", "show", what, *([where] if where else []), fields])
    except SlurmError:
        return None
    lines = [line.split("|") for line in out.splitlines() if line]
    return [dict(zip(lines[0], cells, strict=False)) for cells in lines[1:]] if lines else []


def _qos(row: Mapping[str, str]) -> Qos:
    return Qos(row["Name"], span_of(row.get("MaxWall", "")), _count(tres(row.get("MaxTRES", "")).get("node", "")))


def _mode(text: str, *, otherwise: str) -> str:
    """One word: GANG is about time slices, and goes with another.

    >>> _mode("GANG,SUSPEND", otherwise="off"), _mode("", otherwise="requeue")
    ('suspend', 'requeue')
    """
    words = [word for word in text.strip().lower().split(",") if word in ("off", "cancel", "requeue", "suspend")]
    return words[0] if words else otherwise


def _gres_parts(text: str) -> list[str]:
    """Split at commas that are not in brackets: `gpu:v100:2(S:0,1),nvme:1`."""
    return [] if text in _NO_VALUE else re.split(r",(?![^(]*\))", text)


def _list(text: str) -> tuple[str, ...] | None:
    return None if text in _NO_VALUE else tuple(part for part in text.split(",") if part)


def _allowed(text: str) -> frozenset[str] | None:
    names = _list(text)
    return None if text == "ALL" or names is None else frozenset(names)


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _memory(text: str) -> float | None:
    return None if text in _NO_VALUE or text == "0" else mib_of(text)
