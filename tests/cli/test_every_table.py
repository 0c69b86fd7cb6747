"""Every table, figure and CSV of one rank, of a traffic run and of both together: right, or refused in one sentence."""

import csv
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import TOY, run_in

from graphmill.tasks.stores import Preparation, prepare_store
from graphmill.tasks.traffic.page import KIND as TRAFFIC
from graphmill.tasks.traffic.page import TrafficPrepareOptions

SERIES = """task: {kind: traffic}
name: series
dataset: {name: synthetic/traffic, history: 4, horizon: 3}
model: {kind: stid, embed_dim: 8}
train: {epochs: 2, batch_size: 60, threads: 1}
"""
FOLDERS = {"one rank": ["nodes"], "traffic": ["series"], "mixed": ["nodes", "series"]}
COMMUNICATION = ("sync", "MiB sent", "modelled", "frontier of", "all-reduce", "payload", "bit-equal", "on wire")

# command → what is said of nodes, of a series; of both. A str: it is refused so.
SHOWN: dict[str, tuple[tuple[str, ...] | str, tuple[str, ...] | str, tuple[str, ...] | str]] = {
    "watch --once": (("nodes", "micro-F1", "nodes/s"), ("series", "MAE", "windows/s"), ("series", "done")),
    "list": (("nodes", "done"), ("series", "done"), ("nodes", "series")),
    "merge": (("2 rows of 1 run",), ("2 rows of 1 run",), ("metrics_traffic.csv", "a table for each task")),
    "merge --layout long": (("rows of 1 run",), ("rows of 1 run",), ("rows of 2 runs",)),
    "pareto": ("of one rank", "of one rank", "metrics_traffic.csv are of one rank"),
    "figures --no-compile": (
        ("learning_loss_synthetic-sbm.png", "learning_val_micro_f1"),
        ("learning_loss_synthetic-traffic.png", "learning_val_mae"),
        ("learning_loss_synthetic-sbm.png", "learning_val_mae"),
    ),
    "figures --only sync_ablation": ("of one rank", "of one rank", "metrics_traffic.csv are of one rank"),
    "compare": (
        ("test micro-F1", "majority class"),
        ("test MAE", "last value"),
        ("test micro-F1", "majority class", "test MAE", "last value"),
    ),
    "compare --by train.batch_size": (
        ("test micro-F1", "nodes/s"),
        ("test MAE", "windows/s"),
        ("test micro-F1", "nodes/s", "test MAE", "windows/s"),
    ),
    "report {run} -o r.html": (("report of run nodes",), ("report of run series",), ("report of run series",)),
    "report {run} --markdown -o r.md": (("report of run nodes",), ("report of run series",), ("report of run series",)),
    "export --to tensorboard --dry-run": (("nodes", "new"), ("series", "new"), ("nodes", "series", "nothing written")),
    "recipes": (("cora-sage", "traffic-demo"),) * 3,
    "study list": (("study-demo", "study-traffic-strong"),) * 3,
    "inspect {run}": (("nodes", "test micro-F1", "majority class"), ("test MAE", "last value"), ("test MAE",)),
    "bottleneck {run}": (("shares",),) * 3,  # what bounds it may be that other processes took the cores
}
OF_RECIPES = ("recipes", "study list")  # which are not of the runs


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory, _toy_root) -> Path:
    """Two runs of one rank each, `logs/nodes` and `logs/series`, by real ranks."""
    folder = tmp_path_factory.mktemp("runs")
    options = TrafficPrepareOptions(num_sensors=5, num_steps=600)
    prepare_store(TRAFFIC, Preparation("synthetic/traffic", _toy_root, options))
    for name, text in (("nodes", TOY), ("series", SERIES)):
        (folder / f"{name}.yaml").write_text(text)
        run_in(folder, "train", f"{name}.yaml", "--run-id", name, "--dataset-root", str(_toy_root))
    return folder


@pytest.fixture(params=FOLDERS)
def kind(request, all_runs, tmp_path, monkeypatch, _toy_root) -> str:
    """The runs of a kind lie in ./logs."""
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(_toy_root))
    for name in FOLDERS[request.param]:
        shutil.copytree(all_runs / "logs" / name, tmp_path / "logs" / name)
    return request.param


@pytest.mark.parametrize("command", SHOWN)
def test_it_is_right_or_refused_and_tells_nothing_of_communication(graphmill, kind, tmp_path, command):
    if command.split()[0] in ("pareto", "figures"):
        graphmill("merge")
    before = sorted(tmp_path.rglob("*"))
    done = graphmill(*shlex.split(command.format(run=f"logs/{FOLDERS[kind][-1]}")))
    expected = SHOWN[command][list(FOLDERS).index(kind)]
    said = done.out + done.err
    if isinstance(expected, str):
        assert (done.code, done.out) == (2, ""), said
        assert expected in done.err
        assert done.err.count("error: ") == done.err.count("\n  → ") == 1
        assert sorted(tmp_path.rglob("*")) == before
        return
    assert done.code == 0, said
    assert all(word in said for word in expected), said
    if command not in OF_RECIPES:
        assert not [word for word in COMMUNICATION if word in said], said
    written = [path.name for path in set(tmp_path.rglob("*")) - set(before)]
    assert not [name for name in written if name.startswith(("sync_", "pareto_", "accuracy_vs"))]


def test_the_table_of_one_rank_has_no_bytes_sent(graphmill, kind, tmp_path):
    graphmill("merge")
    tables = list((tmp_path / "results").glob("*.csv"))
    assert len(tables) == len(FOLDERS[kind])
    for row in [row for table in tables for row in csv.DictReader(table.read_text().splitlines())]:
        assert all(
            float(row[name] or 0) == 0 for name in ("measured_mib_epoch", "measured_mib_cum", "interface_mib_cum")
        )
        assert row["replicas_agree"] == ""
        assert row["world_size"] == "1"


def test_a_report_says_the_unit_of_the_data_and_no_time_of_synchronising(graphmill, kind, tmp_path):
    graphmill("report", f"logs/{FOLDERS[kind][-1]}", "--markdown", "-o", "r.md")
    text = (tmp_path / "r.md").read_text()
    measures = text.partition("## Provenance")[0]
    assert "synchronising" not in measures
    if kind != "one rank":
        assert "| MAE | mph | lower |" in measures
        assert "data unit" not in measures.partition("## Learning")[0]
