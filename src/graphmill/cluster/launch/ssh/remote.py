"""The agent: `python -m graphmill.cluster.launch.ssh.remote`, started over SSH on each host, starts that host's ranks.

It takes requests on standard input and answers on standard output (wire.py). The first line is the environment, in
which it restarts itself. Its ranks do not outlive its connection: it kills them when standard input ends, when the
launcher sends no heartbeat for too long, and by being killed itself (they die with their parent).

One thread, and nothing in it blocks: ranks write their output to their logs, and the agent sends on what is new there.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from types import FrameType
from typing import Final

import graphmill
from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.python import python_m
from graphmill.base.versions import installed_version
from graphmill.cluster.launch.local import WORKER, imports_of, reserved_port, shared_environment
from graphmill.cluster.launch.rank_process import RankExit, RankProcess
from graphmill.cluster.launch.ssh.wire import (
    BEAT_S,
    CANNOT_LISTEN,
    SILENCE_S,
    Beat,
    Checked,
    CheckRequest,
    DescribeRequest,
    Ended,
    HostInfo,
    Kill,
    Line,
    Message,
    Refused,
    Request,
    Signal,
    Started,
    StartRequest,
    decode_request,
    encode,
)
from graphmill.record.provenance import code_state
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import copies_here
from graphmill.runtime.code import code_checksum
from graphmill.runtime.machine import machine_info
from graphmill.runtime.network import interface_towards
from graphmill.runtime.trust import TRUST_VARIABLE

LOST: Final = 1  # exit status of an agent whose launcher is gone
_TICK_S: Final = 0.1
_MOST_WAITING: Final = 4 << 20  # bytes of output that may wait for the network before the rest waits in the logs
_CHUNK: Final = 256 << 10
_LONGEST_LINE: Final = 16 << 10
_READY: Final = "--ready"


def main(arguments: Sequence[str]) -> int:
    """Enter the environment that the launcher gives, then serve it until it goes."""
    if list(arguments) == ["--look"]:  # for a user who wants to see whether it would start
        sys.stdout.write(encode(_info(DescribeRequest())).decode())
        return 0
    if list(arguments) != [_READY]:
        return _enter_environment()
    out = os.dup(1)
    os.dup2(2, 1)  # other output must not come between our lines
    with contextlib.ExitStack() as held:
        agent = Agent(source=0, sink=out, held=held)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, agent.be_lost)
        try:
            return agent.serve()
        finally:
            agent.kill()


def _enter_environment() -> int:
    line = bytearray()
    while not line.endswith(b"\n"):  # byte by byte: what follows is for the process that replaces this one
        byte = os.read(0, 1)
        if not byte:
            return LOST
        line += byte
    environ = {**os.environ, **{str(name): str(value) for name, value in parse_json(line).items()}}
    return os.execve(sys.executable, python_m(__spec__.name, _READY), environ)


@dataclass(slots=True)
class _Tail:
    """What is new in a rank's log."""

    path: Path
    position: int
    rest: bytes = b""

    def lines(self, *, to_end: bool) -> list[str]:
        """Whole lines since the last call; `to_end`: also the last one, even if unterminated."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.position)
            chunk = file.read(-1 if to_end else _CHUNK)
            self.position += len(chunk)
            self.rest += chunk
        *whole, self.rest = self.rest.split(b"\n")
        if self.rest and (to_end or len(self.rest) > _LONGEST_LINE):
            whole.append(self.rest)
            self.rest = b""
        return [line.decode("utf-8", errors="replace").rstrip("\r") for line in whole]


@dataclass(slots=True)
class Agent:
    """Serves one launcher."""

    source: int
    sink: int
    held: contextlib.ExitStack  # what lives as long as the agent: a reserved port
    lost: bool = False
    _ranks: list[RankProcess] = field(default_factory=list)
    _tails: dict[int, _Tail] = field(default_factory=dict)
    _ended: "Queue[RankExit]" = field(default_factory=Queue)
    _incoming: bytes = b""
    _outgoing: bytearray = field(default_factory=bytearray)
    _heard: float = 0.0
    _beaten: float = 0.0

    def serve(self) -> int:
        """Serve until the launcher closes standard input. Exit status 0 if no rank was running then."""
        os.set_blocking(self.source, False)
        os.set_blocking(self.sink, False)
        self._heard = time.monotonic()
        while not self.lost:
            writing = [self.sink] if self._outgoing else []
            with contextlib.suppress(InterruptedError):
                select.select([self.source], writing, [], _TICK_S)
            self._read()
            self._send_output()
            self._send_exits()
            self._beat()
            self._flush()
        return LOST if self._tails else 0

    def be_lost(self, number: int, frame: FrameType | None) -> None:
        """The handler of signals that end the agent."""
        del number, frame
        self.lost = True

    def kill(self) -> None:
        """End all ranks, and wait for their end."""
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.close()

    def _read(self) -> None:
        try:
            chunk = os.read(self.source, _CHUNK)
        except BlockingIOError:
            self.lost = self.lost or time.monotonic() - self._heard > SILENCE_S
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.lost = True
            return
        self._heard = time.monotonic()
        *lines, self._incoming = (self._incoming + chunk).split(b"\n")
        for line in lines:
            self._answer(decode_request(line))

    def _answer(self, request: Request) -> None:
        try:
            answer = self._done(request)
        except UserError as error:
            answer = Refused(message=error.message, fix=error.fix)
        if answer is not None:
            self._send(answer)

    def _done(self, request: Request) -> Message | None:
        if isinstance(request, DescribeRequest):
            return _info(request)
        if isinstance(request, CheckRequest):
            return _checked(request, self.held)
        if isinstance(request, StartRequest):
            return self._start(request)
        for rank in self._ranks:
            if isinstance(request, Signal):
                rank.send(signal.Signals(request.number))
            if isinstance(request, Kill):
                rank.kill()
        return None

    def _start(self, request: StartRequest) -> Started:
        folder = RunFolder.open(Path(request.run))
        plan = folder.read_plan()
        program = [*(request.program or WORKER), request.run, *(["--resume"] if request.resume else [])]
        shared = shared_environment(
            {**os.environ, "PYTHONUNBUFFERED": "1", TRUST_VARIABLE: request.trusted},
            processes=request.num_processes,
            processes_here=len(request.processes),
            threads=request.threads,
            address=request.master,
            port=request.port,
            interface=request.interface,
            token=request.token,
            computes_with_torch=plan.task.computes_with_torch,
        )
        imports = imports_of(program, plan)
        shared["NCCL_SOCKET_IFNAME"] = request.interface
        for local, (number, stem) in enumerate(zip(request.processes, request.stems, strict=True)):
            own = {**shared, "RANK": str(number), "LOCAL_RANK": str(local)}
            log = folder.path / f"{stem}.log"
            rank = RankProcess(number, program, own, log, imports=imports, on_terminal=False)
            self._ranks.append(rank)
            self._tails[number] = _Tail(rank.log, rank.log_begin)
        for rank in self._ranks:
            rank.report_exit(self._ended)
        return Started()

    def _send_output(self) -> None:
        for number, tail in self._tails.items():
            if len(self._outgoing) < _MOST_WAITING:
                self._send_lines(number, tail.lines(to_end=False))

    def _send_exits(self) -> None:
        while True:
            try:
                ended = self._ended.get_nowait()
            except Empty:
                return
            self._send_lines(ended.rank, self._tails.pop(ended.rank).lines(to_end=True))
            self._send(Ended(rank=ended.rank, code=ended.code, time=ended.time))

    def _send_lines(self, rank: int, lines: Sequence[str]) -> None:
        for line in lines:
            self._send(Line(rank=rank, text=line))

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten >= BEAT_S and len(self._outgoing) < _MOST_WAITING:
            self._beaten = now
            self._send(Beat())

    def _send(self, message: Message) -> None:
        self._outgoing += encode(message)

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self.sink, self._outgoing[:_CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # the reader is gone
            self.lost = True


def _info(request: DescribeRequest) -> HostInfo:
    machine, code = machine_info(), code_state()
    return HostInfo(
        hostname=machine.hostname,
        time=time.time(),
        version=graphmill.__version__,
        code=code_checksum(),
        commit=code.commit if code else None,
        dirty=code.dirty if code else None,
        python=".".join(str(part) for part in sys.version_info[:3]),
        torch=installed_version("torch"),
        executable=sys.executable,
        num_cores=machine.num_cores,
        num_gpus=machine.num_gpus,
        resolved=_resolved(request.resolve),
    )


def _resolved(address: str | None) -> str | None:
    if address is None:
        return None
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


def _checked(request: CheckRequest, held: contextlib.ExitStack) -> Checked:
    problems, shares = [], _shares(request)
    if shares:
        problems += _not_writable(Path(request.folder))
    problems += _wrong_dataset(request)
    port = None
    if request.reserve_port:
        try:
            port = held.enter_context(reserved_port("", request.port or 0))
        except OSError as error:
            problems.append(f"{CANNOT_LISTEN} {request.port}: {error.strerror}")
    interface = request.interface or interface_towards(request.master)
    if interface not in {name for _, name in socket.if_nameindex()}:
        problems.append(f"there is no network interface {interface} here")
    return Checked(shares_folder=shares, problems=tuple(problems), interface=interface, port=port)


def _shares(request: CheckRequest) -> bool:
    try:
        return (Path(request.folder) / request.token).read_text(encoding="utf-8") == request.text
    except OSError:
        return False


def _not_writable(folder: Path) -> list[str]:
    trial = folder / f".graphmill-trial-{socket.gethostname()}-{os.getpid()}"
    try:
        trial.touch()
        trial.unlink()
    except OSError as error:
        return [f"{folder} cannot be written to: {error.strerror}"]
    return []


def _wrong_dataset(request: CheckRequest) -> list[str]:
    """Problems of the dataset on this host, for any task: its header has a checksum over all of it. A copy will do."""
    from graphmill.graph.header import read_header

    if copies_here(request.checksum, os.environ):  # of the whole, or of parts: its ranks look which
        return []
    try:
        header = read_header(Path(request.dataset))
    except UserError as error:
        return [f"the prepared dataset cannot be read here: {error.message}"]
    if header.checksum != request.checksum:
        return [f"the dataset in {request.dataset} is not the one that was planned: its checksum differs"]
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
