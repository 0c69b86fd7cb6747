"""Recipes: whole experiments, studies and pipelines that come with graphmill, one YAML each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import graphmill
from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.config.yaml_text import read_document

SUFFIXES = (".yaml", ".yml")
STUDY_KEYS = {"kind", "vary", "cells", "seeds", "repeats", "set"}
PIPELINE_KEY = "stages"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One file of the recipes folder."""

    name: str
    kind: Literal["experiment", "study", "pipeline"]
    description: str  # its first comment line
    path: Path


def recipes_folder() -> Path:
    """`recipes/` of the checkout this package runs from, else the folder installed next to the package."""
    package = Path(graphmill.__file__).parent
    checkout = package.parents[1] / "recipes"
    return checkout if (package.parents[1] / "pyproject.toml").is_file() and checkout.is_dir() else package / "recipes"


def list_recipes(folder: Path | None = None) -> list[Recipe]:
    """All recipes, by name."""
    root = recipes_folder() if folder is None else folder
    return [_recipe(path) for path in sorted(root.glob("*.yaml"))]


def find_recipe(source: str, *, holds: str, folder: Path | None = None) -> Path:
    """The file that `source` names: a path, else a recipe. `holds` says what is looked for, for the message."""
    root = recipes_folder() if folder is None else folder
    looks_like_a_path = "/" in source or source.endswith(SUFFIXES)
    recipe = root / f"{source}.yaml"
    if looks_like_a_path or (_is_file(Path(source)) and not _is_file(recipe)):
        return Path(source)
    if source and _is_file(recipe):
        return recipe
    names = [path.stem for path in root.glob("*.yaml")]
    known = did_you_mean(source, names) if names else f"there are no recipes in {root}"
    raise UserError(
        f"{source!r} is neither a YAML file nor a recipe; {known}",
        fix=f"name a YAML file that holds {holds}, or a recipe; `graphmill study list` lists them",
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or one with a NUL
        return False


def _recipe(path: Path) -> Recipe:
    document = read_document(path, holds="a recipe")
    first = path.read_text(encoding="utf-8").lstrip().splitlines()[0]
    description = first.lstrip("# ").rstrip() if first.startswith("#") else ""
    return Recipe(path.stem, kind_of(document.value), description, path)


def kind_of(value: Mapping[str, Any]) -> Literal["experiment", "study", "pipeline"]:
    """What a file with these keys holds."""
    if PIPELINE_KEY in value:
        return "pipeline"
    return "study" if STUDY_KEYS & value.keys() else "experiment"
