"""One srun, as a child of the driver: its messages are passed on and kept, signals are taken while it runs.

Here is also what it and the ranks of an attempt have left: whether one has begun, and why they say nothing.
"""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.cluster.launch.judge import TAIL_LINES
from graphmill.cluster.launch.rank_process import RankExit
from graphmill.record.events import Event, last_event
from graphmill.record.lines import last_lines
from graphmill.record.run_folder import RunFolder
from graphmill.slurm.commands import is_silence

_TICK_S: Final = 0.1
_SAID_BY_SRUN: Final = re.compile(r"srun: error: (?P<host>\S+): tasks? (?P<ranks>[\d,\- ]+): (?P<what>.+)")
_ERROR: Final = re.compile(r"(?:^|.*?: )error: (?P<what>.+)")
_ENDED: Final = re.compile(r"tasks? [\d,\- ]+: |Terminating|\*\*\*|Job step aborted|First task exited")
_EXITED: Final = re.compile(r"Exited with exit code (\d+)")
_SIGNALS: Final = {(signal.strsignal(number) or "").lower(): number for number in signal.Signals}


class Signals:
    """Signals that a driver was sent (`SharedSignals` receives them)."""

    def __init__(self) -> None:
        self.terminated = False  # the job is cancelled, preempted, or its time is up; SIGKILL comes next
        self.warnings: list[int] = []  # of the scheduler, not passed on yet


@dataclass(slots=True)
class SrunStep:
    """A started srun."""

    process: "subprocess.Popen[bytes]"
    error_lines: list[str]  # lines of its standard error
    reader: threading.Thread

    @classmethod
    def start(cls, command: Sequence[str], environ: Mapping[str, str]) -> "SrunStep":
        """Start srun. `UserError` if it cannot be run."""
        try:
            process = subprocess.Popen(command, env=dict(environ), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        except OSError as error:
            raise UserError(
                f"{command[0]} cannot be run: {error.strerror}", fix="see whether the job's PATH finds Slurm's programs"
            ) from None
        error_lines: list[str] = []
        reader = threading.Thread(target=_pass_on, args=(process, error_lines), daemon=True)
        reader.start()
        return cls(process, error_lines, reader)

    @property
    def status(self) -> int | None:
        """Exit status of the srun; None while it runs."""
        return self.process.poll()

    def wait(self, signals: Signals, until: Callable[[], bool]) -> bool:
        """Wait until it has ended, or `until` holds. Returns whether it has ended."""
        while True:
            while signals.warnings:
                self.process.send_signal(signals.warnings.pop(0))
            try:
                self.process.wait(timeout=_TICK_S)
            except subprocess.TimeoutExpired:
                if until():
                    return False
                continue
            self.reader.join(timeout=2.0)  # a stray child may keep the pipe open
            return True

    def wait_within(self, signals: Signals, seconds: float) -> bool:
        """Wait until it has ended, or the time is over. Returns whether it has ended."""
        give_up = time.monotonic() + seconds
        return self.wait(signals, lambda: time.monotonic() >= give_up)

    def kill(self) -> None:
        """Kill srun: Slurm ends the step with the job."""
        self.process.kill()
        self.process.wait()

    def found_no_slurm(self) -> bool:
        """Whether it failed because the controller did not answer, and reported the end of no task."""
        return bool(self.status) and not self.exits() and any(is_silence(line) for line in self.error_lines)

    def was_ended(self) -> bool:
        """Whether a SIGTERM ended what it started: Slurm's, most likely, whatever for."""
        codes = {self.status, *(seen.code for seen in self.exits())}
        return bool(codes & {-signal.SIGTERM, 128 + signal.SIGTERM})

    def first_error(self) -> str:
        """The first line that reports more than that tasks were ended: of a rank, of staging, of srun. "": none."""
        found = (_ERROR.fullmatch(line.strip()) for line in self.error_lines if not is_of_an_end(line))
        return next((each["what"] for each in found if each), "")

    def exits(self) -> list[RankExit]:
        """What srun reported about tasks that failed, in its order. It reports no times."""
        return [exit_ for line in self.error_lines for exit_ in exits_in(line)]


def is_of_an_end(line: str) -> bool:
    """Whether Slurm says in this line that tasks were ended, and nothing of why.

    >>> is_of_an_end("slurmstepd-host1: error: *** STEP 6.0 ON host1 CANCELLED AT 2026-11-25T19:01:32 ***")
    True
    """
    found = _ERROR.fullmatch(line.strip())
    return found is not None and _ENDED.search(found["what"]) is not None


def exits_in(line: str) -> list[RankExit]:
    """The exits of tasks that a line of srun reports.

    >>> [(seen.rank, seen.code) for seen in exits_in("srun: error: host2: tasks 1,3: Killed")]
    [(1, -9), (3, -9)]
    """
    found = _SAID_BY_SRUN.fullmatch(line.strip())
    if found is None:
        return []
    return [RankExit(rank, _code(found["what"]), None) for rank in _numbers(found["ranks"])]


def _code(what: str) -> int:
    exited = _EXITED.match(what)
    if exited is not None:
        return int(exited[1])
    if what.startswith("Out Of Memory"):
        return -signal.SIGKILL
    return -_SIGNALS.get(what.partition(" (")[0].lower(), -1)


def _numbers(text: str) -> list[int]:
    """The numbers in `0,2-4`."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1) if first else []
    return found


def _pass_on(process: "subprocess.Popen[bytes]", error_lines: list[str]) -> None:
    assert process.stderr is not None, "it is a pipe"
    for line in process.stderr:
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
        error_lines.append(line.decode("utf-8", errors="replace").rstrip("\n"))


def unsaid(step: SrunStep) -> str:
    """Why an srun failed whose ranks recorded no error: a program or an image that is not there, an interface, …"""
    first = step.first_error()
    return f"srun ended with exit status {step.status}" + (f": {first}" if first else ", and the ranks left no error")


def last_line(log: Path, *, since: float) -> str:
    """Last line of a log that was written to since `since` (Unix time, s); "": there is none."""
    with suppress(OSError):
        lines = last_lines(log, TAIL_LINES) if log.stat().st_mtime >= since else []
        return next((line.strip() for line in reversed(lines) if not is_of_an_end(line)), "")
    return ""


def has_begun(folder: RunFolder, started: float) -> bool:
    """Whether a rank, or the command, runs or has run since then: srun must not start it again."""
    if folder.is_command():  # it leaves no events, but its monitor does
        return (folder.heartbeat() or 0.0) >= started or last_line(folder.log_path(0), since=started) != ""
    return any(event.time >= started for event in last_events(folder))


def last_events(folder: RunFolder) -> list[Event]:
    """Last event of each rank that left one."""
    found = (last_event(path) for path in folder.events_dir.glob("*.jsonl"))
    return [event for event in found if event is not None]
