"""`verify`: is a run whole and true to its plan?"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base import exits
from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.record.run_folder import RunFolder
    from graphmill.verify.check import Check


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|JOB",
            show_default=False,
            help="A run id, a run folder, a folder of runs, or the id of a Slurm job; else the latest run.",
        ),
    ] = None,
    logs_root: LogsRoot = Path("logs"),
    json: Json = False,
) -> None:
    """Check that runs are whole and true to their plan.

    Files, job, metrics, ranks, data, checkpoints: one line per check. Exit status 1 if one fails; 75 if none does, but
    a run is not finished: it runs, or --resume continues it. What every rank wrote on its own is compared, and each
    seals its files when it is done: that finds accidents, not forgers.

    \b
    Example:
      graphmill verify
      graphmill verify logs/demo --json
      graphmill verify 4711
    """
    from graphmill.verify.run import verify_run

    results = [(folder, verify_run(folder)) for folder in _meant(run, logs_root)]
    found = {check.result for _, checks in results for check in checks}
    is_true, is_finished = "fail" not in found, "unfinished" not in found
    if json:
        print_json(
            {
                "ok": is_true and is_finished,
                "finished": is_finished,
                "runs": [{"run": folder.path, "checks": checks} for folder, checks in results],
            }
        )
    else:
        for folder, checks in results:
            _print(folder, checks)
    if not is_true:
        raise typer.Exit(exits.ANSWER_IS_NO)
    if not is_finished:
        raise typer.Exit(exits.OUT_OF_TIME)


def _meant(text: str | None, logs_root: Path) -> list["RunFolder"]:
    from graphmill.base.errors import UserError
    from graphmill.cli.find_run import find_several
    from graphmill.record.run_folder import RunFolder
    from graphmill.slurm.commands import is_job_id
    from graphmill.verify.job import find_job

    try:
        return find_several(text, logs_root)
    except UserError:
        if text is None:
            raise
        for path in (Path(text), logs_root / text):
            if RunFolder(path).metrics_path.exists() or RunFolder(path).events_dir.exists():
                return [RunFolder(path)]  # a run that lost its plan
        found = find_job(text, logs_root) if is_job_id(text) else None
        if found is None:
            _refuse_data(text)
            raise
        return [found]


def _refuse_data(text: str) -> None:
    """Raise a `UserError` if `text` names not a run, but data that `inspect` can check."""
    from graphmill.base.errors import UserError
    from graphmill.cli.data import store_folder
    from graphmill.cli.options import resolved_dataset_root
    from graphmill.sample.presampled.schedule import is_presampled

    if store_folder(text, resolved_dataset_root(None)) is not None or is_presampled(Path(text)):
        raise UserError(f"{text!r} is no run: it holds data", fix=f"graphmill inspect {text} --check")


def _print(folder: "RunFolder", checks: list["Check"]) -> None:
    print_line(str(folder.path))
    rows, shown = [], ""
    for check in checks:
        rows.append(["" if check.group == shown else check.group, check.name, check.result, check.detail])
        shown = check.group
    print_table(("", "check", "result", "detail"), rows)
    counts = Counter(check.result for check in checks)
    warned = f", {counts['warn']} warnings" if counts["warn"] else ""
    if counts["fail"]:
        print_line(f"{counts['fail']} of {len(checks)} checks failed{warned}")
    elif counts["unfinished"]:
        waits = f"{counts['unfinished']} wait for its end"
        print_line(f"not finished: true to its plan so far, {counts['ok']} checks passed, {waits}{warned}")
    else:
        print_line(f"true to its plan: {counts['ok']} checks passed{warned}")
