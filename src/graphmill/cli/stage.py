"""`stage`: a verified copy of a prepared dataset on a faster disk."""

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from graphmill.base import exits
from graphmill.cli.options import DatasetRoot, Json, resolved_dataset_root
from graphmill.cli.show import print_json, print_line

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stage)


def stage(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A prepared dataset's name, or its folder.")],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FOLDER",
            show_default=False,
            help="Where the copy is made; else $GRAPHMILL_STAGED_ROOT, $SLURM_TMPDIR/graphmill, $TMPDIR/graphmill.",
        ),
    ] = None,
    via: Annotated[
        Path | None,
        typer.Option("--via", metavar="FOLDER", show_default=False, help="Copy there first, such as to scratch."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read a copy that is there in full, however large it is.")
    ] = False,
    root: DatasetRoot = None,
    json: Json = False,
) -> None:
    """Copy a prepared dataset to a faster disk, and verify the copy.

    An existing verified copy is used. Exit status 1 if no copy could be made. In a job's script the same
    is done by staging.to=host_local.

    \b
    Example:
      graphmill stage debian-packages --to "$TMPDIR/graphmill"
      graphmill stage debian-packages --via "$SCRATCH/staged" --to "$TMPDIR/graphmill" --verify
    """
    from graphmill.cluster.staging.stage import StagingError, in_words, read_dataset, staged_root
    from graphmill.cluster.staging.stage import stage as make_copy
    from graphmill.graph.header import is_prepared

    folder = Path(dataset)
    if not is_prepared(folder):
        folder = resolved_dataset_root(root) / dataset
    target = staged_root(to, os.environ)
    try:
        found = read_dataset(folder)
        if via is not None:
            found = read_dataset(Path(make_copy(found, via, verify=verify).to))
        staged = make_copy(found, target, verify=verify)
    except StagingError as error:
        _log.error(f"staging failed: {error}")
        raise typer.Exit(exits.ANSWER_IS_NO) from None
    if json:
        print_json(staged.model_dump(mode="json"))
    else:
        print_line(in_words(staged))
        print_line(f"ranks find it by: export GRAPHMILL_STAGED_ROOT={target.absolute()}")
