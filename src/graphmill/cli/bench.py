"""`bench`: the measurements against peers that come with a checkout."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import graphmill
from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.cli.options import Json
from graphmill.cli.show import print_json, print_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(context_settings={"allow_interspersed_args": False})(bench)


def bench(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default=False, help="A benchmark; all are listed if left out."),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", show_default=False, help="Passed on to it.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a benchmark, or list them.

    Benchmarks against peers come with a checkout of graphmill only, not with an installed package. What a trained run
    is worth, `graphmill bench TASK RUN`, is measured wherever graphmill is installed.

    \b
    Example:
      graphmill bench
      graphmill bench sampler --help
      graphmill bench assignment logs/assignment-one-gnn-20261124T101500Z -o repeats=9 --output bench.csv
    """
    if name is not None and _is_of_a_task(name, arguments or []):
        return
    folder = Path(graphmill.__file__).parents[2] / "benchmarks"
    scripts = {path.stem: path for path in sorted(folder.glob("*.py")) if _runs(path)}
    if not scripts:
        raise UserError(
            f"there are no benchmarks in {folder}: they come with a checkout of graphmill only",
            fix="clone the repository, `pip install -e .` in it, and run `graphmill bench` again",
        )
    if name is None:
        found = [{"name": stem, "description": _first_line(path), "path": str(path)} for stem, path in scripts.items()]
        if json:
            print_json(found)
        else:
            print_table(("benchmark", "description"), [[item["name"], item["description"]] for item in found])
        return
    if name not in scripts:
        raise UserError(
            f"there is no benchmark {name!r}; {did_you_mean(name, scripts)}", fix="`graphmill bench` lists them"
        )
    done = subprocess.run([sys.executable, str(scripts[name]), *(arguments or [])], check=False)
    if done.returncode:
        raise typer.Exit(done.returncode if done.returncode > 0 else 1)


def _is_of_a_task(name: str, arguments: list[str]) -> bool:
    """Whether a task measures its runs under that name; it has done so then."""
    from graphmill.cli.bench_run import bench_run
    from graphmill.spec.kinds import TASKS, find_kind
    from graphmill.spec.kinds.extras import Bench

    kind = find_kind(name) if name in TASKS else None
    bench = kind.extra(Bench) if kind is not None else None
    if kind is None or bench is None:
        return False
    bench_run(kind, bench, arguments)
    return True


def _runs(path: Path) -> bool:
    """Whether it is a script, and not what the scripts share."""
    return '__name__ == "__main__"' in path.read_text(encoding="utf-8")


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
