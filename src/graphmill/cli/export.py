"""`export`: runs in the format of an experiment tracker, after the fact."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import Json, LogsRoot
from graphmill.cli.show import print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.record.run_folder import RunFolder
    from graphmill.report.export.tracker import TrackerRun


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|STUDY]…", show_default=False, help="Runs, or folders of runs; all runs if left out."
        ),
    ] = None,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="TRACKER", help="tensorboard, mlflow, wandb or trackio.", show_default=False)
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FOLDER",
            show_default=False,
            help="tensorboard: its logdir, else ./tensorboard. wandb: holds wandb/, else here. trackio: TRACKIO_DIR.",
        ),
    ] = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option("--tracking-uri", metavar="URI", show_default=False, help="mlflow; else sqlite:///mlflow.db."),
    ] = None,
    project: Annotated[
        str, typer.Option("--project", metavar="NAME", help="mlflow's experiment; the project of wandb and trackio.")
    ] = "graphmill",
    online: Annotated[bool, typer.Option("--online", help="wandb only: send the run to W&B now.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Verify each run, and tag it with the answer.")] = False,
    logs_root: LogsRoot = Path("logs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is new, and write nothing.")] = False,
    json: Json = False,
) -> None:
    """Write runs to an experiment tracker, finished or not: one continuous run each, whatever attempts it took.

    Params are the plan, tags say where the run comes from, and there is a point for each measure and epoch, at the time
    when it was recorded. Exported again, only what is new is written. All runs are read before anything is written.

    \b
    Example:
      graphmill export logs/cora-sage-1 --to tensorboard && tensorboard --logdir tensorboard
      graphmill export my-grid --to mlflow --tracking-uri sqlite:///mlflow.db
      graphmill export --to wandb --project gnn --dry-run
    """
    from graphmill.report.export.tracker import Target, open_tracker, refuse_same_names

    tracker = open_tracker(to, Target(project, _place(to, output, tracking_uri), online))
    found = [_read(folder, verify=verify) for folder in _meant(runs, logs_root)]
    refuse_same_names(found)
    changes = [tracker.planned(run) for run in found]
    if not dry_run:
        for run in found:
            tracker.write(run)
    if json:
        facts = [{**asdict(change), "tags": run.tags} for change, run in zip(changes, found, strict=True)]
        print_json({"tracker": to, "written": not dry_run, "runs": facts})
        return
    print_table(("run", "here", "points"), [(change.run, change.how, change.num_points) for change in changes])
    print_line(f"nothing written: --dry-run; it would go to {changes[0].place}" if dry_run else changes[0].place)


def _place(to: str, output: str | None, tracking_uri: str | None) -> str | None:
    if tracking_uri is not None and to != "mlflow":
        raise UserError(f"--tracking-uri is for mlflow, and --to is {to}", fix="give --output FOLDER")
    if output is not None and to == "mlflow":
        raise UserError("--output is not for mlflow", fix="give --tracking-uri, such as sqlite:///mlflow.db")
    return tracking_uri if to == "mlflow" else output


def _meant(runs: list[str] | None, logs_root: Path) -> "list[RunFolder]":
    from graphmill.cli.find_run import find_several
    from graphmill.record.run_folder import find_runs

    found = [run for text in runs for run in find_several(text, logs_root)] if runs else find_runs(logs_root)
    if not found:
        raise UserError(f"{logs_root} holds no runs", fix="train one with `graphmill train`, or give --logs-root")
    return list({run.path.resolve(): run for run in found}.values())


def _read(folder: "RunFolder", *, verify: bool) -> "TrackerRun":
    from graphmill.report.export.tracker import read_run
    from graphmill.verify.run import verify_run

    if not verify:
        return read_run(folder)
    checks = verify_run(folder)
    failed = [f"{check.group} {check.name}" for check in checks if check.result == "fail"]
    answer = f"fail: {', '.join(failed)}" if failed else f"ok: {sum(check.result == 'ok' for check in checks)} checks"
    return read_run(folder, verified=answer)
