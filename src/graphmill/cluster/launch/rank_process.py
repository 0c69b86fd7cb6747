"""One rank as a child process: how it is started, what becomes of its output, how it ended."""

import os
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import IO, Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.record.endings import SAVED
from graphmill.record.lines import last_lines
from graphmill.runtime.fork_server import start_program

_ERROR_BEGINS: Final = re.compile(
    rb"Traceback |error:|terminate called|Fatal Python error"
    rb"|(\[rank\d+\]:)?\[W[^]]*\] \[c10d\] \w+ failed on SocketImpl"  # of torch's store, with 20 lines of C++ stack
)


def begins_error(line: bytes) -> bool:
    """Whether a line that a rank printed begins an error, or what looks like one."""
    return _ERROR_BEGINS.match(line) is not None


@dataclass(frozen=True, slots=True)
class RankExit:
    """How one rank ended."""

    rank: int
    code: int  # negative: died of that signal
    time: float | None  # Unix time, s; None if unknown

    @property
    def failed(self) -> bool:
        """Whether the rank is neither done nor stopped after a checkpoint."""
        return self.code not in SAVED

    def describe(self) -> str:
        """Describe the exit for a message."""
        if self.code == exits.LOST_A_RANK:
            return "another rank became unresponsive"
        if self.code >= 0:
            return f"exit status {self.code}"
        name = signal_name(-self.code)
        hint = ", could be by the kernel because memory ran out" if -self.code == signal.SIGKILL else ""
        return f"killed by {name}{hint}"


def signal_name(number: int) -> str:
    """SIGKILL for 9; the number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class RankProcess:
    """A started rank. It is the leader of a session of its own, so that Ctrl-C reaches it once, through the launcher.

    `program`: what follows `python` on a command line, forked off as runtime/fork_server.py says. It dies with the
    launcher, however that ends. Its output is kept in `log`. Rank 0's standard output is the terminal's, and its
    standard error is shown as well as kept, unless `on_terminal` is false.
    """

    def __init__(
        self,
        rank: int,
        program: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        *,
        imports: Sequence[str] = (),
        on_terminal: bool | None = None,
    ) -> None:
        self.rank = rank
        shown = rank == 0 if on_terminal is None else on_terminal
        self.log = log
        self._log_file = log.open("ab", buffering=0)
        self.log_begin = self._log_file.seek(0, os.SEEK_END)  # of this attempt
        kept = self._log_file.fileno()
        source, sink = os.pipe() if shown else (-1, kept)
        try:
            self._process = start_program(program, environ, (1 if shown else kept, sink), imports=imports)
        except OSError as error:
            self._log_file.close()
            raise UserError(f"rank {rank} could not be started: {error.strerror}", fix="start fewer ranks") from None
        finally:
            if shown:
                os.close(sink)
        self.shown = ShownErrors(os.fdopen(source, "rb"), self._log_file) if shown else None

    def report_exit(self, into: "Queue[RankExit]") -> None:
        """Put the `RankExit` into the queue the moment the rank ends."""
        threading.Thread(target=self._wait, args=(into,), daemon=True).start()

    def _wait(self, into: "Queue[RankExit]") -> None:
        code = self._process.wait()
        into.put(RankExit(self.rank, code, time.time()))

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the rank is still alive."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the rank and everything it started, at once."""
        self._process.kill_session()

    def close(self) -> None:
        """Wait for the end of a killed rank and close its files."""
        self._process.wait()
        if self.shown is not None:
            self.shown.join()
        with suppress(OSError):  # a disk that fails: it is judged by what the rank recorded
            self._log_file.close()
        with suppress(OSError):
            if self.log.stat().st_size == 0:
                self.log.unlink()

    def has_log(self) -> bool:
        """Whether there is one that can be named to a reader."""
        with suppress(OSError):
            return self.log.exists()
        return False

    def tail(self, num_lines: int) -> list[str]:
        """The last lines that this attempt wrote to the log; none if they cannot be read."""
        return last_lines(self.log, num_lines, begin=self.log_begin)


class ShownErrors:
    """Passes rank 0's standard error on to ours and to its log.

    What begins like an error is held back for a moment: it may be the echo of another rank's, which is shown first.
    """

    def __init__(self, source: IO[bytes], log: IO[bytes]) -> None:
        self._source, self._log = source, log
        self._held = bytearray()
        self._held_since = 0.0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until everything is passed on; not for ever, for a stray child of the rank may keep the pipe open."""
        self._thread.join(timeout=2.0)

    def release(self, *, older_than_s: float = 0.0) -> None:
        """Show what was held back, if that was long enough ago."""
        with self._lock:
            if self._held and time.monotonic() - self._held_since >= older_than_s:
                _show(bytes(self._held))
                self._held.clear()

    def _pass_on(self) -> None:
        while chunk := self._source.read1(1 << 16):  # type: ignore[attr-defined]  # a BufferedReader
            with suppress(OSError):  # or nobody would empty the pipe, and the rank would wait for that
                self._log.write(chunk)
            with self._lock:
                self._split(chunk)

    def _split(self, chunk: bytes) -> None:
        if self._held:
            self._held += chunk
            return
        lines = chunk.splitlines(keepends=True)
        first = next((index for index, line in enumerate(lines) if begins_error(line)), len(lines))
        _show(b"".join(lines[:first]))
        if first < len(lines):
            self._held_since = time.monotonic()
            self._held += b"".join(lines[first:])


def _show(text: bytes) -> None:
    try:
        while text:
            text = text[os.write(2, text) :]
    except OSError:  # our own standard error is gone; the log has it
        return
