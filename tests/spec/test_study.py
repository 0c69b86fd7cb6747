import pytest

from graphmill.base.errors import UserError
from graphmill.spec.study import Study, expand, load_cell, load_study


def names(**keys) -> list[str]:
    return [cell.name for cell in expand(Study(name="s", **keys))]


def test_every_combination_with_every_seed():
    cells = expand(
        Study(
            name="s",
            set={"train.ranks": 4},
            vary={"train.sync.scheme": ["deferred_allreduce", "local_sgd"], "train.sync.every": [1, 4]},
            seeds=[1, 2],
        )
    )
    assert len(cells) == 8
    assert cells[2].name == "scheme-deferred_allreduce__every-4__seed-1"
    assert cells[2].overrides == (
        "train.ranks=4", 'train.sync.scheme="deferred_allreduce"', "train.sync.every=4", "train.seed=1",
    )  # fmt: skip


def test_cells_by_hand_come_after_and_may_have_names():
    assert names(
        vary={"train.optimizer.lr": [0.1]},
        cells=[{"name": "diloco", "train.sync.scheme": "diloco"}, {"train.num_neighbors": [5, 5]}],
        seeds=[3],
    ) == ["lr-0.1__seed-3", "diloco__seed-3", "num_neighbors-5x5__seed-3"]


def test_nothing_varied_is_one_cell():
    assert names() == ["only"]
    assert names(seeds=[1, 2]) == ["seed-1", "seed-2"]
    assert names(cells=[{"train.optimizer.lr": 1}]) == ["lr-1"]


def test_keys_with_the_same_tail_are_told_apart():
    assert names(vary={"train.a.every": [1], "train.b.every": [2], "train.optimizer.lr": [3]}) == [
        "a.every-1__b.every-2__lr-3"
    ]


def test_odd_values_make_folder_names():
    (name,) = names(vary={"dataset.name": ["planetoid/cora"]})
    assert "/" not in name
    assert len(names(vary={"dataset.name": ["x" * 500]})[0]) <= 120


def test_it_is_pure():
    study = Study(name="s", cells=[{"name": "a", "train.optimizer.lr": 1}], seeds=[1, 2])
    assert expand(study) == expand(study)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"vary": {"train.optimizer.lr": []}}, "vary.train.optimizer.lr has no values"),
        ({"vary": {"name": ["x"]}}, "vary.name varies nothing"),
        ({"vary": {"train.optimizer.lr": [1, 1]}}, "holds a value twice"),
        ({"vary": {"train.optimizer.lr": [1]}, "set": {"train.optimizer.lr": 2}}, "both set and varied"),
        (
            {"cells": [{"train.optimizer.lr": 1}], "set": {"train.optimizer.lr": 2}},
            "both set for all cells and given by one",
        ),
        ({"seeds": [1], "set": {"train.seed": 2}}, "both choose the seed"),
        ({"seeds": [1, 1]}, "a seed twice"),
        ({"vary": {"train.optimizer.lr": list(range(1, 2000))}}, "1999 cells are more than 1000"),
        ({"cells": [{"name": "a"}, {"name": "a", "train.optimizer.lr": 1}]}, "several cells named a"),
    ],
)
def test_refusals(keys, message):
    with pytest.raises(UserError, match=message):
        expand(Study(name="s", **keys))


def write(tmp_path, text):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return path


def test_an_experiment_beside_the_study_is_found_from_anywhere(tmp_path):
    (tmp_path / "base.yaml").write_text("name: base\ntrain: {epochs: 2}\n")
    study = load_study(write(tmp_path, "name: s\nexperiment: base.yaml\nvary: {train.optimizer.lr: [0.1, 0.2]}\n"))
    assert [load_cell(study, cell).train.optimizer.lr for cell in expand(study)] == [0.1, 0.2]
    assert load_cell(study, expand(study)[0]).train.epochs == 2


def test_an_experiment_in_place(tmp_path):
    study = load_study(
        write(tmp_path, "name: s\nexperiment: {train: {epochs: 2}}\nvary: {train.optimizer.lr: [0.1]}\n")
    )
    assert load_cell(study, expand(study)[0]).train.epochs == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vary: {}\n", "name is missing"),
        ("name: s\nvari: {}\n", "did you mean 'vary'"),
        ("name: s\nvary: {train.optimizer.lr: 0.1}\n", "vary"),
        ("name: s\nseeds: 3\n", "seeds is 3, but it takes a list of whole numbers"),
        ("name: s\ncells: [3]\n", "cells"),
        ("name: s\ntrain: {epochs: 3}\n", "holds an experiment, not a study"),
        ("name: ../s\n", "name is"),
    ],
)
def test_a_wrong_file(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load_study(write(tmp_path, text))


def test_a_wrong_key_in_a_cell_is_told_with_the_cell(tmp_path):
    (tmp_path / "base.yaml").write_text("name: base\n")
    study = load_study(write(tmp_path, "name: s\nexperiment: base.yaml\nvary: {train.sync.evry: [1]}\n"))
    with pytest.raises(UserError, match="did you mean 'every'"):
        load_cell(study, expand(study)[0])
