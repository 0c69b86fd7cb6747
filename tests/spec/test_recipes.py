import pytest

from graphmill.spec.load import load_experiment
from graphmill.spec.pipeline import load_pipeline, load_stage
from graphmill.spec.recipes import find_recipe, list_recipes, recipes_folder
from graphmill.spec.search import load_search, searched_keys
from graphmill.spec.study import expand, load_cell, load_study


def test_the_checkouts_folder_is_used():
    assert recipes_folder().name == "recipes"
    assert (recipes_folder().parent / "pyproject.toml").exists()


@pytest.mark.parametrize("recipe", list_recipes(), ids=lambda recipe: recipe.name)
def test_every_recipe_loads_and_says_what_it_is(recipe):
    assert recipe.description, "its first line is a comment that says what it is"
    if recipe.kind == "experiment":
        load_experiment(recipe.name)
    elif recipe.kind == "pipeline":
        pipeline = load_pipeline(recipe.name)
        assert all(load_stage(pipeline, stage, None) for stage in pipeline.stages)
    elif recipe.kind == "search":
        assert searched_keys(load_search(recipe.name))
    else:
        study = load_study(recipe.name)
        assert all(load_cell(study, cell) for cell in expand(study))


def test_kinds_and_descriptions(tmp_path):
    (tmp_path / "a.yaml").write_text("# An experiment\n# with more words\nname: a\n")
    (tmp_path / "b.yaml").write_text("name: b\nvary: {train.optimizer.lr: [1]}\n")
    (tmp_path / "c.yaml").write_text("# A pipeline\nname: c\nset: {}\nstages: [{name: a}]\n")
    found = [(recipe.name, recipe.kind, recipe.description) for recipe in list_recipes(tmp_path)]
    assert found == [("a", "experiment", "An experiment"), ("b", "study", ""), ("c", "pipeline", "A pipeline")]


def test_the_dataset_is_the_nearest_that_is_named(tmp_path):
    (tmp_path / "a.yaml").write_text("# A\nname: a\ndataset: {name: cora}\n")
    (tmp_path / "b.yaml").write_text("# B\n# not measured here\nname: b\nexperiment: a\nseeds: [1]\n")
    (tmp_path / "c.yaml").write_text("# C\nexperiment: b\nset: {dataset.name: pubmed}\nseeds: [1]\n")
    found = [(recipe.dataset, recipe.is_measured) for recipe in list_recipes(tmp_path)]
    assert found == [("cora", True), ("cora", False), ("pubmed", True)]


def test_a_file_is_found_without_a_suffix_but_a_recipe_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "a.yaml").write_text("name: a\n")
    (tmp_path / "a").write_text("name: other\n")
    (tmp_path / "b").write_text("name: b\n")
    assert find_recipe("a", holds="an experiment", folder=tmp_path / "recipes").name == "a.yaml"
    assert str(find_recipe("b", holds="an experiment", folder=tmp_path / "recipes")) == "b"
    assert str(find_recipe("./a", holds="an experiment", folder=tmp_path / "recipes")) == "a"
