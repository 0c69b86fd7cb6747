"""How the dev cluster that this process is in is doing."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill_devcluster.daemons import process_of
from graphmill_devcluster.description import Description, Host
from graphmill_devcluster.hosts import first_process

_IFF_UP: Final = 1


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host."""

    name: str
    address: str
    power: bool
    cable: bool
    slurm_state: str
    """sinfo's state: idle, mixed, allocated, down …; with a star while it does not respond."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Daemons on the head by process id (None: not running), and the hosts."""

    daemons: dict[str, int | None]
    hosts: tuple[HostStatus, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything that should run does."""
        return None not in self.daemons.values() and all(host.power and host.cable for host in self.hosts)


def status() -> ClusterStatus:
    """Query the daemons and the hosts."""
    cluster = Description.of_this_cluster()
    names = ("munged", *(("mariadbd", "slurmdbd") if cluster.accounting else ()), "slurmctld")
    states = _slurm_states()
    hosts = tuple(
        HostStatus(
            name=host.name,
            address=host.address,
            power=first_process(host) is not None,
            cable=_plugged_in(host),
            slurm_state=states.get(host.name, "unknown"),
        )
        for host in cluster.hosts
    )
    return ClusterStatus({name: process_of(name) for name in names}, hosts)


def _slurm_states() -> dict[str, str]:
    command = ["sinfo", "--noheader", "--Node", "--partition=normal", "--format=%N %T"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {name: state for name, _, state in (line.partition(" ") for line in said.splitlines())}


def _plugged_in(host: Host) -> bool:
    return bool(int(Path(f"/sys/class/net/{host.cable}/flags").read_text(encoding="ascii"), 16) & _IFF_UP)
