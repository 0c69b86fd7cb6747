"""What a dev cluster is to be: hosts, what Slurm believes they have, how fast things happen; where its files are."""

import getpass
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from graphmill.base.errors import UserError

HOME: Final = Path("/run/graphmill")
"""In the cluster's own mount namespace: the same path in every cluster, and never on the disk."""
LOCAL: Final = Path("/run/local")
"""The folder that every host has for itself in any case; jobs find it as $SLURM_TMPDIR."""
HEAD: Final = "head"
ENVIRONMENT_NAME: Final = "GRAPHMILL_DEVCLUSTER"
"""Environment variable of every process of a dev cluster: where the cluster's files are."""

_SUBNET: Final = "10.77.0"
_FIRST_HOST: Final = 10  # host1 has the address .11
_SLURM_PORT: Final = 6817


class Description(BaseModel):
    """A dev cluster as asked for. Memory in MiB, times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_hosts: Annotated[int, Field(ge=1, le=99)] = 4
    cpus: Annotated[int, Field(ge=1, le=256)] = 2
    """Cores that Slurm believes each host has; may be more than there are."""
    memory_mib: Annotated[int, Field(ge=64)] = 4000
    gpus: Annotated[int, Field(ge=0, le=8)] = 2
    """Fake GPUs on each host: character devices that Slurm hands out; nothing can compute on them."""
    gpu_type: Annotated[str, Field(pattern=r"^[a-z0-9_]*$")] = "v100"
    """Empty: the GPUs have no type."""
    accounting: bool = True
    """slurmdbd with MariaDB, so that sacct answers."""
    ssh: bool = True
    out_of_memory: Literal["ignored", "polled", "cgroup"] = "ignored"
    """What happens to a job that takes more memory than it asked for: nothing; Slurm notices within seconds and kills
    it (FAILED or CANCELLED); the kernel kills it at once (OUT_OF_MEMORY; needs root and cgroup v1)."""
    private: tuple[Path, ...] = ()
    """Folders private to each host, in addition to /run/local."""
    private_mib: Annotated[int, Field(ge=1)] = 1024
    """The size of each private folder on each host; they are held in memory, and full when they are full."""
    requeue_delay_s: Annotated[int, Field(ge=5)] = 5
    """How long a requeued job waits before it may start again (Slurm's cred_expire: 120 s by default, also where less
    than 5 is asked for)."""
    slurmd_timeout_s: Annotated[int, Field(ge=5)] = 20
    """SlurmdTimeout: a host that does not respond for this long is down."""
    min_job_age_s: Annotated[int, Field(ge=2)] = 300
    """squeue and scontrol forget an ended job after this."""
    preempt_mode: Literal["requeue", "cancel", "suspend"] = "requeue"
    """What happens to a job in the slurm_partition `preempt` when one in `normal` wants its place."""
    preempt_grace_s: Annotated[int, Field(ge=0)] = 0
    """GraceTime: how long its steps have after a first SIGTERM; not with `suspend`."""
    settings: tuple[str, ...] = ()
    """Lines at the end of slurm.conf, where they win: another limit, more partitions."""
    slurm_root: Path | None = None
    """Another release of Slurm, unpacked by `releases.install`; None: this machine's."""
    enforce: tuple[str, ...] = ()
    """AccountingStorageEnforce: associations, limits, qos …; empty: any account and QOS is accepted."""

    @field_validator("private")
    @classmethod
    def _absolute(cls, folders: tuple[Path, ...]) -> tuple[Path, ...]:
        for folder in folders:
            if not folder.is_absolute() or folder == Path("/"):
                raise UserError(
                    f"{folder} cannot be private to each host: it is not an absolute path below /",
                    fix="--private /run/scratch",
                )
        return folders

    @field_validator("settings")
    @classmethod
    def _lines(cls, settings: tuple[str, ...]) -> tuple[str, ...]:
        for line in settings:
            if not re.fullmatch(r"[A-Za-z]+=[^\n]+", line):
                raise UserError(f"{line!r} is no line of slurm.conf", fix="--set KillWait=30")
        return settings

    @cached_property
    def hosts(self) -> tuple["Host", ...]:
        """The hosts, in order."""
        return tuple(Host(number) for number in range(1, self.num_hosts + 1))

    @property
    def private_folders(self) -> tuple[Path, ...]:
        """Folders that each host has for itself."""
        return tuple(dict.fromkeys((LOCAL, *self.private)))

    @property
    def user(self) -> str:
        """The user that runs all daemons and jobs."""
        return getpass.getuser()

    def host(self, name: str) -> "Host":
        """The host of that name."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise UserError(f"the dev cluster has no host {name}", fix=f"one of {' '.join(h.name for h in self.hosts)}")

    def save(self) -> None:
        """Write the description to where every process of the cluster finds it."""
        (HOME / "cluster.json").write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def of_this_cluster(cls) -> "Description":
        """The description of the cluster that this process is in."""
        return cls.model_validate_json((HOME / "cluster.json").read_bytes())


class Host:
    """One host of a dev cluster: names, addresses, files."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"host{number}"
        self.address = f"{_SUBNET}.{_FIRST_HOST + number}"
        self.cable = f"cable{number}"  # the head's end of its network cable

    @property
    def init_path(self) -> Path:
        """Holds the id of the host's first process, as the head sees it; absent while the host is off."""
        return HOME / "hosts" / f"{self.name}.pid"

    def disk(self, folder: Path) -> Path:
        """What lies under `folder` on this host; it outlives a crash, as a disk does."""
        return HOME / "disks" / self.name / folder.as_posix().strip("/").replace("/", "_")


class Ports:
    """Ports on the head; the network is the cluster's own, so that they need not vary."""

    slurmctld: Final = _SLURM_PORT
    slurmd: Final = _SLURM_PORT + 1
    slurmdbd: Final = _SLURM_PORT + 2
    mariadb: Final = 3306


def head_address() -> str:
    """The head's address in the cluster's network."""
    return f"{_SUBNET}.1"


def environment(base: dict[str, str]) -> dict[str, str]:
    """`base` as a process of the cluster needs it: no other Slurm's variables, this one's configuration."""
    clean = {name: value for name, value in base.items() if not name.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))}
    path = clean.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {
        **clean,
        "PATH": ":".join(dict.fromkeys([*path.split(":"), "/usr/sbin", "/sbin"])),
        "SLURM_CONF": str(HOME / "etc/slurm.conf"),
        "GRAPHMILL_SSH_CONFIG": str(HOME / "ssh/config"),
        ENVIRONMENT_NAME: str(HOME),
    }
