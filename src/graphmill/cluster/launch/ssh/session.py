"""One host as the launcher sees it: its login, the agent there, heartbeats both ways."""

import asyncio
import json
import shlex
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import asyncssh

from graphmill.base.errors import UserError
from graphmill.base.python import as_module
from graphmill.cluster.launch.rank_process import signal_name
from graphmill.cluster.launch.ssh.connect import connect
from graphmill.cluster.launch.ssh.hosts import SshHost
from graphmill.cluster.launch.ssh.wire import (
    BEAT_S,
    SILENCE_S,
    Beat,
    DescribeRequest,
    HostInfo,
    Message,
    Refused,
    Request,
    decode_message,
    encode,
)

M = TypeVar("M", bound=Message)

AGENT: Final = "graphmill.cluster.launch.ssh.remote"
_ANSWER_S: Final = 60.0  # for a host whose disk is slow: python and the package are read before the first answer
_CHUNK: Final = 256 << 10
_NUM_KEPT: Final = 20  # lines that something other than the agent's answers printed: login scripts, errors


@dataclass(frozen=True, slots=True)
class Gone:
    """The host is lost, or its agent has ended."""

    reason: str
    last_sign: float  # Unix time, s


@dataclass(slots=True)
class Session:
    """A login on one host with an agent running."""

    host: SshHost
    connection: asyncssh.SSHClientConnection
    process: asyncssh.SSHClientProcess[bytes]
    inbox: "asyncio.Queue[Message | Gone]" = field(default_factory=asyncio.Queue)
    facts: HostInfo | None = None
    ahead_s: float = 0.0  # how far the host's clock is ahead of ours
    _last_sign: float = field(default_factory=time.monotonic)
    _printed: deque[str] = field(default_factory=lambda: deque(maxlen=_NUM_KEPT))
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    @classmethod
    async def open(cls, host: SshHost, config: Path | None) -> "Session":
        """Log in and start the agent."""
        connection = await connect(host, config)
        try:
            process = await connection.create_process(agent_command(host), encoding=None)
        except (OSError, asyncssh.Error) as error:
            connection.abort()
            raise UserError(f"{host.name} runs no command for us: {error}", fix="see its sshd's settings") from None
        session = cls(host, connection, process)
        session._tasks = [asyncio.create_task(part()) for part in (session._read, session._read_errors, session._live)]
        session._write(json.dumps(dict(host.environment)).encode() + b"\n")
        return session

    @property
    def address(self) -> str:
        """Address of the host, as the ssh config resolves it."""
        return str(self.connection.get_extra_info("host") or self.host.address)

    def send(self, request: Request) -> None:
        """Send; what cannot be sent any more shows in the inbox as `Gone`."""
        self._write(encode(request))

    async def ask(self, request: Request, kind: type[M]) -> M:
        """Send, and wait for the answer. A refusal, another answer or none is a `UserError`."""
        self.send(request)
        try:
            answer = await asyncio.wait_for(self.inbox.get(), _ANSWER_S)
        except TimeoutError:
            answer = Gone(f"no answer within {_ANSWER_S:.0f} s", time.time())
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Refused):
            raise UserError(f"{self.host.name}: {answer.message}", fix=answer.fix)
        reason = answer.reason if isinstance(answer, Gone) else f"it answered {answer.kind}"
        raise UserError(
            f"the agent on {self.host.name} does not run: {reason}{self._printed_text()}",
            fix=f"see what this says: `ssh {self.host.address} {shlex.quote(agent_command(self.host, '--look'))}`",
        )

    async def look(self, resolve: str | None) -> HostInfo:
        """Query what the host is, and the offset of its clock."""
        began = time.time()
        self.facts = await self.ask(DescribeRequest(resolve=resolve), HostInfo)
        self.ahead_s = self.facts.time - (began + time.time()) / 2
        if abs(self.ahead_s) < (time.time() - began) / 2:  # no more than the answer took: not significant
            self.ahead_s = 0.0
        self._last_sign = time.monotonic()
        return self.facts

    async def close(self, *, wait_s: float = 5.0) -> None:
        """End the agent, and the login."""
        with suppress(OSError, asyncssh.Error):
            self.process.stdin.write_eof()
        with suppress(OSError, asyncssh.Error, TimeoutError):
            await asyncio.wait_for(self.process.wait_closed(), wait_s)
        for task in self._tasks:
            task.cancel()
        self.connection.abort()

    def _write(self, data: bytes) -> None:
        with suppress(OSError, asyncssh.Error):
            self.process.stdin.write(data)

    async def _read(self) -> None:
        rest, reason = b"", ""
        try:
            while chunk := await self.process.stdout.read(_CHUNK):
                self._last_sign = time.monotonic()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._handle(line)
        except (OSError, asyncssh.Error) as error:
            reason = f"the connection was lost ({error})"
        if not reason:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait_closed(), 2.0)
            reason = _ending(self.process)
        self._be_gone(reason)

    def _handle(self, line: bytes) -> None:
        message = decode_message(line)
        if message is None:
            self._printed.append(line.decode("utf-8", errors="replace").rstrip())
        elif not isinstance(message, Beat):
            self.inbox.put_nowait(message)

    async def _read_errors(self) -> None:
        with suppress(OSError, asyncssh.Error):
            async for line in self.process.stderr:
                self._printed.append(line.decode("utf-8", errors="replace").rstrip())

    async def _live(self) -> None:
        """Send heartbeats to the agent, and notice when its own stop."""
        while True:
            self.send(Beat())
            silent_s = time.monotonic() - self._last_sign
            if self.facts is not None and silent_s > SILENCE_S:
                self._be_gone(f"no heartbeat for {silent_s:.0f} s")
                self.connection.abort()
                return
            await asyncio.sleep(BEAT_S)

    def _be_gone(self, reason: str) -> None:
        silent_s = time.monotonic() - self._last_sign
        self.inbox.put_nowait(Gone(reason, time.time() - silent_s))

    def _printed_text(self) -> str:
        return "".join(f"\n  | {line}" for line in self._printed if line)

    def last_words(self) -> list[str]:
        """What the agent, or another program, printed besides its answers."""
        return [line for line in self._printed if line]


def agent_command(host: SshHost, *arguments: str) -> str:
    """The only line that a shell reads on the host."""
    words = [_in_shell(host.python), *as_module(AGENT), *arguments]
    change = f"cd {_in_shell(host.directory)} && " if host.directory else ""
    return f"{change}exec {' '.join(words)}"


def _in_shell(path: str) -> str:
    """Quoted; a `~/` at the start means the home directory there."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def _ending(process: asyncssh.SSHClientProcess[bytes]) -> str:
    if process.exit_signal:
        return f"it was killed by SIG{process.exit_signal[0]}"
    code = process.returncode
    if code is not None and code < 0:
        return f"it was killed by {signal_name(-code)}"
    return f"it ended with exit status {code}" if code is not None else "the connection was closed"
