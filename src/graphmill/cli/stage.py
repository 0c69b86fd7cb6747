"""`stage`: a verified copy of a prepared dataset on a faster disk."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cli.options import DatasetRoot, Json, resolved_dataset_root
from graphmill.cli.show import print_json, print_line

if TYPE_CHECKING:
    from graphmill.record.staged import Share

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
            help="Where the copy is made; else $GRAPHMILL_STAGED_ROOT, or graphmill-UID in $SLURM_TMPDIR or $TMPDIR.",
        ),
    ] = None,
    via: Annotated[
        Path | None,
        typer.Option("--via", metavar="FOLDER", show_default=False, help="Copy there first, such as to scratch."),
    ] = None,
    part: Annotated[
        list[int] | None,
        typer.Option(
            "--part", metavar="N", min=0, show_default=False, help="Of a graph in parts: this part only. Repeatable."
        ),
    ] = None,
    topology: Annotated[
        bool, typer.Option("--topology", help="With --part: the whole graph's topology as well.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read a copy that is there in full, however large it is.")
    ] = False,
    root: DatasetRoot = None,
    json: Json = False,
) -> None:
    """Copy prepared datasets to a faster disk, and verify the copies.

    An existing verified copy is used. Nothing is copied if one of them is not prepared, or if they do not fit together.
    Exit status 1 if a copy could not be made. In a job's script the same is done by staging.to=host_local.
    Of a graph in parts a host needs its own parts only; the whole topology unless partition.topology is partitioned.

    \b
    Example:
      graphmill stage debian-packages --to "$TMPDIR/graphmill"
      graphmill stage planetoid/cora planetoid/pubmed --to "$TMPDIR/graphmill"
      graphmill stage debian-packages --via "$SCRATCH/staged" --to "$TMPDIR/graphmill" --verify
      graphmill stage parts/ogbn-papers100M/8-kaminpar --part 0 --part 1 --topology --to /local/graphmill
    """
    from graphmill.cluster.staging.dataset import read_dataset
    from graphmill.cluster.staging.stage import StagingError, refuse_too_large, staged_root, staged_text
    from graphmill.cluster.staging.stage import stage as make_copy

    share = _share(part or [], datasets, topology=topology)
    target = staged_root(to, os.environ)
    found = [read_dataset(_folder_of(dataset, root), share) for dataset in dict.fromkeys(datasets)]
    copies = []
    try:
        for place in (target,) if via is None else (via, target):
            refuse_too_large(found, place)
        for each in found:
            near = each if via is None else read_dataset(Path(make_copy(each, via, verify=verify).to), share)
            copies.append(make_copy(near, target, verify=verify))
            if not json:
                print_line(staged_text(copies[-1]))
    except StagingError as error:
        _log.error(f"staging failed: {error}")
        raise typer.Exit(exits.ANSWER_IS_NO) from None
    if json:
        print_json([copy.model_dump(mode="json") for copy in copies])
    else:
        print_line(f"ranks find it by: export GRAPHMILL_STAGED_ROOT={target.absolute()}")


def _share(parts: list[int], datasets: list[str], *, topology: bool) -> "Share | None":
    from graphmill.record.staged import Share

    if not parts:
        if topology:
            raise UserError("--topology says what is copied besides parts", fix="add --part N, or leave it out")
        return None
    if len(set(datasets)) > 1:
        raise UserError(
            f"--part is of one graph in parts, and {len(set(datasets))} are named", fix="stage each by itself"
        )
    return Share(tuple(sorted(set(parts))), topology)


def _folder_of(dataset: str, root: Path | None) -> Path:
    from graphmill.graph.header import is_prepared
    from graphmill.spec.kinds import default_kind
    from graphmill.tasks.stores import not_prepared

    folder, dataset_root = Path(dataset), resolved_dataset_root(root)
    if is_prepared(folder):
        return folder
    if not is_prepared(dataset_root / dataset):
        raise not_prepared(default_kind(), dataset, dataset_root)
    return dataset_root / dataset
