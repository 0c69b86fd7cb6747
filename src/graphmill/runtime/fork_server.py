"""Start Python programs of ours as forks of a process that has imported what they need: torch is imported once.

That process, the fork server, starts with the first program and waits for more until this process ends. It computes
nothing itself, so that it has one thread and no CUDA context, and a fork of it is safe. A program is the leader of a
session of its own and dies with its fork server, which dies with this process, however that ends.

Until a program has been forked off, the fork server stands in for it: what ends the one ends the other.
"""

import atexit
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from graphmill.base.json_text import parse_json
from graphmill.base.python import python_m
from graphmill.runtime import rank
from graphmill.runtime.forked import LONGEST
from graphmill.runtime.secret import TOKEN
from graphmill.runtime.trust import TRUST_VARIABLE

OF_EACH_START = {*rank.VARIABLES, "MASTER_ADDR", "MASTER_PORT", TOKEN, TRUST_VARIABLE}
"""Environment variables that nothing reads while it is imported: programs of one fork server may differ in them."""

_servers: list["ForkServer"] = []
_lock = threading.Lock()


def start_program(
    program: Sequence[str], environ: Mapping[str, str], files: tuple[int, int], *, imports: Sequence[str] = ()
) -> "ForkedProcess":
    """Start a program by the fork server of this process for such programs, which starts if there is none.

    Returns at once, though the fork server may import for seconds before it forks.

    Args:
        program: what follows `python` on a command line: `as_module` or a file, then arguments.
        environ: of the program.
        files: file descriptors of its standard output and standard error. Its standard input is empty.
        imports: modules of ours that it needs.

    Raises:
        OSError: no process could be started.
    """
    with _lock:
        return _fit(environ).start(program, environ, files, imports=imports)


def import_ahead(environ: Mapping[str, str], imports: Sequence[str]) -> None:
    """Let the fork server of programs of this environment import what they need, while this process goes on."""
    with _lock, suppress(OSError):  # no process could be started, which the program that needs one is told
        _fit(environ).import_ahead(imports)


def _fit(environ: Mapping[str, str]) -> "ForkServer":
    """The fork server of programs of this environment, started if there is none; others that are idle end."""
    fit = [server for server in _servers if server.is_fit_for(environ)]
    for server in [server for server in _servers if server not in fit and not server.running()]:
        _servers.remove(server)
        server.close()
    if not fit:
        fit.append(ForkServer(environ))
        _servers.append(fit[0])
    return fit[0]


def output_of(program: Sequence[str], environ: Mapping[str, str], *, imports: Sequence[str] = ()) -> tuple[int, str]:
    """Run a program to its end; see `start_program`. Returns its exit status and its standard output."""
    with tempfile.TemporaryFile() as file:
        started = start_program(program, environ, (file.fileno(), 2), imports=imports)
        try:
            status = started.wait()
        except BaseException:  # Ctrl-C, which does not reach its session
            started.kill_session()
            raise
        file.seek(0)
        return status, file.read().decode()


def running() -> list["ForkedProcess"]:
    """What was started by this process and has not ended."""
    with _lock:
        return [program for server in _servers for program in server.running()]


def close_fork_servers() -> None:
    """End the fork servers of this process, and all that was started by them."""
    with _lock:
        while _servers:
            _servers.pop().close()


# They would end by themselves; waited for, what ranks used is in this process's times.
atexit.register(close_fork_servers)


@dataclass(slots=True, eq=False)
class ForkedProcess:
    """A program that was started; what `subprocess.Popen` says of a child, as far as it is needed."""

    server: "ForkServer"
    number: int
    pid: int | None = None  # None: not forked yet
    code: int | None = None  # its exit status, or minus the signal that it died of
    ended: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> int:
        """Wait for the end. Returns the exit status."""
        self.ended.wait()
        assert self.code is not None, "set before the event"
        return self.code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if it has not ended."""
        self.server.send_signal(self, number)

    def kill_session(self) -> None:
        """End it and everything that it started, at once."""
        if self.pid is None:
            self.send_signal(signal.SIGKILL)
        else:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


class ForkServer:
    """The fork server of programs with one environment, apart from the variables `OF_EACH_START`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ, self.inherited, self.folder = _lasting(environ), _inherited(), _folder_searched(environ)
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._programs: dict[int, ForkedProcess] = {}  # that have not ended
        self._waiting: dict[int, list[signal.Signals]] = {}  # for programs that are not forked yet
        self._num_started = 0
        self._is_ending = self._is_over = False  # it was sent a signal; it has ended
        self._line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                python_m("graphmill.runtime.forked", str(other.fileno()), str(self.owner)),
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def start(
        self,
        program: Sequence[str],
        environ: Mapping[str, str],
        files: tuple[int, int],
        *,
        imports: Sequence[str] = (),
    ) -> ForkedProcess:
        """Start a program: see `start_program`."""
        own = {name: environ[name] for name in OF_EACH_START if name in environ}
        with self._lock:
            number = self._num_started = self._num_started + 1
            asked = {"number": number, "program": program, "imports": imports, "environ": own}
            with suppress(OSError):  # it was removed
                asked["folder"] = str(Path.cwd())
            started = ForkedProcess(self, number)
            self._programs[number], self._waiting[number] = started, []
            self._ask(asked, files)
            if self._is_over:
                self._end_all()
        return started

    def import_ahead(self, imports: Sequence[str]) -> None:
        """Import what programs will need: see `import_ahead`."""
        with self._lock:
            self._ask({"imports": imports}, ())

    def _ask(self, request: Mapping[str, object], files: Sequence[int]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it is dead, which `_listen` notices
            socket.send_fds(self._line, [json.dumps(request).encode()], files)

    def send_signal(self, program: ForkedProcess, number: signal.Signals) -> None:
        """Send a signal to a program that has not ended; to its fork server, while that stands in for it."""
        with self._lock:
            if program.number not in self._programs:
                return
            if program.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(program.pid, number)
            elif any(each.pid is not None for each in self._programs.values()):
                self._waiting[program.number].append(number)
            else:  # while Python starts, it would tell of a KeyboardInterrupt
                self._is_ending = True
                self._process.send_signal(signal.SIGTERM if number == signal.SIGINT else number)

    def is_fit_for(self, environ: Mapping[str, str]) -> bool:
        """Whether programs of this environment can be forked from it."""
        if self._is_ending or self.owner != os.getpid() or self._process.poll() is not None:
            return False
        is_same = self.environ == _lasting(environ) and self.inherited == _inherited()
        return is_same and self.folder == _folder_searched(environ)

    def running(self) -> list[ForkedProcess]:
        """Programs forked from it that have not ended."""
        with self._lock:
            return list(self._programs.values())

    def close(self) -> None:
        """End the fork server, and all programs of its that still run."""
        if self.owner == os.getpid():
            self._process.terminate()  # it may be importing, for long; what it forked dies with it
            self._process.wait()
        self._line.close()

    def _listen(self) -> None:
        while message := self._receive():
            said = parse_json(message)
            with self._lock:
                program = self._programs[said["number"]]
                if "pid" in said:
                    program.pid = said["pid"]
                    for number in self._waiting.pop(program.number):
                        with suppress(ProcessLookupError):
                            os.kill(program.pid, number)
                else:
                    self._ended(program, os.waitstatus_to_exitcode(said["status"]))
        self._process.wait()
        with self._lock:
            self._is_over = True
            self._end_all()

    def _end_all(self) -> None:
        """The fork server has ended. What it forked died with it; for the others it stood in, and none is done."""
        code = self._process.wait()
        for program in list(self._programs.values()):
            self._ended(program, -signal.SIGKILL if program.pid is not None or code == 0 else code)

    def _ended(self, program: ForkedProcess, code: int) -> None:
        del self._programs[program.number]
        self._waiting.pop(program.number, None)
        program.code = code
        program.ended.set()

    def _receive(self) -> bytes:
        try:
            return self._line.recv(LONGEST)
        except OSError:
            return b""


def _inherited() -> tuple[object, ...]:
    """What else a child of this process has from it, and what may change: its cores and its limits."""
    limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    return (os.sched_getaffinity(0), *map(resource.getrlimit, limits))


def _folder_searched(environ: Mapping[str, str]) -> str | None:
    """The working folder, if Python searches it, or what lies in it, for modules: it asks where that is once."""
    if all(map(os.path.isabs, (environ.get("PYTHONPATH") or "/").split(os.pathsep))):
        return None
    with suppress(OSError):  # it was removed
        return str(Path.cwd())
    return None


def _lasting(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in OF_EACH_START}
