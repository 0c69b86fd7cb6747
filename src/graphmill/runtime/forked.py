"""The fork server's own program (fork_server.py): `python -m graphmill.runtime.forked FILE_DESCRIPTOR LAUNCHER`.

Takes one request a message, {"number": 1, "program": ["-P", "-m", "graphmill.train.worker", …], "imports": […],
"environ": {…}, "folder": "…"}, with the files that are the program's standard output and error. Says {"number": 1,
"pid": …} once it is forked, and {"number": 1, "status": …} when it has ended, as `os.wait` does.
"""

import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from graphmill.base import exits
from graphmill.base.json_text import parse_json
from graphmill.base.messages import hush_torch
from graphmill.base.python import SAFE
from graphmill.runtime.process import PYG, count_imports, die_with_parent, import_pyg, leave
from graphmill.runtime.stop import end_when_interrupted

LONGEST: Final = 1 << 16  # bytes of a message
_LOOKS_S: Final = 1.0  # whether the launcher lives: a fork of it that holds the other end may outlive it


class ForkLoop:
    """Forks, until its launcher is gone."""

    def __init__(self, line: socket.socket, launcher: int) -> None:
        self._line, self._launcher = line, launcher
        self._numbers: dict[int, int] = {}  # by process id
        self._woken, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.detach())
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> dict[str, Any] | None:
        """Serve. Returns None when there is nobody to serve, and in each forked process the request for it."""
        while os.getppid() == self._launcher:
            ready, _, _ = select.select([self._line, self._woken], [], [], _LOOKS_S)
            if self._woken in ready:
                self._woken.recv(LONGEST)
                self._say_who_ended()
            if self._line in ready:
                message, files, _, _ = socket.recv_fds(self._line, LONGEST, 2)
                if not message:
                    break
                request = parse_json(message)
                _import(request["imports"])
                if "program" in request and self._fork(request, files):
                    return dict(request)
        return None

    def _fork(self, request: dict[str, Any], files: Sequence[int]) -> bool:
        """Whether this is the forked process."""
        server = os.getpid()
        gc.collect()
        gc.freeze()  # else a collection in the program would write to, and so copy, each page that it looks through
        try:
            pid = os.fork()
        except OSError as error:
            said = f"error: no process could be started: {error.strerror}\n  → start fewer ranks\n"
            os.write(files[1], said.encode())
            self._say(number=request["number"], status=exits.BAD_REQUEST << 8)
            pid = -1
        if pid == 0:
            self._line.close()
            self._woken.close()
            os.close(signal.set_wakeup_fd(-1))
            _become(request, files, server)
            return True
        for file in files:
            os.close(file)
        if pid > 0:
            self._numbers[pid] = request["number"]
            self._say(number=request["number"], pid=pid)
        return False

    def _say_who_ended(self) -> None:
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._say(number=self._numbers.pop(pid), status=status)

    def _say(self, **facts: int) -> None:
        with suppress(OSError):  # the launcher is gone, and `serve` sees it
            self._line.send(json.dumps(facts).encode())


def _import(modules: Sequence[str]) -> None:
    """Import what programs need. What fails here fails in them again, and is told by them."""
    began = time.monotonic()
    gc.disable()  # what is imported is no garbage, and to look for some takes a fifth of the time
    for module in modules:
        if module not in sys.modules:
            with suppress(Exception):
                import_pyg() if module == PYG else importlib.import_module(module)
    gc.enable()
    count_imports(time.monotonic() - began)


def _become(request: dict[str, Any], files: Sequence[int], server: int) -> None:
    """Be the process that `subprocess.Popen` would have started."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until `StopRequest` can take it
    die_with_parent(server)
    for target, file in zip((1, 2), files, strict=True):
        os.dup2(file, target)
    for file in files:
        os.close(file)
    sys.stdout = _text(1, sys.stdout)
    sys.stderr = _text(2, sys.stderr)
    os.environ.update(request["environ"])
    if "folder" in request:
        os.chdir(request["folder"])
    if "numpy.random" in sys.modules:  # `random` does so by itself; torch begins with the same number in each process
        sys.modules["numpy.random"].seed()


def _text(file: int, like: Any) -> io.TextIOWrapper:  # noqa: ANN401  # a stream
    """A stream of text as Python opens it at its start; `like`: the one of that number in this process."""
    raw = open(file, "wb", closefd=False, buffering=0 if like.write_through else -1)  # noqa: SIM115
    is_read_at_once = file == 2 or raw.isatty()
    return io.TextIOWrapper(
        raw, like.encoding, like.errors, line_buffering=is_read_at_once, write_through=like.write_through
    )


def run(program: Sequence[str]) -> NoReturn:
    """Run what follows `python` on a command line, and end with it."""
    if program[0] == SAFE:  # `as_module`, which is how this process was started, too
        sys.argv = list(program[2:])
        leave(importlib.import_module(program[2]).main(program[3:]))
    sys.argv = list(program)
    sys.path.insert(0, os.path.dirname(program[0]))  # noqa: PTH120  # as python does
    runpy.run_path(program[0], run_name="__main__")
    sys.exit()


def main(arguments: Sequence[str]) -> int:
    """Serve a launcher; in a forked process, be the program."""
    hush_torch(os.environ)
    end_when_interrupted()
    request = ForkLoop(socket.socket(fileno=int(arguments[0])), int(arguments[1])).serve()
    if request is not None:
        run(request["program"])
    return exits.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
