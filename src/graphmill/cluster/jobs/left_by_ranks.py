"""What the ranks of an attempt, and their srun, have left: whether one has begun, and why they say nothing."""

from contextlib import suppress
from pathlib import Path

from graphmill.cluster.jobs.srun_step import SrunStep, is_of_an_end
from graphmill.cluster.launch.judge import TAIL_LINES
from graphmill.record.events import Event, last_event
from graphmill.record.lines import last_lines
from graphmill.record.run_folder import RunFolder


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
