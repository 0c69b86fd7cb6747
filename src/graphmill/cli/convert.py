"""`convert`: prepared data in the layout of other programs."""

from pathlib import Path
from typing import Annotated

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import DatasetRoot, Json, resolved_dataset_root
from graphmill.cli.progress import progress
from graphmill.cli.show import print_json, print_line


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(convert)


def convert(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A prepared dataset: its name, or its folder.")],
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="LAYOUT", help="A layout that the task knows, such as hdf5.")
    ] = "hdf5",
    output: Annotated[
        Path,
        typer.Option("--output", metavar="PATH", help="What to write: a file, or a folder for a file of each split."),
    ],
    root: DatasetRoot = None,
    json: Json = False,
) -> None:
    """Write a prepared dataset in the layout of another program: the way back from `prepare`.

    Each file is written whole or not at all; what has its name already is replaced.

    \\b
    Example:
      graphmill convert synthetic/assignment --output h5
      graphmill convert synthetic/assignment --output all.h5 --to hdf5
    """
    from graphmill.base.names import did_you_mean
    from graphmill.cli.data import store_folder
    from graphmill.graph.header import read_header
    from graphmill.spec.kinds import TASKS, find_kind
    from graphmill.tasks.stores import load, open_store

    folder = store_folder(dataset, resolved_dataset_root(root))
    if folder is None:
        raise UserError(
            f"{dataset!r} is not prepared under {resolved_dataset_root(root)}",
            fix="`graphmill datasets` lists datasets",
        )
    header = read_header(folder)
    layouts = find_kind(header.kind).data.layouts_out if header.kind in TASKS else {}
    if not layouts:
        raise UserError(
            f"{header.name} holds data of the task {header.kind}, which are written in no other layout",
            fix="read its arrays: they are .npy files",
        )
    if to not in layouts:
        raise UserError(f"--to {to} is no layout; {did_you_mean(to, layouts)}", fix=f"--to {'|'.join(layouts)}")
    store = open_store(find_kind(header.kind), folder)
    with progress(f"writing {header.name}"):
        written = load(layouts[to])(store, output)
    if json:
        print_json({"dataset": header.name, "layout": to, "written": [str(path) for path in written]})
        return
    for path in written:
        print_line(f"{path}  {path.stat().st_size / (1 << 20):,.1f} MiB")
