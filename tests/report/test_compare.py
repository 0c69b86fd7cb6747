"""Finished runs side by side: only repetitions are averaged, and every key that varies is a column."""

import itertools
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.documents import Outcome
from graphmill.record.run_folder import RunFolder
from graphmill.report.compare import compare
from graphmill.tasks.node_classification.page import NodeClassificationExperiment


@pytest.fixture
def run(tmp_path: Path, planner):
    """Makes a finished run folder: `run("one", width=8, lr=0.1, seed=1, val=0.5)`."""

    def make(run_id: str, *, width=8, lr=0.1, seed=1, val: float | None = 0.5, test=0.4, **train) -> RunFolder:
        asked = {
            "name": run_id,
            "model": {"kind": "graphsage", "hidden_channels": width},
            "train": {"ranks": 1, "epochs": 2, "seed": seed, "optimizer": {"kind": "adam", "lr": lr}, **train},
        }
        plan = planner(NodeClassificationExperiment.model_validate(asked), run_id)
        folder = RunFolder.create(plan, tmp_path / "logs")
        if val is not None:
            scores = {"best": {"epoch": 1, "micro_f1": val}, "test": {"micro_f1": test}}
            folder.write_outcome(Outcome(status="done", exit_code=0, epochs=1, steps_per_rank=1, wall_s=1.0, **scores))
        return folder

    return make


def test_a_grid_has_a_row_for_each_configuration(run):
    """Two widths, two learning rates, two rng seeds."""
    grid = itertools.product((8, 16), (0.1, 0.01), (1, 2))
    runs = [
        run(f"w{width}-lr{lr}-s{seed}", width=width, lr=lr, seed=seed, val=width / 100 + lr + seed / 1000)
        for width, lr, seed in grid
    ]
    (table,) = compare(runs)
    assert table.varied == ("model.hidden_channels", "optimizer.lr")
    found = [(row.values["model.hidden_channels"], row.values["optimizer.lr"], row.val.mean) for row in table.rows]
    expected = [(16, 0.1, 0.2615), (8, 0.1, 0.1815), (16, 0.01, 0.1715), (8, 0.01, 0.0915)]
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected])
    assert {row.seeds for row in table.rows} == {(1, 2)}
    assert [row.val.sd for row in table.rows] == pytest.approx([0.001 / 2**0.5] * 4)
    assert table.best is table.rows[0]
    assert table.same_seeds == ()


def test_the_best_is_chosen_by_validation_whatever_the_order(run):
    runs = [run("one", width=8, val=0.6, test=0.1), run("other", width=16, val=0.5, test=0.9)]
    for sort, first in (("val", "one"), ("test", "other"), ("model.hidden_channels", "one")):
        (table,) = compare(runs, sort=sort)
        assert table.rows[0].runs == (first,)
        assert table.best is not None
        assert table.best.runs == ("one",)


def test_where_files_lie_and_how_a_run_is_called_is_no_difference(run):
    (table,) = compare([run("one", seed=1), run("other", seed=2)])
    assert (table.varied, len(table.rows), table.best) == ((), 1, None)


def test_repetitions_with_one_seed_are_named(run):
    (table,) = compare([run("one"), run("again"), run("third", seed=2)])
    assert table.same_seeds == ("one", "again")


def test_what_is_not_done_is_in_no_row(run):
    (table,) = compare([run("one"), run("half", width=16, val=None)])
    assert (table.varied, table.unfinished) == ((), ("half",))


def test_baselines_stand_beside_the_scores(run):
    """Once for a table: they differ between runs only where the items that are judged do."""
    runs = [run("one", width=8), run("other", width=16), run("older", width=32)]
    for folder, value in zip(runs, (0.25, 0.125), strict=False):
        scores = {split: {"majority": {"micro_f1": value, "macro_f1": 0.1}} for split in ("val", "test")}
        folder.write_outcome(folder.read_outcome().model_copy(update={"baselines": scores}))
    (table,) = compare(runs)
    (beside,) = table.baselines.values()
    assert (beside.words, beside.val, beside.test) == ("majority class", (0.125, 0.25), (0.125, 0.25))
    (table,) = compare(runs[2:])
    assert table.baselines == {}


def test_a_key_that_does_not_vary_is_refused(run):
    with pytest.raises(UserError) as refusal:
        compare([run("one", width=8), run("other", width=16)], sort="model.hidden_channel")
    assert "model.hidden_channels" in str(refusal.value)


def test_options_that_come_with_another_scheme_are_no_columns(run):
    """Local SGD has two that deferred all-reduce lacks; a run without early stopping has no patience."""
    (table,) = compare([run("one"), run("other", sync={"scheme": "local_sgd"})])
    assert table.varied == ("sync.scheme",)
    three = [
        run("third", sync={"scheme": "local_sgd", "every": 2}),
        run("fourth", sync={"scheme": "deferred_allreduce", "every": 2}),
    ]
    (table,) = compare([*three, run("fifth", sync={"scheme": "local_sgd", "every": 2, "warmup_steps": 4})])
    assert table.varied == ("sync.scheme", "sync.warmup_steps")


def test_of_keys_that_only_some_have_enough_are_columns_to_tell_them_apart(run):
    """A section that one run has and another lacks brings many."""
    asked = {"one": {}, "profiled": {"profile": True}, "wide": {"profile": True, "width": 16}}
    (table,) = compare([run(name, epochs=20, **more) for name, more in asked.items()])
    assert [key.partition(".")[0] for key in table.varied] == ["model", "profile"]
    assert len(table.rows) == 3
