"""`train`: start the ranks of a run on this machine."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.api.run import done_text
from graphmill.api.training import ToTrain, to_train
from graphmill.base import exits
from graphmill.cli.agree import agree_to_code
from graphmill.cli.options import DatasetRoot, ExperimentName, LogsRoot, Overrides, Ranks, Resume, RunId
from graphmill.cli.plan import show_plan
from graphmill.cli.show import print_line
from graphmill.cli.words import ShortFlagsCommand, short_flags_text, with_short_flags

if TYPE_CHECKING:
    from graphmill.record.run_folder import RunFolder

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(cls=ShortFlagsCommand, epilog=short_flags_text())(train)


def train(
    ctx: typer.Context,
    experiment: ExperimentName = None,
    *,
    ranks: Ranks = None,
    resume: Resume = False,
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
    training = to_train(
        experiment,
        with_short_flags(ctx, override or []),
        agree_to_code,
        ranks=ranks,
        resume=resume,
        extend=extend,
        root=root,
        logs_root=logs_root,
        run_id=run_id,
        prepare=not dry_run,
    )
    if dry_run:
        _show(training)
    else:
        finish(training.folder, training.start())


def _show(training: ToTrain) -> None:
    """Print its plan; of one that is continued with other ranks than planned, with how many."""
    from graphmill.cluster.launch.check_model import refuse_unfit_model
    from graphmill.spec.world import effect_of

    if training.world is None:
        refuse_unfit_model(training.plan)
    show_plan(training.plan, json=False)
    world = training.world
    if world is not None and world != training.plan.world:
        print_line(f"continues with {world.ranks} ranks of {world.threads} threads: {effect_of(training.plan)}")


def finish(folder: "RunFolder", code: int, *, resume_with: str = "graphmill train --resume") -> None:
    """Report how it ended, and exit accordingly. `resume_with`: what continues the run, before its folder."""
    from graphmill.cluster.launch.judge import NOT_READY, STOPPED_AT_ONCE

    outcome = folder.read_outcome()
    if code == exits.DONE and outcome is not None:  # rank 0 has printed the measures
        print_line(done_text(folder, outcome))
    elif outcome is not None and (code == exits.OUT_OF_TIME or outcome.message in (NOT_READY, STOPPED_AT_ONCE)):
        _log.info(f"{folder.path}: {outcome.message}; continue with `{resume_with} {folder.path}`")
    if code != exits.DONE:
        raise typer.Exit(code)
