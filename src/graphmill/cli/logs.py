"""`logs`: what a rank, or the script of a job, printed."""

import re
import sys
import time
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import typer

from graphmill.base.errors import UserError
from graphmill.base.foreign import printable
from graphmill.base.retries import refuse_endless
from graphmill.cli.options import LogsRoot

if TYPE_CHECKING:
    from graphmill.cluster.status import Watcher
    from graphmill.record.run_folder import RunFolder

_READ_EVERY_S: Final = 0.5
_LOOK_EVERY_S: Final = 5.0  # Slurm is queried no more often
_CHUNK: Final = 1 << 20
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]*m|\r)")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(logs)


def logs(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|JOB]", show_default=False, help="A run, or the number of its job; else the latest run."
        ),
    ] = None,
    *,
    rank: Annotated[int, typer.Option("--rank", metavar="N", min=0, help="Whose log.")] = 0,
    sampler: Annotated[
        int | None,
        typer.Option(
            "--sampler", metavar="N", min=0, show_default=False, help="Of a process that samples, instead of a rank."
        ),
    ] = None,
    job: Annotated[
        bool, typer.Option("--job", help="What the script of its last job printed, instead of a rank.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print what is added until the run ends.")] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", metavar="N", min=0, show_default=False, help="Only the last N lines.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="NAME",
            show_default=False,
            help="Print its records as another program writes them, instead: dist-sage-sup.",
        ),
    ] = None,
    logs_root: LogsRoot = Path("logs"),
) -> None:
    """Print the log of a run: of rank 0, of another rank, or of its job; or what a command printed (submit --run).

    A log goes on over all attempts of its run; with --follow a run that waits for its next job is waited for.
    Byte for byte into a file or another program; a terminal gets its control characters, but for colours, spelled out.

    \b
    Example:
      graphmill logs
      graphmill logs 4711 --follow
      graphmill logs my-run --rank 3 -n 50
      graphmill logs my-run --layout dist-sage-sup > dist_sage_sup.txt
    """
    from graphmill.cli.find_run import find_by_name_or_job, latest_run
    from graphmill.cluster.status import Watcher

    found = [latest_run(logs_root)] if run is None else find_by_name_or_job(run, logs_root)
    if len(found) > 1:
        names = ", ".join(str(each.path) for each in found[:3])
        raise UserError(f"{run} holds {len(found)} runs", fix=f"name one of them: {names}")
    if layout is not None:
        from graphmill.report.text_layouts import as_text

        if follow or job or lines is not None or rank or sampler is not None:
            raise UserError(
                "--layout shows all records of a run", fix="leave out --follow, --job, --rank, --sampler and --lines"
            )
        sys.stdout.write(printable(as_text(found[0], layout)))
        return
    if sampler is not None and (rank or job):
        raise UserError("--sampler names one log, and --rank or --job another", fix="leave out one of them")
    whose = _Whose("rank", rank) if sampler is None else _Whose("sampler", sampler)
    if not follow:
        _copy(_existing(found[0], whose, job=job), lines)
        return
    _follow(found[0], whose, job=job, lines=lines, watcher=Watcher(found))


class _Whose(NamedTuple):
    """The process whose log is meant."""

    role: Literal["rank", "sampler"]
    number: int


def _path(run: "RunFolder", whose: _Whose, *, job: bool) -> Path | None:
    """The log that is meant; None: it has none yet."""
    from graphmill.cluster.status import job_log_of

    if not job:
        path = run.path / f"{whose.role}_{whose.number}.log"
        return path if path.is_file() else None
    jobs = run.jobs()
    return job_log_of(run, jobs[-1].job_id) if jobs else None


def _existing(run: "RunFolder", whose: _Whose, *, job: bool) -> Path:
    path = _path(run, whose, job=job)
    if path is not None:
        return path
    if job:
        what = "no job of it has printed anything" if run.jobs() else "it has no job"
        raise UserError(f"{run.path}: {what}", fix="leave out --job, or look with `graphmill watch`")
    if run.is_command():
        raise UserError(f"{run.path}: the command has printed nothing yet", fix="`--follow` waits for it")
    (role, number), world = whose, run.world()
    count = world.ranks if role == "rank" else world.samplers
    if role == "sampler" and not count:
        raise UserError(f"{run.path} has no samplers: its ranks sample", fix="--rank N shows what a rank printed")
    if number >= count:
        raise UserError(f"{run.path} has {count} {role}s, and no {role} {number}", fix=f"--{role} 0 to {count - 1}")
    raise UserError(
        f"{run.path}: {role} {number} has printed nothing yet",
        fix="`--follow` waits for it; `graphmill watch` says why",
    )


def _copy(path: Path, lines: int | None) -> int:
    """Print a log, or its last lines. Returns the offset that was read to."""
    refuse_endless(path)
    with path.open("rb") as file:
        if lines is None:
            return _rest(file)
        kept = deque(file, maxlen=lines)
        _write(b"".join(kept))
        return file.tell()


def _rest(file: IO[bytes]) -> int:
    while chunk := file.read(_CHUNK):
        _write(chunk)
    return file.tell()


def _write(content: bytes) -> None:
    """Print what others wrote: as it is, but on a terminal, which would obey it."""
    if sys.stdout.isatty():
        parts = _COLOUR.split(content.decode("utf-8", errors="replace"))
        shown = (part if index % 2 else printable(part) for index, part in enumerate(parts))
        content = "".join(shown).encode()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _follow(run: "RunFolder", whose: _Whose, *, job: bool, lines: int | None, watcher: "Watcher") -> None:
    """Print the log until the run has ended and all of it is printed; then the log of the next job follows."""
    offsets: dict[Path, int] = {}
    looked, is_over = -_LOOK_EVERY_S, False
    while True:
        if time.monotonic() - looked >= _LOOK_EVERY_S:
            is_over = not watcher.look()[0].is_alive and not watcher.queue.is_silent
            looked = time.monotonic()
        path = _path(run, whose, job=job)
        if path is not None and path not in offsets:
            offsets[path] = _copy(path, lines if not offsets else None)
        elif path is not None:
            with path.open("rb") as file:
                file.seek(offsets[path])
                offsets[path] = _rest(file)
        if is_over:
            if not offsets:
                _existing(run, whose, job=job)
            return
        time.sleep(_READ_EVERY_S)
