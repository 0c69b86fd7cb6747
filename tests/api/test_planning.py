"""`graphmill.plan` gives the plan of the command, byte for byte, however the request is written."""

import json
from pathlib import Path

import numpy as np
import pytest

import graphmill as package
from graphmill.api.planning import overrides_of
from graphmill.spec.load import load_experiment


def command_says(graphmill, *words: str) -> dict:
    return json.loads(graphmill("plan", *words, "--json").out)["plan"]


@pytest.mark.parametrize(
    ("words", "overrides", "named"),
    [
        ([], {}, {}),
        (["-O", "train.sync.every=4", "--ranks", "2"], {"train.sync.every": 4}, {"ranks": 2}),
        (["-O", "train.sync.every=4"], ["train.sync.every=4"], {}),
        (["-O", "train.seed=7"], "train.seed=7", {}),
        (["--max_steps", "4", "--num_neighbors", "3", "2"], {}, {"max_steps": 4, "num_neighbors": [3, 2]}),
        (["--lr", "1e-05", "-O", "name=other"], {}, {"lr": 1e-05, "name": "other"}),
        (["-O", "model={hidden_channels: 4, num_layers: 2}"], {}, {"model": {"hidden_channels": 4, "num_layers": 2}}),
    ],
)
def test_the_plan_is_the_commands(graphmill, toy, words, overrides, named):
    plan = package.plan("toy.yaml", overrides, **named)
    assert plan.model_dump(mode="json") == command_says(graphmill, "toy.yaml", *words)


def test_an_experiment_is_a_file_a_path_a_dict_or_an_object(graphmill, toy):
    said = command_says(graphmill, "toy.yaml", "-O", "train.seed=3")
    written = {
        "name": "toy",
        "dataset": {"name": "synthetic/sbm"},
        "model": {"hidden_channels": 8},
        "train": {"epochs": 2, "batch_size": 60, "num_neighbors": (4, 4), "threads": 1, "baselines": False},
    }
    for experiment in (Path("toy.yaml"), toy, written, load_experiment("toy.yaml")):
        assert package.plan(experiment, {"train.seed": 3}).model_dump(mode="json") == said
    assert written["train"]["epochs"] == 2


def test_planning_writes_nothing(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    package.plan("toy.yaml")
    assert list(tmp_path.iterdir()) == [toy]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["nothing.yaml"], ("nothing.yaml",)),
        (["toy.yaml", "-O", "train.epoch=3"], ("toy.yaml", {"train.epoch": 3})),
        (["toy.yaml", "-O", "train.epochs=-1", "-O", "train.sync.every=x"],
         ("toy.yaml", {"train.epochs": -1, "train.sync.every": "x"})),
        (["toy.yaml", "-O", "dataset.name=synthetic/absent"], ("toy.yaml", {"dataset.name": "synthetic/absent"})),
    ],
)  # fmt: skip
def test_errors_have_the_commands_two_sentences(graphmill, toy, words, given):
    told = graphmill("plan", *words)
    with pytest.raises(package.UserError) as error:
        package.plan(*given)
    assert told.code == 2
    assert told.err == f"error: {error.value.message}\n  → {error.value.fix}\n"


def test_values_are_written_as_overrides_take_them():
    values = {"a.path": Path("x y"), "a.text": "no: yes", "a.none": None, "a.flag": True, "a.list": (1, 2.5)}
    texts = ['a.path="x y"', 'a.text="no: yes"', "a.none=null", "a.flag=true", "a.list=[1, 2.5]"]
    assert overrides_of(values, {}) == texts
    assert overrides_of({"train.epochs": 5}, {"max_steps": 3}) == ["train.max_steps=3", "train.epochs=5"]
    assert overrides_of((), {"max_steps": np.int64(3)}) == ["train.epochs=null", "train.max_steps=3"]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", [object()]])
def test_a_value_that_no_file_could_hold_is_refused(value):
    with pytest.raises(package.UserError, match=r"train\.x is "):
        overrides_of({"train.x": value}, {})
