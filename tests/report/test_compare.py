"""Finished runs side by side: only repetitions are averaged, and every key that varies is a column."""

import itertools
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.documents import Outcome
from graphmill.record.metrics import write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.report.compare import compare
from graphmill.tasks.node_classification.page import KIND as NODES
from graphmill.tasks.node_classification.page import NodeClassificationExperiment

DEFERRED, LOCAL = "deferred_allreduce", "local_sgd"
SYNC = ("train.sync.scheme", "train.sync.every")


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


@pytest.fixture
def cell(run, plausible):
    """Makes a finished run of two ranks with its metrics.csv: `cell(scheme, every, seed, val)`."""

    def make(scheme: str, every: int, seed: int, val: float, **more) -> RunFolder:
        run_id = f"{scheme}-{every}-{seed}"
        folder = run(run_id, seed=seed, val=val, ranks=2, sync={"scheme": scheme, "every": every}, **more)
        rows = plausible.run_rows(scheme=scheme, k=every, seed=seed, world_size=2, run_id=run_id)
        write_metrics(folder.metrics_path, rows, NODES.columns)
        return folder

    return make


def test_there_is_a_row_for_each_value_of_the_keys_that_are_named(cell, plausible):
    repeated = [cell(DEFERRED, 16, seed, 0.8 + seed / 100) for seed in (1, 3)]
    (table,) = compare([cell(LOCAL, 16, 1, 0.75), *repeated], by=SYNC)
    assert table.varied == ("sync.scheme", "sync.every")
    assert [tuple(row.values.values()) for row in table.rows] == [(DEFERRED, 16), (LOCAL, 16)]
    row = table.rows[0]
    assert (row.val.n, row.val.mean, row.val.sd) == (2, pytest.approx(0.82), pytest.approx(0.0141421, rel=1e-4))
    assert row.took["num_syncs"].mean == 36
    assert row.took["measured_mib"].mean == pytest.approx(36 * 1.257)
    epochs = [row for seed in (1, 3) for row in plausible.run_rows(k=16, seed=seed, world_size=2)]
    assert row.took["wall_s"].mean == pytest.approx(sum(each["train_s"] + each["eval_s"] for each in epochs) / 2)
    speeds = [12 * 38000 / sum(each["train_s"] for each in epochs if each["seed"] == seed) for seed in (1, 3)]
    assert row.took["seeds_per_s"].mean == pytest.approx(sum(speeds) / 2)
    assert table.best is row


def test_rows_are_in_the_order_of_the_keys_that_are_named_unless_another_is_asked_for(cell):
    runs = [cell(LOCAL, 4, 1, 0.9), cell(DEFERRED, 16, 1, 0.7), cell(DEFERRED, 4, 1, 0.8)]
    for sort, first in ((None, (DEFERRED, 4)), ("val", (LOCAL, 4))):
        (table,) = compare(runs, by=SYNC, sort=sort)
        assert tuple(table.rows[0].values.values()) == first


def test_runs_that_differ_in_other_keys_are_not_averaged(cell):
    runs = [cell(DEFERRED, 4, 1, 0.8), cell(DEFERRED, 16, 2, 0.7)]
    with pytest.raises(UserError, match=r"differ in sync\.every") as refusal:
        compare(runs, by=["train.sync.scheme"])
    assert "--by sync.scheme,sync.every" in str(refusal.value)


def test_a_key_that_no_run_has_is_refused_with_the_nearest(run):
    with pytest.raises(UserError, match=r"'train\.sync\.evry'; did you mean 'sync\.every'"):
        compare([run("one")], by=["train.sync.evry"])


def test_what_one_rank_takes_is_no_communication(run, plausible):
    folder = run("alone")
    write_metrics(folder.metrics_path, plausible.run_rows(world_size=1), NODES.columns)
    (table,) = compare([folder], by=["train.batch_size"])
    assert set(table.rows[0].took) == {"seeds_per_s", "wall_s"}
    assert compare([folder])[0].rows[0].took == {}


def test_a_run_without_a_table_of_its_epochs_has_its_scores(run):
    (table,) = compare([run("one")], by=["dataset.name"])
    assert (table.rows[0].val.mean, table.rows[0].took) == (0.5, {})
