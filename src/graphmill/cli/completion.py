"""What a shell completes: commands and options by typer; recipes, runs and datasets by what is there."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

_PLAIN: Final = re.compile(r"[\w./@%+=:,-]+")
"""What is put on a command line as it is: a folder called `$(command)`, of a copied logs root, would be run there."""
_DEPTH: Final = 3  # folders from the logs root to a run: NAME/STUDY/CELL


class Shell(StrEnum):
    """Shells that typer has a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(completion)


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")]) -> None:
    """Print what makes a shell complete commands, options, recipes, runs and datasets.

    \b
    Example:
      eval "$(graphmill completion bash)"   # in ~/.bashrc
      graphmill completion zsh > ~/.zfunc/_graphmill   # a folder of $fpath, before compinit
      graphmill completion fish > ~/.config/fish/completions/graphmill.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # its own options use it

    from graphmill.cli.app import COMPLETION_VARIABLE

    typer.echo(get_completion_script(prog_name="graphmill", complete_var=COMPLETION_VARIABLE, shell=shell.value))


def written() -> list[str]:
    """The command line as far as it is written, without the program's name."""
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]


def answer(app: typer.Typer) -> None:
    """Print what could stand at the cursor, and exit."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
    tree = typer.main.get_command(app)
    for parameter in _parameters(tree):
        names = _NAMES.get(_thing(parameter))
        if names is not None:
            parameter.shell_complete = _completes(names)
    tree(prog_name="graphmill")


def _parameters(command: Any) -> Iterator[Any]:  # noqa: ANN401  # typer's classes, old and new
    yield from command.params
    for child in getattr(command, "commands", {}).values():
        yield from _parameters(child)


def _thing(parameter: Any) -> str:  # noqa: ANN401  # typer's classes, old and new
    """What a parameter names, by what help calls it: [RUN|JOB] is a run."""
    return str(parameter.metavar or "").strip("[]…").partition("|")[0]


@dataclass(frozen=True, slots=True)
class _Item:
    """A word that could stand at the cursor, as typer's shells print it."""

    value: str
    type: str = "plain"
    help: str | None = None


def _completes(names: Callable[[Any], Iterator[str]]) -> Callable[[Any, str], list[_Item]]:
    def complete(ctx: Any, incomplete: str) -> list[_Item]:  # noqa: ANN401  # typer's Context, old and new
        found = sorted(name for name in set(names(ctx)) if name.startswith(incomplete))
        return [_Item(name) for name in found if _PLAIN.fullmatch(name)]

    return complete


def _recipes(kind: str) -> Callable[[Any], Iterator[str]]:
    def names(_: Any) -> Iterator[str]:  # noqa: ANN401  # typer's Context, old and new
        from graphmill.spec.recipes import recipes_folder

        for path in recipes_folder().glob("*.yaml"):
            first = path.stem.partition("-")[0]
            if (first if first in ("study", "pipeline") else "experiment") == kind:
                yield path.stem

    return names


def _runs(ctx: Any) -> Iterator[str]:  # noqa: ANN401  # typer's Context, old and new
    """Run ids below the logs root, and the studies and pipelines that they belong to."""
    root = Path(ctx.params.get("logs_root") or "logs")
    for depth in range(1, _DEPTH + 1):
        for plan in root.glob("/".join(["*"] * depth) + "/plan.json"):
            run = plan.parent.relative_to(root)
            yield from (str(part) for part in (run, *run.parents) if str(part) != ".")


def _datasets(ctx: Any) -> Iterator[str]:  # noqa: ANN401  # typer's Context, old and new
    from graphmill.cli.options import resolved_dataset_root
    from graphmill.spec.kinds import all_kinds

    yield from (dataset.name for kind in all_kinds() for dataset in kind.data.known)
    root = resolved_dataset_root(ctx.params.get("root"))
    for header in (*root.glob("*/metadata.json"), *root.glob("*/*/metadata.json")):
        yield str(header.parent.relative_to(root))


_NAMES: Final = {
    "EXPERIMENT": _recipes("experiment"),
    "STUDY": _recipes("study"),
    "PIPELINE": _recipes("pipeline"),
    "RUN": _runs,
    "DATASET": _datasets,
    "STORE": _datasets,
}
