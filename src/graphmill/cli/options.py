"""Options and arguments that several commands take."""

import os
from pathlib import Path
from typing import Annotated

import typer

DatasetRoot = Annotated[
    Path | None,
    typer.Option(
        "--dataset-root",
        "--dataset_root",
        metavar="FOLDER",
        show_default=False,
        help="Where prepared datasets are; else $GRAPHMILL_DATA_ROOT, $PYG_DATA_ROOT, $SCRATCH/graphmill, ./data.",
    ),
]
LogsRoot = Annotated[Path, typer.Option("--logs-root", metavar="FOLDER", help="Where run folders are.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--override",
        "-O",
        metavar="KEY=VALUE",
        show_default=False,
        help="Lay a value over the experiment, such as train.sync.every=4. Repeatable.",
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks",
        metavar="N",
        show_default=False,
        help="Processes to start, as -O train.ranks=N; with --resume also others than planned.",
    ),
]
RunId = Annotated[
    str | None,
    typer.Option("--run-id", metavar="ID", show_default=False, help="Name of the run; else <name>-<UTC time>."),
]
CodeSnapshot = Annotated[
    bool | None,
    typer.Option(
        "--code-snapshot/--no-code-snapshot",
        show_default=False,
        help="Import a copy of your own code as it is now, or none; else a new run has one, and others keep theirs.",
    ),
]
ExperimentName = Annotated[
    str | None,
    typer.Argument(
        metavar="EXPERIMENT",
        show_default=False,
        help="A YAML file, or the name of a recipe; debian-packages-sage if left out.",
    ),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="JOB|RUN", show_default=False, help="Start only when this job, or run, has succeeded."
    ),
]


def resolved_dataset_root(option: Path | None) -> Path:
    """The dataset root that the option and the environment ask for."""
    from graphmill.runtime.roots import dataset_root

    return dataset_root(option, os.environ)
