"""`recipes`: the experiments, studies, searches and pipelines that come with graphmill."""

from typing import Final

import typer

from graphmill.cli.options import Json
from graphmill.cli.show import Cell, print_json, print_table

_RUN_WITH: Final = {"experiment": "train", "study": "study run", "search": "tune", "pipeline": "pipeline run"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(recipes)


def recipes(json: Json = False) -> None:
    """List the recipes: experiments, studies, searches and pipelines that come with graphmill.

    What each is, what it learns from, and whether its settings were measured by us.

    \b
    Example:
      graphmill recipes
      graphmill train cora-sage
      graphmill study run study-demo
    """
    show_recipes(*_RUN_WITH, json=json)


def show_recipes(*kinds: str, json: bool) -> None:
    """Print the recipes of these kinds."""
    from graphmill.spec.recipes import list_recipes, recipes_folder

    found = [recipe for recipe in list_recipes() if recipe.kind in kinds]
    if json:
        print_json({"folder": recipes_folder(), "recipes": found})
        return
    rows: list[list[Cell]] = [
        [recipe.name, _RUN_WITH[recipe.kind], recipe.dataset, recipe.is_measured, recipe.description]
        for recipe in found
    ]
    print_table(
        ("recipe", "run with", "dataset", "measured", "what it is"), rows, title=f"Recipes in {recipes_folder()}"
    )
