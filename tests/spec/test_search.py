"""Searches: what a file may say, what is searched where nobody says, and what each refusal says."""

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.kinds import TASKS
from graphmill.spec.load import load_experiment
from graphmill.spec.recipes import list_recipes
from graphmill.spec.search import (
    Search,
    default_space,
    load_search,
    load_trial,
    own_values,
    searched_keys,
    trial_overrides,
)
from graphmill.spec.study import load_study

EXPERIMENTS = [recipe.name for recipe in list_recipes() if recipe.kind == "experiment"]


def search(space, **keys) -> Search:
    return Search(**{"name": "s", "experiment": "cora-sage", "space": space, **keys})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_recipe_has_a_space_whose_values_it_can_have_and_that_holds_its_own(name):
    found = load_search(name)
    keys = searched_keys(found)
    assert {"train.optimizer.lr", "train.optimizer.weight_decay"} < {key.key for key in keys}
    assert own_values(keys, load_experiment(name)) is not None


def test_recipes_have_every_task_but_own_ones():
    assert {load_experiment(name).task.kind for name in EXPERIMENTS} >= set(TASKS) - {"node_regression"}


@pytest.mark.parametrize("model", ["{kind: dual_gnn}", "{kind: dual_gnn, hidden_channels: 8, heads: 8}"])
def test_a_width_that_heads_divide(model):
    found = load_search("assignment-one-gnn", [f"model={model}"])
    assert "model.hidden_channels" in found.space


def test_a_models_own_options_are_searched_and_depth_only_without_fan_outs():
    assert "model.options.hidden_channels" in default_space(load_experiment("debian-packages-gcn"))
    assert "model.num_layers" not in default_space(load_experiment("cora-sage"))
    assert default_space(load_experiment("motifs-gin"))["model.num_layers"] == [3, 4, 5]


def test_a_dropout_beyond_what_is_searched_by_default_widens_the_range():
    experiment = load_experiment("cora-sage", ["model.dropout=0.9"])
    found = search(default_space(experiment))
    assert found.space["model.dropout"] == {"low": 0.0, "high": 0.9}
    assert own_values(searched_keys(found), experiment)["model.dropout"] == 0.9


def test_a_trial_is_the_experiment_with_its_values(tmp_path):
    (tmp_path / "base.yaml").write_text("dataset: {name: cora}\nname: base\n")
    file = tmp_path / "s.yaml"
    file.write_text("name: s\nexperiment: base.yaml\nset: {train.epochs: 3}\nspace: {train.optimizer.lr: [0.1, 0.2]}\n")
    found = load_search(file, ["train.batch_size=64"], {"trials": 4, "hours": None})
    assert (found.trials, found.hours, found.most_trials) == (4, None, 4)
    values = {"train.optimizer.lr": 0.2}
    trial = load_trial(found, values)
    assert (trial.train.epochs, trial.train.batch_size, trial.train.optimizer.lr) == (3, 64, 0.2)
    assert trial_overrides(found, values) == ["train.epochs=3", "train.batch_size=64", "train.optimizer.lr=0.2"]


def test_limits():
    assert search({}).most_trials == 20
    assert search({}, hours=1.0).most_trials is None
    assert search({}, hours=1.0, trials=3).most_trials == 3


def test_own_values_that_the_space_does_not_hold():
    experiment = load_experiment("cora-sage")
    assert own_values(searched_keys(search({"train.optimizer.lr": [0.1, 0.2]})), experiment) is None
    own = own_values(searched_keys(search({"train.optimizer.lr": {"low": 0.001, "high": 0.1}})), experiment)
    assert own == {"train.optimizer.lr": 0.01}


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({"train.optimiser.lr": [1, 2]}, "did you mean 'optimizer'"),
        ({"model.dropout": {"low": 0.1, "hihg": 0.5}}, "did you mean 'high'"),
        ({"model.dropout": {"low": 0.1}}, "high is missing"),
        ({"model.dropout": {"low": 0, "high": 1}}, "model.dropout is 1"),
        ({"model.dropout": {"low": 0.5, "high": 0.5}}, "low is 0.5, and high is 0.5"),
        ({"model.dropout": [0.5]}, "two values or more"),
        ({"model.dropout": [0.5, 0.5]}, "each once"),
        ({"train.optimizer.lr": {"low": 0, "high": 1, "log": True}}, "low > 0"),
        ({"model.hidden_channels": {"low": 8.5, "high": 64}}, "whole number"),
        ({"train.seed": [1, 2]}, "luck"),
        ({"train.epochs": [1, 2]}, "both set and searched"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_type(space, says):
    with pytest.raises(UserError) as refused:
        searched_keys(search(space, set={"train.epochs": 3}))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("seeds", "shared", "says"),
    [([1, 1], {}, "a seed twice"), ([1], {"train.seed": 2}, "both choose the seed"), ([-1], {}, "train.seed is -1")],
)
def test_seeds_that_cannot_be(seeds, shared, says):
    with pytest.raises(UserError) as refused:
        searched_keys(search({"model.dropout": [0.1, 0.2]}, seeds=seeds, set=shared))
    assert says in str(refused.value)


def test_files_of_another_kind_say_which_command_reads_them(tmp_path):
    with pytest.raises(UserError, match="holds a study"):
        load_search("study-demo")
    for load in (load_experiment, load_study):
        with pytest.raises(UserError, match="holds a search") as refused:
            load("search-cora")
        assert "graphmill tune" in refused.value.fix
