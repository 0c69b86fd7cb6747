"""Every recipe is valid by the schema that it names, and what is misspelt is not."""

import json
from typing import Any

import pytest

from graphmill.base.errors import UserError
from graphmill.config.yaml_text import read_document
from graphmill.spec.json_schema import FILES, json_schema
from graphmill.spec.recipes import Recipe, list_recipes, recipes_folder

fastjsonschema = pytest.importorskip("fastjsonschema", reason="`make install` with the extra dev brings it")
MARK = "# yaml-language-server: $schema="


@pytest.fixture(scope="module")
def valid() -> dict[str, Any]:
    """A check for each schema in the folder of recipes, by its name there."""
    folder = recipes_folder()
    return {
        f"schema/{name}.json": fastjsonschema.compile(json.loads((folder / "schema" / f"{name}.json").read_text()))
        for name in FILES
    }


@pytest.mark.parametrize("recipe", list_recipes(), ids=lambda recipe: recipe.name)
def test_a_recipe_is_valid_by_the_schema_that_it_names(recipe: Recipe, valid):
    (named,) = [line.removeprefix(MARK) for line in recipe.path.read_text().splitlines() if line.startswith(MARK)]
    document = dict(read_document(recipe.path, holds="a recipe").value)
    valid[named](document)
    with pytest.raises(fastjsonschema.JsonSchemaValueException, match="misspelt"):
        valid[named](document | {"misspelt": 1})


@pytest.mark.parametrize(
    ("change", "is_valid"),
    [
        ({}, True),
        ({"task": {"kind": "node_classification"}}, True),
        ({"train": {"optimizer": {"lr": 0.003}}}, True),  # the key that chooses the optimizer has a default
        ({"slurm": {"time": "02:00:00"}}, True),
        ({"train": {"optimizer": {"lr": "fast"}}}, False),
        ({"model": {"kind": "graphsage", "hiden": 3}}, False),
        ({"task": "traffic"}, False),
    ],
)
def test_what_is_short_for_something_is_valid_and_what_is_wrong_is_not(change, is_valid, valid):
    document = {"dataset": {"name": "cora"}, "model": {"kind": "graphsage"}, "train": {"epochs": 1}} | change
    check = valid["schema/node_classification.json"]
    if is_valid:
        check(document)
        return
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        check(document)


def test_what_has_no_schema_is_said_with_what_has(graphmill, tmp_path):
    with pytest.raises(UserError, match="did you mean 'traffic'"):
        json_schema("trafic")
    done = graphmill("schema", "study", "--output", "s.json")
    assert done.code == 0
    assert "$schema=s.json" in done.out
    assert json.loads((tmp_path / "s.json").read_text()) == json_schema("study")
