"""The store in which the ranks of a run meet: rank 0 hosts it at MASTER_ADDR:MASTER_PORT, or torchrun's agent does.

Rank 0 listens on the address at which the others come, and on no other: on one host that is the loopback. All keys
stand under a prefix of the run, and what graphmill itself says there is signed (`words.py`).
"""

import errno
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stubs lack it
from torch.distributed.distributed_c10d import PrefixStore, Store

from graphmill.base.errors import UserError
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.runtime.machine import host_name
from graphmill.runtime.network import (
    addresses_of,
    candidate_ports,
    family_of,
    interface_towards,
    listening_address,
    loopback,
)
from graphmill.runtime.rank import Rank
from graphmill.runtime.secret import Secret
from graphmill.slurm.hostlist import expand_hostlist
from graphmill.train.words import NotMetError, PeerTimeout, Words

_TRY_S: Final = 1.0
_ANSWER_S: Final = 10.0  # of a store that has taken the connection, on a busy host
_OPERATION_S: Final = 1800.0  # what gloo and NCCL read there may be written late
_WHOSE: Final = "graphmill.whose"  # the one key that any run can read: it may have come to the wrong port
_PORTS_OF_A_JOB: Final = 101  # steps of one job are far from each other, and from other jobs
_BACKLOG: Final = 4096  # all ranks come at once


class PortBusyError(Exception):
    """Another process, or another run, listens on the port meant for the ranks."""


def open_words(rank: Rank, environ: Mapping[str, str], run: str, patience: PeerTimeout) -> Words:
    """The ranks' store, which `Words.store` is. `run`: what other runs that come to the same port read.

    Raises `NotMetError` if rank 0 is not found in time, `PortBusyError` if its port is another's.
    """
    secret = Secret.of(environ)
    is_hosted_here = rank.rank == 0 and environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    host, port = _meeting_place(rank, environ)
    whole = _hosted(rank, environ, host, port) if is_hosted_here else _joined(rank, environ, host, port, patience)
    whole.set_timeout(timedelta(seconds=_OPERATION_S))
    words = Words(PrefixStore(secret.derived("store"), whole), secret, "store")
    if rank.rank == 0:
        words.put("host", run)
        whole.set(_WHOSE, run)
    else:
        _refuse_other_run(words, whole, patience)
    return words


def _meeting_place(rank: Rank, environ: Mapping[str, str]) -> tuple[str, int]:
    job = JobEnvironment(environ)
    hosts = expand_hostlist(job.step_hosts)
    if job.num_tasks == rank.world_size > 1 and hosts:  # of a user's own srun, unless they say it themselves
        of_step = int(job.job_id or 0) + _PORTS_OF_A_JOB * int(job.step_id or 0)
        host = loopback() if len(hosts) == 1 else hosts[0]
        environ = {"MASTER_ADDR": host, "MASTER_PORT": str(next(candidate_ports(of_step))), **environ}
    try:
        return environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    except (KeyError, ValueError):
        raise UserError(
            "MASTER_ADDR and MASTER_PORT do not say where the ranks meet",
            fix="start with `graphmill train`, `graphmill launch` or torchrun, or set both, the same on all hosts",
        ) from None


def _hosted(rank: Rank, environ: Mapping[str, str], host: str, port: int) -> Store:
    address = listening_address(
        host, is_alone=rank.num_hosts == 1, others=_other_hosts(environ), interface=environ.get("GLOO_SOCKET_IFNAME")
    )
    with socket.socket(family_of(address), socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the launcher holds the port for this rank
        try:
            listening.bind((address, port))
            listening.listen(_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortBusyError(f"port {port} is in use at {address} of {socket.gethostname()}") from None
        store: Store = TCPStore(
            address,
            port,
            rank.world_size,
            is_master=True,
            timeout=timedelta(seconds=_ANSWER_S),
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
        )
    return store


def _joined(rank: Rank, environ: Mapping[str, str], host: str, port: int, patience: PeerTimeout) -> Store:
    said = ""
    while patience.go_on():
        try:
            socket.create_connection((host, port), timeout=_TRY_S).close()  # without torch's warnings of each try
            store: Store = TCPStore(
                host, port, rank.world_size, timeout=timedelta(seconds=_ANSWER_S), wait_for_workers=False
            )
        except socket.gaierror as error:
            if error.errno != socket.EAI_AGAIN:  # a name service that is busy; one that it does not know stays unknown
                raise _unknown(host, error) from None
            said = f"{error.strerror}"
        except (OSError, RuntimeError) as error:  # torch's are RuntimeErrors, and add a C++ stack
            said = (str(error).strip() or type(error).__name__).split("\n")[0]
        else:
            return store
    raise NotMetError(
        f"{named(rank, environ)} did not find rank 0 at {host}:{port} within {patience.seconds:g} s:"
        f" {said or 'no try'}; {names_here([host, *_other_hosts(environ)])}; {interface_text(host, environ)}",
        fix=how_to_meet(rank, patience),
    )


def _unknown(host: str, error: socket.gaierror) -> UserError:
    here = socket.gethostname()
    return UserError(
        f"{here} cannot resolve {host}, where rank 0 listens: {error.strerror}",
        fix=f"ask the administrators, or leave this host out: --sbatch-arg --exclude={here}",
    )


def _refuse_other_run(words: Words, full_store: Store, patience: PeerTimeout) -> None:
    """What this rank says of itself in the store of another run would make it a rank of that one."""
    while True:
        other = full_store.get(_WHOSE).decode(errors="replace") if full_store.check([_WHOSE]) else None
        if words.get("host") is not None:  # written before the other: a stranger may write that, but not this
            return
        if other is not None:
            raise PortBusyError(f"rank 0 of another run listens on the port of this one: {other}")
        if not patience.go_on():
            raise NotMetError(
                f"what listens at the port of rank 0 is no store of this run, after {patience.seconds:g} s",
                fix="see what it is: `ss -ltnp` on that host; ranks must share one GRAPHMILL_TOKEN, or have none",
            )


def _other_hosts(environ: Mapping[str, str]) -> list[str]:
    """Other hosts of the Slurm step that this process is in."""
    job = JobEnvironment(environ)
    return [name for name in expand_hostlist(job.step_hosts) if name != job.host] if job.host else []


def named(rank: Rank, environ: Mapping[str, str]) -> str:
    """Name of this rank, for a message."""
    return f"rank {rank.rank} of {rank.world_size} on {host_name(environ)}"


def names_here(names: Sequence[str]) -> str:
    """What each name resolves to on this host, in words."""
    return ", ".join(f"{name} is {' and '.join(addresses_of(name)) or 'unknown'}" for name in dict.fromkeys(names))


def interface_text(host: str, environ: Mapping[str, str]) -> str:
    """Sentence on the interface that leads this process to the others."""
    named_one = environ.get("GLOO_SOCKET_IFNAME")
    if named_one:
        return f"interface {named_one}, by GLOO_SOCKET_IFNAME"
    try:
        return f"interface {interface_towards(host)}, by the route"
    except UserError:
        return "no interface leads there"


def how_to_meet(rank: Rank, patience: PeerTimeout) -> str:
    """What to type when ranks do not find each other."""
    longer = f"; {patience.setting} waits longer" if patience.setting else ""
    if rank.num_hosts == 1:
        return f"read the logs of the ranks that are missing{longer}"
    return (
        f"`graphmill doctor --hosts {rank.num_hosts}` shows which hosts reach which; name the interface between them"
        f" (--interface of `submit`, interface in hosts.yaml, GLOO_SOCKET_IFNAME){longer}"
    )
