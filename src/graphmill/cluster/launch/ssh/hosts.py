"""hosts.yaml: which hosts train, and how each is reached. Read whole, every problem reported at once."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import Field

from graphmill.base.errors import UserError
from graphmill.config.check import examined
from graphmill.config.draft import Draft
from graphmill.config.frozen import Spec
from graphmill.config.problems import Problem, refuse
from graphmill.config.yaml_text import Document, read_document
from graphmill.spec.roles import RolesSpec

S = TypeVar("S", bound=Spec)

_PLAIN: Final = r"^[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*$"  # no control characters; no option in disguise
_NAME: Final = r"^[A-Za-z0-9_\[:][A-Za-z0-9_.:%\[\]-]*$"
OURS: Final = frozenset(
    (
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"),
        *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "GRAPHMILL_LAUNCHER", "GRAPHMILL_TOKEN"),
    )
)
_INSTEAD: Final = {
    "CUDA_VISIBLE_DEVICES": "devices",
    "GLOO_SOCKET_IFNAME": "interface",
    "NCCL_SOCKET_IFNAME": "interface",
    "OMP_NUM_THREADS": "train.threads in the experiment",
}


class HostSettings(Spec):
    """The settings of one host, and under `defaults:` of all."""

    user: str | None = Field(None, pattern=r"^[^\s@:/\x00-\x1f-][^\s@:/\x00-\x1f]*$", description="login; else ssh's")
    port: int | None = Field(None, ge=1, le=65535, description="of sshd; else ssh's")
    python: str | None = Field(None, pattern=_PLAIN, description="interpreter there; else the path of this one")
    directory: str | None = Field(None, pattern=_PLAIN, description="working directory; else the home directory")
    environment: dict[str, str | int] = Field({}, description="variables of the ranks there")
    devices: str | int | None = Field(None, description="CUDA_VISIBLE_DEVICES, such as 0,1; as many ranks start")
    ranks: int | None = Field(None, ge=1, description="ranks to start, where devices does not say it")
    interface: str | None = Field(None, pattern=_NAME, description="network interface; else the one towards rank 0")


class HostEntry(HostSettings):
    """One host."""

    address: str = Field(pattern=_NAME, description="name or number, or a Host of the ssh config")
    name: str | None = Field(None, pattern=_PLAIN, description="what messages call it; else the address")


class HostsFile(Spec):
    """hosts.yaml, but for the hosts themselves."""

    master_addr: str | None = Field(None, pattern=_NAME, description="address of the first host, as the others know it")


@dataclass(frozen=True, slots=True)
class SshHost:
    """One host, with the defaults filled in."""

    name: str
    address: str
    user: str | None
    port: int | None
    python: str
    directory: str | None
    environment: Mapping[str, str]  # CUDA_VISIBLE_DEVICES is in it
    num_ranks: int | None  # None: as many as the experiment sets
    interface: str | None


@dataclass(frozen=True, slots=True)
class HostList:
    """All hosts, rank 0's first."""

    source: str
    hosts: tuple[SshHost, ...]
    master_addr: str | None

    @property
    def num_ranks(self) -> int | None:
        """Ranks of all hosts; None if the file does not set it."""
        first = self.hosts[0].num_ranks
        return None if first is None else first * len(self.hosts)


def read_hosts(path: Path) -> HostList:
    """The hosts in `path`, a hosts.yaml; or one `UserError` with all that is wrong."""
    document = read_document(path, holds="a list of hosts")
    reader = _HostsReader(document)
    hosts = reader.hosts()
    top = reader.top()
    refuse(reader.problems, document.source)
    return HostList(document.source, hosts, top.master_addr)


class _HostsReader:
    """Reads one document and gathers its problems."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = []

    def top(self) -> HostsFile:
        keys = {key: value for key, value in self._document.value.items() if key not in ("defaults", "hosts")}
        return self._model(HostsFile, keys, ()) or HostsFile(master_addr=None)

    def hosts(self) -> tuple[SshHost, ...]:
        written = self._document.value.get("hosts")
        if not isinstance(written, list) or not written:
            self._problem(("hosts",), "hosts is not a list of hosts", "write `hosts:` and `- address: NAME` lines")
            return ()
        defaults = self._section("defaults", self._document.value.get("defaults"), HostSettings) or HostSettings()
        entries = [self._entry(index, value) for index, value in enumerate(written)]
        hosts = [self._host(index, entry, defaults) for index, entry in enumerate(entries) if entry is not None]
        self._check_together(hosts)
        return tuple(hosts)

    def _entry(self, index: int, value: object) -> HostEntry | None:
        if isinstance(value, str):  # `- node1`
            value = {"address": value}
        if not isinstance(value, dict):
            self._problem(("hosts", index), f"hosts[{index}] is not a host", "write `- address: NAME`")
            return None
        return self._model(HostEntry, value, ("hosts", index))

    def _section(self, name: str, value: object, model: type[HostSettings]) -> HostSettings | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            self._problem((name,), f"{name} is not a section of keys", f"write `{name}:` and keys below it")
            return None
        return self._model(model, value, (name,))

    def _model(self, model: type[S], value: dict[str, Any], at: tuple[str | int, ...]) -> S | None:
        lines = {path[len(at) :]: line for path, line in self._document.lines.items() if path[: len(at)] == at}
        source = self._document.source
        draft = Draft.of(Document(source, value, lines))
        result, problems = examined(model, draft, source)
        self.problems += problems
        if isinstance(result, HostSettings):
            self._check_environment(at, result.environment)
        return result

    def _host(self, index: int, entry: HostEntry, defaults: HostSettings) -> SshHost:
        own_ranks = entry.devices is not None or entry.ranks is not None
        ranks_from = entry if own_ranks else defaults
        environment = {**defaults.environment, **entry.environment}
        devices = None if ranks_from.devices is None else str(ranks_from.devices).replace(" ", "")
        if devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = devices
        return SshHost(
            name=entry.name or entry.address,
            address=entry.address,
            user=entry.user or defaults.user,
            port=entry.port or defaults.port,
            python=entry.python or defaults.python or sys.executable,
            directory=entry.directory or defaults.directory,
            environment={name: str(value) for name, value in environment.items()},
            num_ranks=self._num_ranks(index, devices, ranks_from.ranks),
            interface=entry.interface or defaults.interface,
        )

    def _num_ranks(self, index: int, devices: str | None, ranks: int | None) -> int | None:
        if devices is None:
            return ranks
        listed = devices.split(",")
        if not all(listed) or len(set(listed)) < len(listed):
            what = f"devices is {devices!r}, but it lists each device once, as in 0,1"
            self._problem(("hosts", index, "devices"), what, "write, for example, devices: 0,1")
        if ranks is not None and ranks != len(listed):
            what = f"devices lists {len(listed)} devices, but ranks is {ranks}, and each rank has one"
            self._problem(("hosts", index, "ranks"), what, "leave ranks out, or make them agree")
        return len(listed)

    def _check_environment(self, at: tuple[str | int, ...], environment: Mapping[str, str | int]) -> None:
        for name, value in environment.items():
            where = (*at, "environment", name)
            if not name.isascii() or not name.isidentifier():
                self._problem(where, f"{name!r} cannot name a variable", "use letters, digits and _")
            elif name in OURS:
                instead = _INSTEAD.get(name)
                self._problem(
                    where, f"environment.{name} is set by the launcher", f"use {instead}" if instead else "leave it out"
                )
            elif "\0" in str(value):
                self._problem(where, f"environment.{name} holds a NUL byte", "write plain text")

    def _check_together(self, hosts: Sequence[SshHost]) -> None:
        seen: set[tuple[str, int | None]] = set()
        names: set[str] = set()
        for index, host in enumerate(hosts):
            if (host.address, host.port) in seen:
                what = f"hosts[{index}] is {host.address} again; each host may be listed once"
                self._problem(("hosts", index), what, "raise its ranks, or leave it out")
            elif host.name in names:
                what = f"two hosts are called {host.name}"
                self._problem(("hosts", index), what, "give each a name of its own")
            seen.add((host.address, host.port))
            names.add(host.name)
        counts = {host.num_ranks for host in hosts}
        if len(counts) > 1:
            told = ", ".join(f"{host.name}: {host.num_ranks or 'not given'}" for host in hosts)
            self._problem(
                ("hosts",), f"every host starts the same number of ranks, but here it is {told}", "make them agree"
            )

    def _problem(self, path: tuple[str | int, ...], what: str, fix: str) -> None:
        where = Draft.of(self._document).where(path, otherwise=self._document.source)
        self.problems.append(Problem(where, what, fix))


def refuse_ranks(hosts: HostList, ranks: int | str, source: str, roles: RolesSpec | None = None) -> None:
    """Raise a `UserError` if an experiment asks for another number of ranks than the hosts are to start."""
    if roles is not None and hosts.num_ranks not in (None, roles.trainers):
        raise UserError(
            f"{source} says roles.trainers={roles.trainers}, but {hosts.source} starts {hosts.num_ranks} ranks:"
            f" {hosts.hosts[0].num_ranks} on each of {len(hosts.hosts)} hosts",
            fix=f"leave `ranks` out of {hosts.source}: the roles say what each host starts",
        )
    if hosts.num_ranks is None or ranks in ("auto", hosts.num_ranks):
        return
    raise UserError(
        f"{source} says train.ranks={ranks}, but {hosts.source} starts {hosts.num_ranks}:"
        f" {hosts.hosts[0].num_ranks} on each of {len(hosts.hosts)} hosts",
        fix=f"give -O train.ranks={hosts.num_ranks}, or change the hosts file",
    )
