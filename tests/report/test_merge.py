"""merge: same inputs, same bytes; the last attempt wins; what cannot be merged is refused by name."""

import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.record.metrics import read_metrics, write_metrics
from graphmill.report.layouts import merge_as
from graphmill.report.merge import merge
from graphmill.tasks.node_classification.page import KIND as NODES


def column(path: Path, name: str) -> list[str]:
    return [row[name] for row in read_metrics(path)]


@pytest.mark.parametrize("shuffle_seed", range(3))
def test_the_bytes_do_not_depend_on_names_or_order_of_files(tmp_path: Path, plausible, shuffle_seed: int):
    runs = [plausible.run_rows(k=k, seed=seed, epochs=3) for k in (1, 2, 16) for seed in (1, 10, 9)]
    merged = []
    for attempt in range(2):
        folders = [f"run{place}" for place in range(len(runs))]
        random.Random(shuffle_seed + 10 * attempt).shuffle(folders)
        for folder, rows in zip(folders, runs, strict=True):
            write_metrics(tmp_path / f"logs{attempt}" / folder / "metrics.csv", rows, NODES.columns)
        merged.extend(merge(tmp_path / f"logs{attempt}", output=tmp_path / f"out{attempt}" / "metrics.csv"))
    assert merged[0].csv.read_bytes() == merged[1].csv.read_bytes()
    assert merged[0].parquet.read_bytes() == merged[1].parquet.read_bytes()
    assert (merged[0].num_files, merged[0].num_rows, merged[0].num_superseded) == (9, 27, 0)


def test_merging_twice_gives_the_same_bytes_although_the_output_lies_among_the_inputs(tmp_path: Path, plausible):
    plausible.write_runs(tmp_path / "logs", plausible.study_rows(ks=(1,), seeds=(1,)))
    output = tmp_path / "results" / "metrics.csv"
    merge(tmp_path, output=output)
    before = output.read_bytes()
    assert merge(tmp_path, output=output)[0].num_files == 2
    assert output.read_bytes() == before


def test_numbers_sort_as_numbers(tmp_path: Path, plausible):
    rows = [row for k in (16, 2, 1) for row in plausible.run_rows(k=k, run_id="one", epochs=11)]
    write_metrics(tmp_path / "logs" / "one" / "metrics.csv", rows, NODES.columns)
    (merged,) = merge(tmp_path / "logs", output=tmp_path / "metrics.csv")
    assert list(dict.fromkeys(column(merged.csv, "sync_every"))) == ["1", "2", "16"]
    assert column(merged.csv, "epoch") == [str(epoch) for epoch in range(1, 12)] * 3


def test_cells_are_copied_as_they_were_written(tmp_path: Path, plausible):
    path = tmp_path / "logs" / "one" / "metrics.csv"
    write_metrics(path, plausible.run_rows(), NODES.columns)
    (merged,) = merge(tmp_path / "logs", output=tmp_path / "metrics.csv")
    assert merged.csv.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_last_attempt_wins_whatever_the_order_of_files(tmp_path: Path, plausible, names):
    for name, attempt in zip(names, (1, 2), strict=True):
        rows = plausible.run_rows(run_id="same", epochs=2, attempt=attempt, ceiling=0.8 + attempt / 100)
        write_metrics(tmp_path / "logs" / name / "metrics.csv", rows, NODES.columns)
    (merged,) = merge(tmp_path / "logs", output=tmp_path / "metrics.csv")
    assert column(merged.csv, "attempt") == ["2", "2"]
    assert merged.num_superseded == 2


def test_within_a_file_the_later_line_wins(tmp_path: Path, plausible):
    old, new = (plausible.run_rows(run_id="same", epochs=1, ceiling=ceiling)[0] for ceiling in (0.7, 0.8))
    write_metrics(tmp_path / "logs" / "metrics.csv", [old, new], NODES.columns)
    (merged,) = merge(tmp_path / "logs", output=tmp_path / "metrics.csv")
    assert column(merged.csv, "val_micro_f1") == [repr(new["val_micro_f1"])]


def test_equal_copies_of_a_run_count_once(tmp_path: Path, plausible):
    for name in ("here", "pulled"):
        write_metrics(
            tmp_path / "logs" / name / "metrics.csv", plausible.run_rows(run_id="same", epochs=2), NODES.columns
        )
    assert merge(tmp_path / "logs", output=tmp_path / "metrics.csv")[0].num_rows == 2


def test_different_rows_of_one_attempt_are_refused_unless_a_later_attempt_settles_it(tmp_path: Path, plausible):
    for name, ceiling in (("a", 0.8), ("b", 0.7)):
        rows = plausible.run_rows(run_id="same", epochs=1, ceiling=ceiling)
        write_metrics(tmp_path / "logs" / name / "metrics.csv", rows, NODES.columns)
    with pytest.raises(UserError, match=r"a/metrics.csv, line 2 and .*b/metrics.csv, line 2 .*run_id=same"):
        merge(tmp_path / "logs", output=tmp_path / "metrics.csv")
    assert not (tmp_path / "metrics.csv").exists()
    write_metrics(
        tmp_path / "logs" / "0" / "metrics.csv", plausible.run_rows(run_id="same", epochs=1, attempt=2), NODES.columns
    )
    assert merge(tmp_path / "logs", output=tmp_path / "metrics.csv")[0].num_rows == 1


def test_clashing_headers_are_refused_with_both_files_and_the_columns(tmp_path: Path, plausible):
    write_metrics(tmp_path / "logs" / "a" / "metrics.csv", plausible.run_rows(epochs=1), NODES.columns)
    other = tmp_path / "logs" / "b" / "metrics.csv"
    other.parent.mkdir()
    other.write_text(",".join(["extra", *NODES.columns][:-1]) + "\n")
    with pytest.raises(UserError, match=r"a/metrics.csv and .*b/metrics.csv .*first has fetch_s; .*second has extra"):
        merge(tmp_path / "logs", output=tmp_path / "metrics.csv")


def test_runs_from_before_a_task_had_columns_of_its_own_are_merged_with_runs_that_have_them(tmp_path: Path, plausible):
    before = [name for name in NODES.columns if name not in NODES.own_columns]
    rows = plausible.run_rows(epochs=1)
    for run, columns in (("a", before), ("b", list(NODES.columns))):
        path = tmp_path / "logs" / run / "metrics.csv"
        write_metrics(path, rows, {name: NODES.columns[name] for name in columns})
    (merged,) = merge(tmp_path / "logs", output=tmp_path / "metrics.csv")
    assert merged is not None
    header = (tmp_path / "metrics.csv").read_text().splitlines()[0].split(",")
    assert header == list(NODES.columns)


def test_the_same_columns_in_another_order_are_refused_with_the_first_that_differs(tmp_path: Path, plausible):
    write_metrics(tmp_path / "logs" / "a" / "metrics.csv", plausible.run_rows(epochs=1), NODES.columns)
    other = tmp_path / "logs" / "b" / "metrics.csv"
    other.parent.mkdir()
    other.write_text(",".join(reversed(NODES.columns)) + "\n")
    with pytest.raises(UserError, match="another order; column 1 is 'run_id' in the first and 'fetch_s' in the second"):
        merge(tmp_path / "logs", output=tmp_path / "metrics.csv")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"input_root": "absent"}, "is not a folder"),
        ({"input_root": "empty"}, "graphmill train"),
        ({"pattern": "/etc/*"}, "(?s)not a pattern.*--glob"),
        ({"pattern": ""}, "(?s)not a pattern.*--glob"),
        ({"key_columns": ("run_id", "epoc")}, "did you mean 'epoch'"),
        ({"output": "metrics.txt"}, r"\.csv"),
    ],
)
def test_a_wrong_request_is_refused_with_what_to_type(tmp_path: Path, plausible, options, says):
    (tmp_path / "empty").mkdir()
    write_metrics(tmp_path / "logs" / "a" / "metrics.csv", plausible.run_rows(epochs=1), NODES.columns)
    options = {"input_root": "logs", "output": "results/metrics.csv"} | options
    root, output = tmp_path / options.pop("input_root"), tmp_path / options.pop("output")
    with pytest.raises(UserError, match=says):
        merge(root, output=output, **options)


def test_a_torn_file_is_refused_with_file_and_line(tmp_path: Path, plausible):
    path = tmp_path / "logs" / "a" / "metrics.csv"
    write_metrics(path, plausible.run_rows(epochs=3), NODES.columns)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"a/metrics.csv, line 4: "):
        merge(tmp_path / "logs", output=tmp_path / "metrics.csv")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("epoch", "two", "which is not a whole number"),
        ("epoch", "1.5", "which is not a whole number"),
        ("epoch", "9" * 30, "which is not a whole number"),
        ("val_micro_f1", "0,8", "which is not a number"),
        ("synthetic", "perhaps", "which is not true or false"),
    ],
)
def test_a_cell_of_the_wrong_kind_is_refused_with_file_line_and_column(tmp_path: Path, plausible, name, text, says):
    rows = plausible.run_rows(epochs=2)
    rows[1][name] = text
    write_metrics(tmp_path / "logs" / "a" / "metrics.csv", rows, NODES.columns)
    with pytest.raises(UserError, match=f"a/metrics.csv, line 3: column {name} holds .*{says}"):
        merge(tmp_path / "logs", output=tmp_path / "metrics.csv")


def test_files_of_the_original_are_merged_alone_and_with_ours(tmp_path: Path, plausible):
    sweep = [row for k in (1, 16) for row in plausible.run_rows(k=k, run_id="reddit_sync_ablation", epochs=2)]
    original = tmp_path / "logs" / "reddit_sync_ablation" / "metrics.csv"
    plausible.write_sync_ablation(original, sweep)
    (alone,) = merge(tmp_path / "logs", output=tmp_path / "alone.csv")
    assert alone.original_files == (original,)
    assert column(alone.csv, "sync_scheme") == ["deferred_allreduce"] * 4
    assert column(alone.csv, "seed") == [""] * 4
    assert column(alone.csv, "sync_every") == ["1", "1", "16", "16"]
    plausible.write_runs(tmp_path / "logs", plausible.run_rows(epochs=2))
    assert merge(tmp_path / "logs", output=tmp_path / "both.csv")[0].num_rows == 6


def test_the_original_layout_keeps_the_macro_f1_of_the_original(tmp_path: Path, plausible):
    """There, a class that neither occurs nor is predicted counts 0; what its files hold is never taken for ours."""
    plausible.write_sync_ablation(tmp_path / "theirs" / "metrics.csv", plausible.run_rows(epochs=2))
    plausible.write_runs(tmp_path / "logs", plausible.run_rows(epochs=2))
    theirs = merge(tmp_path / "theirs", output=tmp_path / "theirs.csv")[0].csv
    assert column(theirs, "val_macro_f1") == column(theirs, "best_val_macro_f1") == ["", ""]
    ours = merge(tmp_path / "logs", output=tmp_path / "ours.csv")[0].csv
    viewed = merge_as("sync-ablation", tmp_path / "logs", pattern="**/metrics.csv", output=tmp_path / "view.csv")[0].csv
    for there, here in (("macroF1", "val_macro_f1"), ("best_macroF1", "best_val_macro_f1")):
        of_all = column(ours, f"{here}_all_classes")
        assert pl.read_csv(viewed, infer_schema=False)[there].to_list() == of_all
        assert column(theirs, f"{here}_all_classes") == of_all
        assert column(ours, here) != of_all


def test_parquet_holds_the_same_table_with_types(tmp_path: Path, plausible):
    plausible.write_runs(tmp_path / "logs", plausible.study_rows(ks=(1, 2), seeds=(1,)))
    (merged,) = merge(tmp_path / "logs", output=tmp_path / "metrics.csv")
    frame = pl.read_parquet(merged.parquet)
    assert frame.columns == list(NODES.columns)
    assert frame["val_micro_f1"].to_list() == [float(text) for text in column(merged.csv, "val_micro_f1")]
    assert frame["epoch"].to_list() == [int(text) for text in column(merged.csv, "epoch")]
    assert (frame.schema["synthetic"], frame.schema["sync_scheme"]) == (pl.Boolean(), pl.String())
    assert frame["peak_gpu_mib"].null_count() == frame.height


def test_golden(tmp_path: Path, plausible, golden):
    f1 = {"val_micro_f1": 0.8, "val_macro_f1": 0.7, "best_val_micro_f1": 0.8, "best_val_macro_f1": 0.7}
    rows = plausible.study_rows(ks=(2, 16), seeds=(2, 10), epochs=2)
    f1 |= {"val_macro_f1_all_classes": 0.65, "best_val_macro_f1_all_classes": 0.65}
    rows = [{**row, **f1, "loss": 0.5, "train_s": 4.0} for row in rows]
    plausible.write_runs(tmp_path / "logs", rows)
    golden("report/merged.csv", merge(tmp_path / "logs", output=tmp_path / "metrics.csv")[0].csv.read_text())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_merged_or_refused_and_leaves_nothing_half_written(tmp_path_factory, plausible, data):
    logs = tmp_path_factory.mktemp("fuzz")
    path = logs / "a" / "metrics.csv"
    write_metrics(path, plausible.run_rows(epochs=3), NODES.columns)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        replacement = data.draw(st.binary(max_size=3))
        content[place : place + data.draw(st.integers(0, 40))] = replacement
    path.write_bytes(bytes(content))
    output = logs / "results" / "metrics.csv"
    try:
        merge(logs, output=output)
    except UserError:
        assert not output.exists()
    assert not list(logs.rglob(".*.tmp"))
