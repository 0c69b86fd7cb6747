"""Recipes: whole experiments, studies, searches and pipelines that come with graphmill, one YAML each."""

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
SEARCH_KEYS = {"space", "trials", "hours"}
RecipeKind = Literal["experiment", "study", "search", "pipeline"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One file of the recipes folder."""

    name: str
    kind: RecipeKind
    description: str  # its first comment line
    dataset: str  # of a study or a pipeline: what its experiment names, unless it sets another; "" if it names none
    is_measured: bool  # false where a comment of it says "not measured" (CONTRIBUTING.md)
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
    if is_recipe(source, folder=root):
        return root / f"{source}.yaml"
    if _looks_like_a_path(source) or _is_file(Path(source)):
        return Path(source)
    names = [path.stem for path in root.glob("*.yaml") if _holds(path.stem) == holds]
    known = did_you_mean(source, names) if names else f"there are no recipes in {root}"
    raise UserError(
        f"{source!r} is neither a YAML file nor a recipe; {known}",
        fix=f"name a YAML file that holds {holds}, or a recipe; `graphmill recipes` lists them"
        + (f"; a dataset goes beside it: -O dataset.name={source}" if holds == "an experiment" else ""),
    )


def _holds(name: str) -> str:
    """What a recipe is, by its name."""
    word = name.partition("-")[0]
    return f"a {word}" if word in ("study", "search", "pipeline") else "an experiment"


def is_recipe(source: str, *, folder: Path | None = None) -> bool:
    """Whether `source` names a recipe, which is the same from every folder."""
    root = recipes_folder() if folder is None else folder
    return bool(source) and not _looks_like_a_path(source) and _is_file(root / f"{source}.yaml")


def _looks_like_a_path(source: str) -> bool:
    return "/" in source or source.endswith(SUFFIXES)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or one with a NUL
        return False


def _recipe(path: Path) -> Recipe:
    document = read_document(path, holds="a recipe")
    comments = [line.lstrip("# ") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return Recipe(
        path.stem,
        kind_of(document.value),
        description=comments[0].rstrip() if comments else "",
        dataset=_dataset(document.value, path.parent),
        is_measured=not any("not measured" in line for line in comments),
        path=path,
    )


def _dataset(value: Mapping[str, Any], folder: Path) -> str:
    """What a recipe learns from; `folder`: where the experiment that it names may be a recipe."""
    experiment = value.get("experiment")
    if isinstance(experiment, Mapping):  # written out in place
        under = _dataset(experiment, folder)
    else:
        base = folder / f"{experiment}.yaml"
        under = _dataset(read_document(base, holds="an experiment").value, folder) if base.is_file() else ""
    section, overrides = value.get("dataset"), value.get("set")
    own = section.get("name") if isinstance(section, Mapping) else None
    set_ = overrides.get("dataset.name") if isinstance(overrides, Mapping) else None
    return str(set_ or own or under)


def is_search(value: Mapping[str, Any]) -> bool:
    """Whether a file with these keys holds a search."""
    return bool(SEARCH_KEYS & value.keys())


def kind_of(value: Mapping[str, Any]) -> RecipeKind:
    """What a file with these keys holds."""
    if PIPELINE_KEY in value:
        return "pipeline"
    if is_search(value):
        return "search"
    return "study" if STUDY_KEYS & value.keys() else "experiment"
