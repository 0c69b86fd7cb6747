"""Options that several commands take, declared once."""

import ast
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from graphmill.cli.options import takes_groups
from graphmill.cli.words import RestCommand, ShortFlagsCommand, WordsCommand, rest_of, with_short_flags, words_of

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Size:
    """A group."""

    width: Annotated[int, typer.Option("--width")] = 2
    names: Annotated[list[str] | None, typer.Option("--name")] = None


def _call(command, words, **settings):
    app = typer.Typer()
    app.command(**settings)(takes_groups(command))
    return CliRunner().invoke(app, words)


def test_takes_groups_hands_over_what_was_given():
    def show(at: str, *, size: Size, last: Annotated[bool, typer.Option("--last")] = False) -> None:
        typer.echo(f"{at} {size} {last}")

    assert _call(show, ["x"]).stdout == "x Size(width=2, names=None) False\n"
    given = ["x", "--name", "a", "--width=3", "--last", "--name", "b"]
    assert _call(show, given).stdout == "x Size(width=3, names=['a', 'b']) True\n"
    assert _call(show, ["x", "--width", "a"]).exit_code == 2


def test_takes_groups_lists_options_where_the_group_stands():
    def show(*, first: Annotated[int, typer.Option("--first")] = 1, size: Size, last: bool = False) -> None:
        """Show."""

    told = _call(show, ["--help"]).stdout
    places = [told.index(flag) for flag in ("--first", "--width", "--name", "--last")]
    assert places == sorted(places)


def test_several_values_and_values_like_options_are_read():
    def show(
        ctx: typer.Context,
        stages: Annotated[str, typer.Option("--stages")],
        note: Annotated[str, typer.Option("--note")] = "",
    ) -> None:
        typer.echo(f"{stages}|{note}|{words_of(ctx)}")

    words = ["--stages", "few", "many", "--note", "--stages"]
    kept = ["--stages=few many", "--note=--stages"]
    assert _call(show, words, cls=WordsCommand).stdout == f"few many|--stages|{kept}\n"


def test_rest_is_what_follows_two_dashes_unless_they_are_a_value():
    def show(ctx: typer.Context, note: Annotated[str, typer.Option("--note")] = "") -> None:
        typer.echo(f"{note}|{rest_of(ctx)}")

    assert _call(show, [], cls=RestCommand).stdout == "|None\n"
    assert _call(show, ["--note", "--"], cls=RestCommand).stdout == "--|None\n"
    assert _call(show, ["--note", "a", "--", "--x", "--"], cls=RestCommand).stdout == "a|['--x', '--']\n"


def test_no_option_is_declared_twice():
    """One that several commands take stands in `options`, or in a group."""
    places = defaultdict(list)
    for path in [*(ROOT / "src/graphmill/cli").glob("*.py"), *(ROOT / "tools/devcluster").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Option", "typer.Argument"):
                said = [ast.unparse(word.value) for word in node.keywords if word.arg in ("help", "metavar")]
                places[*map(ast.unparse, node.args), *said].append(f"{path.name}:{node.lineno}")
    assert not [where for where in places.values() if len(where) > 1]


def test_options_with_a_negative_form_are_known_beside_short_flags():
    def show(ctx: typer.Context, copied: Annotated[bool | None, typer.Option("--copy/--no-copy")] = None) -> None:
        typer.echo(f"{copied}|{with_short_flags(ctx, [])}")

    given = ["--no-copy", "--lr", "1"]
    assert _call(show, given, cls=ShortFlagsCommand).stdout == "False|['train.optimizer.lr=1']\n"


def test_submit_takes_words_after_two_dashes_with_run_alone(graphmill, toy):
    refused = graphmill("submit", "toy.yaml", "--dry-run", "--", "ls")
    assert refused.code == 2
    assert "only --run runs" in refused.err
    assert "only --run runs" not in graphmill("submit", "toy.yaml", "--dry-run", "--").err
