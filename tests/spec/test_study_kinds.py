"""Strong and weak studies vary their size alone; what would make their cells differ in more is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.spec.differences import flat
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.spec.study import Study, expand, load_cell, refuse_hosts_here
from graphmill.tasks.node_classification.page import GraphInfo

ONE_THREAD = {"train.threads": 1, "train.epochs": 3, "train.device": "cpu"}
FACTS = GraphInfo(
    name="toy", path="/nowhere/toy", checksum="0" * 16, synthetic=False, num_nodes=9000, num_edges=400,
    num_features=8, num_classes=3, num_train=4096, has_sparse_features=True,
)  # fmt: skip


def study(**keys) -> Study:
    return Study(**{"name": "s", "experiment": "debian-packages-sage", "set": ONE_THREAD, **keys})


def plans(asked: Study) -> list[Plan]:
    machine = MachineInfo(num_cores=8, num_gpus=0)
    return [
        resolve(load_cell(asked, cell), machine=machine, dataset=FACTS, run_id=f"s/{cell.name}")
        for cell in expand(asked)
    ]


def differing(found: list[Plan]) -> set[str]:
    choices = [flat(plan) for plan in found]
    return {key for key in choices[0] if len({str(choice[key]) for choice in choices}) > 1} - {"run_id", "seed"}


def test_cells_of_a_strong_study_do_the_same_steps_on_the_same_seeds():
    found = plans(study(kind="strong", ranks=[4, 1, 2], global_batch=64, repeats=2))
    assert [plan.ranks for plan in found] == [1, 2, 4, 1, 2, 4], "in rounds, the smallest first"
    assert [plan.seed for plan in found] == [1, 1, 1, 2, 2, 2]
    assert {plan.ranks * plan.batch_size for plan in found} == {64}
    assert differing(found) == {"ranks", "batch_size"}


def test_cells_of_a_sensitivity_study_are_repeated_in_rounds_too():
    asked = study(kind="sensitivity", vary={"train.prefetch": [0, 2]}, repeats=2)
    names = [cell.name for cell in expand(asked)]
    assert names == [f"prefetch-{prefetch}__seed-{seed}" for seed in (1, 2) for prefetch in (0, 2)]


@given(st.sets(st.integers(1, 16), min_size=2, max_size=4), st.integers(1, 256), st.integers(1, 64))
def test_the_work_of_a_weak_study_grows_with_the_ranks(sizes, per_rank, batch):
    asked = study(
        kind="weak", ranks=list(sizes), train_per_rank=per_rank, set={**ONE_THREAD, "train.batch_size": batch}
    )
    found = plans(asked)
    assert differing(found) - {"optimizer.weight_decay"} == {"ranks", "dataset.num_train"}  # it follows num_train
    assert {plan.dataset.num_train / plan.ranks for plan in found} == {per_rank}
    assert len({plan.calendar.steps_in(0) for plan in found}) == 1


def test_hosts_are_an_axis_too():
    cells = expand(study(kind="strong", hosts=[1, 2], ranks_per_host=4, global_batch=64))
    assert [cell.name for cell in cells] == ["hosts-1", "hosts-2"]
    assert "slurm.hosts=2" in cells[1].overrides
    assert "train.ranks=8" in cells[1].overrides
    assert "train.batch_size=8" in cells[1].overrides


def test_several_hosts_are_not_run_on_one():
    with pytest.raises(UserError, match="for 1, 2 hosts") as caught:
        refuse_hosts_here(study(kind="strong", hosts=[1, 2], global_batch=64))
    assert "study submit" in caught.value.fix
    refuse_hosts_here(study(kind="strong", ranks=[1, 2], global_batch=64))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "strong", "global_batch": 8}, "neither ranks nor hosts"),
        ({"kind": "strong", "ranks": [1, 2], "hosts": [1, 2], "global_batch": 8}, "both ranks and hosts"),
        ({"kind": "strong", "ranks": [1, 2]}, "global_batch does not say"),
        ({"kind": "strong", "ranks": [1, 3], "global_batch": 8}, "does not divide among 3 ranks"),
        ({"kind": "strong", "ranks": [2], "global_batch": 8}, "nothing to compare it with"),
        ({"kind": "strong", "ranks": [2, 2], "global_batch": 8}, "a number twice"),
        ({"kind": "strong", "ranks": [1, 2], "global_batch": 8, "vary": {"train.seed": [1]}}, "differ in size alone"),
        (
            {"kind": "strong", "ranks": [1, 2], "global_batch": 8, "set": {"train.batch_size": 3}},
            "set.train.batch_size",
        ),
        ({"kind": "strong", "ranks": [1, 2], "global_batch": 8, "ranks_per_host": 2}, "is for the axis hosts"),
        ({"kind": "weak", "ranks": [1, 2]}, "train_per_rank does not say"),
        ({"kind": "weak", "ranks": [1, 2], "train_per_rank": 9, "global_batch": 8}, "belongs to kind strong"),
        ({"kind": "strong", "ranks": [1, 2], "train_per_rank": 9, "global_batch": 8}, "belongs to kind weak"),
        ({"ranks": [1, 2]}, "belongs to kinds strong and weak"),
        ({"kind": "sensitivity"}, "no vary"),
        ({"kind": "sensitivity", "vary": {"train.seed": [1]}, "cells": [{"train.seed": 3}]}, "with cells"),
        ({"seeds": [1], "repeats": 2}, "both choose the seeds"),
    ],
)  # fmt: skip
def test_refusals(keys, message):
    with pytest.raises(UserError, match=message):
        expand(Study(name="s", **keys))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"train.threads": "auto"}, "train.threads is auto"),
        ({"train.epochs": 1}, "the first epoch is warm-up"),
        ({"train.max_steps": 64}, "max_steps counts steps over all ranks"),
    ],
)
def test_an_experiment_whose_cells_would_differ_in_more_is_refused(train, message):
    asked = study(kind="strong", ranks=[1, 2], global_batch=64, set={**ONE_THREAD, **train})
    with pytest.raises(UserError, match=message):
        load_cell(asked, expand(asked)[0])


def test_a_limit_above_what_there_is_is_refused():
    with pytest.raises(UserError, match="train_limit is 4100, but toy has 4096"):
        plans(study(kind="weak", ranks=[1, 2], train_per_rank=2050))


def test_a_sensitivity_study_needs_an_epoch_after_the_warm_up():
    study = Study(name="s", kind="sensitivity", vary={"train.optimizer.lr": [0.1, 0.2]}, set={"train.epochs": 1})
    with pytest.raises(UserError, match="the first epoch is warm-up"):
        load_cell(study, expand(study)[0])
