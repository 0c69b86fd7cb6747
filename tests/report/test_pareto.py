"""pareto: the frontier is the set that nothing dominates; datasets and seeds are averaged as they should be."""

import csv
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.record.metrics import write_metrics
from graphmill.report.figures import figures
from graphmill.report.pareto import RUN, column_tag, frontier, pareto, points
from graphmill.tasks.node_classification.page import KIND as NODES
from graphmill.tasks.traffic.page import KIND as TRAFFIC

FEW = st.integers(0, 6).map(float)  # so that ties are common
PAIRS = st.lists(st.tuples(FEW, FEW), min_size=1, max_size=40)


def frame_of(pairs) -> pl.DataFrame:
    columns = dict.fromkeys(RUN, "x") | {"sync_every": 1, "world_size": 1, "seed": 1}
    rows = [{**columns, "epoch": place, "comm": comm, "acc": acc} for place, (comm, acc) in enumerate(pairs)]
    return pl.DataFrame(rows)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@settings(deadline=None)
@given(PAIRS)
def test_the_frontier_is_what_no_other_point_dominates(pairs):
    best = frontier(points(frame_of(pairs), "comm", "acc"), "acc")
    swept = list(best.select("comm", "acc").iter_rows())
    dominated = {
        (comm, acc) for comm, acc in pairs
        for other_comm, other_acc in pairs
        if other_comm <= comm and other_acc >= acc and (other_comm, other_acc) != (comm, acc)
    }  # fmt: skip
    assert set(swept) == set(pairs) - dominated
    assert len(swept) == len(set(swept))
    assert swept == sorted(swept)


@settings(deadline=None)
@given(PAIRS, st.randoms())
def test_the_frontier_does_not_depend_on_the_order_of_rows(pairs, shuffler: random.Random):
    frame = frame_of(pairs)
    order = list(range(len(pairs)))
    shuffler.shuffle(order)
    assert frontier(points(frame, "comm", "acc"), "acc").equals(frontier(points(frame[order], "comm", "acc"), "acc"))


def test_rows_that_were_not_evaluated_or_diverged_are_no_points():
    frame = frame_of([(1.0, 0.5), (2.0, None), (3.0, float("nan")), (None, 0.7), (4.0, float("inf"))])
    assert points(frame, "comm", "acc").height == 1


def test_the_files_do_not_depend_on_the_order_of_rows(tmp_path: Path, plausible):
    rows = plausible.study_rows(epochs=3)
    for name in ("one", "two"):
        write_metrics(tmp_path / f"{name}.csv", rows, NODES.columns)
        pareto(tmp_path / f"{name}.csv", output_dir=tmp_path / name)
        random.Random(1).shuffle(rows)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_golden(tmp_path: Path, plausible, golden):
    write_metrics(tmp_path / "metrics.csv", plausible.study_rows(ks=(1, 16), seeds=(1, 2), epochs=3), NODES.columns)
    (files,) = pareto(tmp_path / "metrics.csv", output_dir=tmp_path)
    for path in (files.all_points, files.frontier, files.runs, files.summary):
        golden(f"report/{path.name}", path.read_text())


def test_the_files_of_the_original_have_its_names_columns_and_decimals(metrics_csv: Path):
    (files,) = pareto(metrics_csv, output_dir=metrics_csv.parent)
    assert [files.all_points.name, files.frontier.name] == [
        "pareto_all_fp32_test-data.csv",
        "pareto_frontier_fp32_test-data.csv",
    ]
    for path in (files.all_points, files.frontier):
        header, first, *_ = path.read_text().splitlines()
        assert header == "sync_every,epoch,modelled_mib_cum_fp32,best_val_micro_f1"
        assert all(len(cell.partition(".")[2]) == 6 for cell in first.split(",")[2:])
    assert len(read(files.all_points)) == files.num_points == 2 * 5 * 3 * 12


def test_the_summary_is_the_mean_and_sample_deviation_over_seeds(tmp_path: Path, plausible):
    rows = []
    for seed, accuracy in ((1, 0.80), (2, 0.82), (3, 0.87)):
        rows += [row | {"best_val_micro_f1": accuracy} for row in plausible.run_rows(seed=seed, k=4, epochs=2)]
    rows += [row | {"best_val_micro_f1": 0.5} for row in plausible.run_rows(seed=1, k=8, epochs=2)]
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    (files,) = pareto(tmp_path / "metrics.csv", output_dir=tmp_path)
    four, eight = read(files.summary)
    assert (four["n"], four["best_val_micro_f1_mean"], four["best_val_micro_f1_sd"]) == ("3", "0.830000", "0.036056")
    assert (eight["n"], eight["best_val_micro_f1_mean"], eight["best_val_micro_f1_sd"]) == ("1", "0.500000", "")
    assert [row["epoch"] for row in read(files.runs)] == ["2"] * 4
    assert not files.notes


def test_payloads_and_world_sizes_are_not_averaged_together(tmp_path: Path, plausible):
    rows = [
        row
        for payload in ("fp32", "fp16")
        for world_size in (2, 4)
        for row in plausible.run_rows(payload=payload, world_size=world_size, epochs=2)
    ]
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    (files,) = pareto(tmp_path / "metrics.csv", output_dir=tmp_path)
    assert [row["n"] for row in read(files.summary)] == ["1"] * 4


def test_a_run_that_other_ranks_resumed_is_one_run_of_no_number_of_ranks(tmp_path: Path, plausible):
    """Neither its accuracy nor its costs are averaged with those of runs of either number."""
    changed = plausible.run_rows(world_size=4, epochs=4, run_id="changed")
    for row in changed[2:]:
        row["world_size"] = 2
    rows = [*changed, *plausible.run_rows(world_size=4, epochs=4), *plausible.run_rows(world_size=2, epochs=4)]
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    (files,) = pareto(tmp_path / "metrics.csv", output_dir=tmp_path)
    assert sorted((row["world_size"], row["n"]) for row in read(files.summary)) == [("", "1"), ("2", "1"), ("4", "1")]
    ends = [row["epoch"] for row in read(files.runs) if row["run_id"] == "changed"]
    assert ends == ["4"]


def test_datasets_have_their_own_files(tmp_path: Path, plausible):
    rows = plausible.run_rows(dataset="planetoid/cora") + plausible.run_rows(dataset="planetoid/pubmed", ceiling=0.7)
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    cora, pubmed = pareto(tmp_path / "metrics.csv", output_dir=tmp_path)
    assert cora.frontier.name == "pareto_frontier_fp32_planetoid-cora.csv"
    assert pubmed.runs.name == "pareto_runs_planetoid-pubmed.csv"
    assert {row["dataset"] for row in read(pubmed.runs)} == {"planetoid/pubmed"}
    assert float(read(pubmed.frontier)[-1]["best_val_micro_f1"]) < 0.72
    assert not (tmp_path / "pareto_all_fp32.csv").exists()


def test_a_second_dataset_leaves_the_files_of_the_first(tmp_path: Path, plausible):
    written = {}
    for dataset in ("a", "b"):
        write_metrics(tmp_path / "metrics.csv", plausible.run_rows(dataset=dataset), NODES.columns)
        (files,) = pareto(tmp_path / "metrics.csv", output_dir=tmp_path)
        assert all("this is a frontier of its epochs" in note for note in files.notes)
        written[dataset] = {files.all_points, files.frontier, files.runs, files.summary}
    assert not written["a"] & written["b"]


def test_names_of_datasets_that_would_share_a_file_are_told_apart(tmp_path: Path, plausible):
    rows = [row for name in ("a/b", "a b", "../..", None) for row in plausible.run_rows(dataset=name, epochs=1)]
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    written = pareto(tmp_path / "metrics.csv", output_dir=tmp_path / "out")
    assert len({files.frontier for files in written}) == 4
    assert all(files.frontier.parent == tmp_path / "out" for files in written)


def test_measured_communication_stands_in_files_of_its_own(metrics_csv: Path):
    pareto(metrics_csv, output_dir=metrics_csv.parent)
    (files,) = pareto(metrics_csv, output_dir=metrics_csv.parent, comm_column="measured_mib_cum")
    assert files.frontier.name == "pareto_frontier_measured_test-data.csv"
    assert files.summary.name == "pareto_summary_measured_test-data.csv"
    assert "measured_mib_cum" in read(files.frontier)[0]
    assert "modelled_mib_cum_fp32_mean" in read(metrics_csv.parent / "pareto_summary_test-data.csv")[0]


def test_an_original_sweep_under_one_run_id_is_several_runs(tmp_path: Path, plausible):
    path = tmp_path / "metrics.csv"
    plausible.write_sync_ablation(path, [row for k in (1, 4) for row in plausible.run_rows(k=k, run_id="sweep")])
    (files,) = pareto(path, output_dir=tmp_path)
    assert files.frontier.name == "pareto_frontier_fp32.csv", "a table that names no dataset"
    assert [row["sync_every"] for row in read(files.runs)] == ["1", "4"]


def test_runs_that_share_a_seed_are_pointed_out_and_can_be_chosen_among(tmp_path: Path, plausible):
    rows = plausible.run_rows(run_id="old/a") + plausible.run_rows(run_id="new/a")
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    (files,) = pareto(tmp_path / "metrics.csv", output_dir=tmp_path)
    assert "2 runs of deferred_allreduce, k = 1, 4 ranks share the seed 1 (new/a, old/a)" in str(files.notes)
    (files,) = pareto(tmp_path / "metrics.csv", output_dir=tmp_path, runs="new/*")
    assert [note for note in files.notes if "frontier of its epochs" not in note] == []
    assert len(files.notes) == 1, "one run is left, and that is said"
    assert [row["run_id"] for row in read(files.runs)] == ["new/a"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"comm_column": "modeled_mib_cum_fp32"}, "did you mean 'modelled_mib_cum_fp32'"),
        ({"acc_column": "dataset"}, "no column of numbers named 'dataset'"),
        ({"comm_column": "peak_gpu_mib"}, "has no row of test-data with both peak_gpu_mib and best_val_micro_f1"),
        ({"comm_column": "peak_gpu_mib"}, "for example --comm-column modelled_mib_cum_fp32"),
        ({"runs": "nothing*"}, "no run of .* matches 'nothing"),
    ],
)
def test_a_wrong_request_is_refused(metrics_csv: Path, options, says):
    with pytest.raises(UserError, match=says):
        pareto(metrics_csv, output_dir=metrics_csv.parent, **options)


def test_columns_that_were_refused_are_not_recommended(tmp_path: Path, plausible):
    write_metrics(
        tmp_path / "metrics.csv",
        [row | {"best_val_micro_f1": float("nan")} for row in plausible.run_rows()],
        NODES.columns,
    )
    with pytest.raises(
        UserError, match=r"(?s)no row.*modelled_mib_cum_fp32 and best_val_micro_f1, each a finite.*→ train until"
    ):
        pareto(tmp_path / "metrics.csv", output_dir=tmp_path)


def test_a_missing_table_names_the_command_that_makes_it(tmp_path: Path):
    with pytest.raises(UserError, match="graphmill merge"):
        pareto(tmp_path / "metrics.csv")


def test_a_table_without_rows_is_refused(tmp_path: Path):
    write_metrics(tmp_path / "metrics.csv", [], NODES.columns)
    with pytest.raises(UserError, match="no row"):
        pareto(tmp_path / "metrics.csv", output_dir=tmp_path)


@pytest.mark.parametrize(("name", "tag"), [("modelled_mib_cum_fp32", "fp32"), ("interface_mib_cum", "interface")])
def test_tags(name, tag):
    assert column_tag(name) == tag


@settings(deadline=None)
@given(PAIRS)
def test_of_an_error_less_is_better(pairs):
    frame = frame_of(pairs).rename({"acc": "best_val_mae"})
    best = frontier(points(frame, "comm", "best_val_mae", lower=True), "best_val_mae", lower=True)
    dominated = {
        (comm, mae)
        for comm, mae in pairs
        for other_comm, other_mae in pairs
        if other_comm <= comm and other_mae <= mae and (other_comm, other_mae) != (comm, mae)
    }
    assert set(best.select("comm", "best_val_mae").iter_rows()) == set(pairs) - dominated


def traffic_rows() -> list[dict]:
    maes = (3.0, 2.5, 2.4)
    return [
        {
            "run_id": f"t/k{k}", "epoch": epoch, "sync_every": k, "world_size": 2, "seed": 1,
            "sync_scheme": "local_sgd", "payload": "fp32", "dataset": "test-roads",
            "val_mae": maes[epoch - 1] + 0.1 * k,
            "best_val_mae": maes[epoch - 1] + 0.1 * k, "measured_mib_cum": 10.0 * epoch / k, "eval_s": 1.0,
            "train_s": 4.0, "global_steps": 20 * epoch, "num_seeds_cum": 100 * epoch,
            "replicas_agree": True, "num_hosts": 1, "attempt": 1, "synthetic": True,
        }
        for k in (1, 4)
        for epoch in (1, 2, 3)
    ]  # fmt: skip


def test_forecasts_have_a_frontier_figures_and_a_summary(tmp_path: Path):
    write_metrics(tmp_path / "metrics.csv", traffic_rows(), TRAFFIC.columns)
    (files,) = pareto(tmp_path / "metrics.csv", output_dir=tmp_path)
    assert files.frontier.name == "pareto_frontier_measured_test-roads.csv"
    maes = [float(row["best_val_mae"]) for row in read(files.frontier)]
    assert maes == sorted(maes, reverse=True), "what costs more has the smaller error"
    drawn = figures(tmp_path / "metrics.csv", images_dir=tmp_path, plots_dir=tmp_path, compile_tex=False)
    assert "best_val_mae_vs_total_comm_measured_test-roads" in {path.stem for path in drawn.images}
    maes = [float(row["best_val_mae_mean"]) for row in read(files.summary)]
    assert maes == pytest.approx([2.5, 2.8])


def test_one_rank_communicates_nothing(tmp_path, plausible):
    """It has no frontier; beside runs of more ranks on other data it is left out, and that is said."""
    alone, together = plausible.run_rows(world_size=1, dataset="alone"), plausible.run_rows(world_size=2)
    write_metrics(tmp_path / "alone.csv", alone, NODES.columns)
    with pytest.raises(UserError) as refusal:
        pareto(tmp_path / "alone.csv", output_dir=tmp_path)
    assert "one rank" in str(refusal.value)
    write_metrics(tmp_path / "both.csv", [*alone, *together], NODES.columns)
    (written,) = pareto(tmp_path / "both.csv", output_dir=tmp_path)
    assert written.dataset == "test-data"
    assert any(note.startswith("alone is left out") for note in written.notes)
