"""`train`: start the ranks of a run on this machine."""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cli.agree import agree_to_code
from graphmill.cli.options import DatasetRoot, ExperimentName, LogsRoot, Overrides, Ranks, RunId
from graphmill.cli.plan import load, make_plan, show_plan
from graphmill.cli.show import print_line
from graphmill.cli.tree import ShortFlagsCommand, short_flags_text, with_short_flags

if TYPE_CHECKING:
    from graphmill.record.run_folder import RunFolder
    from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(cls=ShortFlagsCommand, epilog=f"Short for -O, docs/coming-from.md: {short_flags_text()}")(train)


def train(
    ctx: typer.Context,
    experiment: ExperimentName = None,
    *,
    ranks: Ranks = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an interrupted run: name it in place of EXPERIMENT, or with --run-id."),
    ] = False,
    extend: Annotated[
        bool,
        typer.Option(
            "--extend", help="More epochs for a run that is done, in a new run: name it in place of EXPERIMENT."
        ),
    ] = False,
    override: Overrides = None,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    run_id: RunId = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and stop before anything is written.")
    ] = False,
) -> None:
    """Train an experiment on this machine.

    Ctrl-C finishes the step, saves a checkpoint and exits with 75; a second one stops at once.

    \b
    Example:
      graphmill train debian-packages-sage --ranks 2
      graphmill train my.yaml --ranks 4 -O train.sync.scheme=local_sgd -O train.sync.every=8
      graphmill train --resume logs/debian-packages-sage-20261121T081500Z
      graphmill train --resume logs/debian-packages-sage-20261121T081500Z --ranks 2
      graphmill train --extend logs/demo --epochs 40
      graphmill train --ranks 4 --max_steps 4000 --batch_size 1024 --num_neighbors 25 10 --sync_every 4
    """
    overrides = with_short_flags(ctx, override or [])
    if extend:
        if resume:
            raise UserError("--resume continues a run, --extend begins one", fix="give one of them")
        if root is not None:
            raise UserError("an extended run reads the data of its plan", fix="leave --dataset-root out")
        _extend(
            experiment,
            [*overrides, *([f"train.ranks={ranks}"] if ranks is not None else [])],
            logs_root,
            run_id,
            dry_run=dry_run,
        )
        return
    if resume:
        _resume(experiment, overrides, ranks=ranks, root=root, logs_root=logs_root, run_id=run_id, dry_run=dry_run)
        return
    asked = load(experiment, overrides, ranks)
    name = default_run_id(asked.name) if run_id is None else run_id
    plan = make_plan(asked, root, name, to_train=not dry_run, logs_root=logs_root)
    _start(plan, logs_root, dry_run=dry_run)


def _start(plan: "Plan", logs_root: Path, *, dry_run: bool) -> None:
    from graphmill.cluster.launch.check_model import refuse_unfit_model
    from graphmill.cluster.launch.run import start_run
    from graphmill.record.run_folder import RunFolder

    folder = RunFolder.place_for(plan.run_id, logs_root)
    if dry_run:
        refuse_unfit_model(plan)
        show_plan(plan, json=False)
        return
    finish(folder, start_run(plan, logs_root=logs_root))


def _extend(run: str | None, overrides: list[str], logs_root: Path, run_id: str | None, *, dry_run: bool) -> None:
    """Begin a run that continues one that is done; nothing but its number of epochs is another."""
    from graphmill.cli.find_run import find_run
    from graphmill.record.extend import plan_extension

    asked = {key.strip(): value for key, _, value in (text.partition("=") for text in overrides)}
    epochs = asked.pop("train.epochs", "")
    if asked.get("train.max_steps") == "null":  # what --epochs implies
        del asked["train.max_steps"]
    if run is None:
        raise UserError("--extend does not say which run", fix="graphmill train --extend logs/RUN --epochs N")
    if asked:
        raise UserError(
            f"an extended run continues as it was planned, and {', '.join(asked)} would change that",
            fix=f"leave it out; or begin a new run with the weights of this one: -O init_from.run={run}",
        )
    if not epochs.isdecimal():
        raise UserError(f"--extend needs --epochs: of the whole run, not {epochs or 'nothing'}", fix="--epochs 40")
    folder = find_run(run, logs_root)
    agree_to_code(folder)
    name = default_run_id(folder.read_plan().name) if run_id is None else run_id
    _start(plan_extension(folder, epochs=int(epochs), run_id=name), logs_root, dry_run=dry_run)


def default_run_id(name: str) -> str:
    """The experiment's name and this second."""
    return f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def _resume(
    experiment: str | None,
    overrides: list[str],
    *,
    ranks: int | None,
    root: Path | None,
    logs_root: Path,
    run_id: str | None,
    dry_run: bool,
) -> None:
    """Continue a run as it was planned; if the request is given again, it is compared with that plan.

    `ranks` is no part of the comparison: it says how many continue.
    """
    from graphmill.cluster.launch.run import resume_run, world_here
    from graphmill.record.find_run import run_to_resume
    from graphmill.record.run_folder import refuse_other_plan
    from graphmill.spec.world import effect_of

    folder, is_run = run_to_resume(experiment, run_id, logs_root, changes=bool(overrides), verb="train")
    if is_run:
        agree_to_code(folder)
    planned = folder.read_plan()
    if not is_run and (experiment is not None or overrides):
        asked = load(experiment, overrides, None if ranks is None else planned.ranks)
        refuse_other_plan(folder, planned, make_plan(asked, root, planned.run_id, logs_root=logs_root))
    world = world_here(folder, ranks)
    if dry_run:
        show_plan(planned, json=False)
        if world != planned.world:
            print_line(f"continues with {world.ranks} ranks of {world.threads} threads: {effect_of(planned)}")
        return
    finish(folder, resume_run(folder, world=world))


def finish(folder: "RunFolder", code: int, *, resume_with: str = "graphmill train --resume") -> None:
    """Report how it ended, and exit accordingly. `resume_with`: what continues the run, before its folder."""
    from graphmill.cluster.launch.judge import NOT_READY, STOPPED_AT_ONCE

    outcome = folder.read_outcome()
    if code == exits.DONE and outcome is not None:  # rank 0 has printed the measures
        number = len(folder.attempts())
        of = f" in attempt {number}" if number > 1 else ""
        print_line(
            f"{folder.path}: {outcome.epochs} epoch{'' if outcome.epochs == 1 else 's'}, {outcome.wall_s:.1f} s{of}"
        )
    elif outcome is not None and (code == exits.OUT_OF_TIME or outcome.message in (NOT_READY, STOPPED_AT_ONCE)):
        _log.info(f"{folder.path}: {outcome.message}; continue with `{resume_with} {folder.path}`")
    if code != exits.DONE:
        raise typer.Exit(code)
