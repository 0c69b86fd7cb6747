"""Options and arguments that several commands take, and how a command takes a group of them."""

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

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
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue an interrupted run: name it in place of EXPERIMENT, or with --run-id."),
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
SshConfig = Annotated[
    Path | None,
    typer.Option("--ssh-config", metavar="FILE", show_default=False, help="In place of ~/.ssh/config."),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="JOB|RUN", show_default=False, help="Start only when this job, or run, has succeeded."
    ),
]


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its groups: of each parameter that is a dataclass whose fields are options.

    The command receives the dataclass; typer sees an option a field, where the parameter stands.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)
    }

    @functools.wraps(command)
    def with_groups(**given: Any) -> None:  # noqa: ANN401  # whatever typer read
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    parameters = []
    for name, parameter in signature.parameters.items():
        parameters += _options_of(groups[name]) if name in groups else [parameter]
    with_groups.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups


def _options_of(group: Any) -> list[inspect.Parameter]:  # noqa: ANN401  # any dataclass
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(group)
    ]


def resolved_dataset_root(option: Path | None) -> Path:
    """The dataset root that the option and the environment ask for."""
    from graphmill.runtime.roots import dataset_root

    return dataset_root(option, os.environ)
