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
    datasets: Annotated[
        list[str], typer.Argument(metavar="DATASET…", help="Names of prepared datasets, or their folders.")
    ],
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
    """Copy prepared datasets to a faster disk, and verify the copies.

    An existing verified copy is used. Nothing is copied if one of them is not prepared, or if they do not fit together.
    Exit status 1 if a copy could not be made. In a job's script the same is done by staging.to=host_local.

    \b
    Example:
      graphmill stage debian-packages --to "$TMPDIR/graphmill"
      graphmill stage planetoid/cora planetoid/pubmed --to "$TMPDIR/graphmill"
      graphmill stage debian-packages --via "$SCRATCH/staged" --to "$TMPDIR/graphmill" --verify
    """
    from graphmill.cluster.staging.stage import StagingError, in_words, read_dataset, refuse_too_large, staged_root
    from graphmill.cluster.staging.stage import stage as make_copy

    target = staged_root(to, os.environ)
    found = [read_dataset(_folder_of(dataset, root)) for dataset in dict.fromkeys(datasets)]
    copies = []
    try:
        for place in (target,) if via is None else (via, target):
            refuse_too_large(found, place)
        for each in found:
            near = each if via is None else read_dataset(Path(make_copy(each, via, verify=verify).to))
            copies.append(make_copy(near, target, verify=verify))
            if not json:
                print_line(in_words(copies[-1]))
    except StagingError as error:
        _log.error(f"staging failed: {error}")
        raise typer.Exit(exits.ANSWER_IS_NO) from None
    if json:
        print_json([copy.model_dump(mode="json") for copy in copies])
    else:
        print_line(f"ranks find it by: export GRAPHMILL_STAGED_ROOT={target.absolute()}")


def _folder_of(dataset: str, root: Path | None) -> Path:
    from graphmill.graph.header import is_prepared

    folder = Path(dataset)
    return folder if is_prepared(folder) else resolved_dataset_root(root) / dataset
