"""`bench assignment RUN`: every instance with the columns of the seed's benchmark, no failure left out."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from command_line import run_in

SEEDS_COLUMNS = [
    *("dataset", "size", "family", "density", "scipy_time", "lap_time", "gnn_time", "seeded_time", "total_time"),
    *("speedup_vs_scipy", "speedup_vs_lap", "primal_gap"),
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A folder in which problems were prepared and a model was trained."""
    folder = tmp_path_factory.mktemp("desk")
    of_data = ("synthetic/assignment", "-o", "sizes=[12]", "-o", "instances=8", "-o", "frames=1")
    words = ("-O", "train.epochs=1", "-O", "train.threads=1", "-O", "train.optimizer.schedule.warmup_steps=0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHMILL_DATA_ROOT", str(folder / "data"))
        run_in(folder, "prepare", *of_data)
        run_in(folder, "train", "assignment-one-gnn", "--run-id", "one", *words)
    return folder


@pytest.fixture
def run(graphmill, desk, tmp_path):
    shutil.copytree(desk, tmp_path, dirs_exist_ok=True)
    return "one"


def test_rows_and_summary(graphmill, run, tmp_path):
    done = graphmill("bench", "assignment", run, "-o", "repeats=1", "--output", "x.csv", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[: len(SEEDS_COLUMNS)] == SEEDS_COLUMNS
    assert len(rows) == len(found["rows"])
    assert {row["family"] for row in rows} >= {"uniform", "tie", "tracking", "transportation"}
    for row in rows:
        assert abs(float(row["primal_gap"])) < 1e-9  # percent
        assert float(row["total_time"]) == pytest.approx(float(row["gnn_time"]) + float(row["seeded_time"]))
    total = found["summary"][-1]
    assert (total["family"], total["instances"]) == ("all", len(rows))
    few = graphmill("bench", "assignment", run, "-o", "repeats=1", "-o", "families=[tie]", "-o", "instances=1")
    assert few.code == 0, few.err
    assert "uniform" not in few.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-o", "repeat=1"), "repeats"),
        (("-o", "families=[tied]"), "families"),
        (("-o", "sizes=[13]"), "13"),
        (("--dataset", "nothing"), "nothing"),
    ],
)
def test_what_is_not_there_is_refused(graphmill, run, words, told):
    done = graphmill("bench", "assignment", run, *words)
    assert done.code == 2
    assert told in done.err
    assert not list(done.out)


def test_evaluate_tells_speed_ups_too(graphmill, run, monkeypatch):
    with monkeypatch.context() as alone:
        alone.delattr("graphmill.runtime.fork_server.output_of")  # torch is imported here, and nowhere else
        done = graphmill("evaluate", run, "--speed-ups", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["feasible"] == 1.0
    total = found["speed_ups"][-1]
    assert total["family"] == "all"
    assert min(total["vs_scipy"], total["cold_vs_scipy"], total["auto_vs_cold"]) > 0
    plain = json.loads(graphmill("evaluate", run, "--json").out)
    assert plain == {name: value for name, value in found.items() if name != "speed_ups"}


@pytest.mark.slow
def test_stages_of_a_pipeline_that_are_done(graphmill, run, tmp_path):
    (tmp_path / "p.yaml").write_text(
        """name: p
experiment: assignment-one-gnn
set: {train.ranks: 1, train.threads: 1, train.device: cpu, train.epochs: 1, train.optimizer.schedule.warmup_steps: 0}
stages:
  - {name: first}
  - {name: second, init_from: {stage: first}}
  - {name: third, init_from: {stage: second}}
"""
    )
    ran = graphmill("pipeline", "run", "p.yaml", "--stages", "first", "second")
    assert ran.code == 0, ran.err
    asked = ("-o", "repeats=1", "-o", "instances=1", "-o", "families=[tie]")
    done = graphmill("bench", "assignment", "p", *asked, "--output", "x.csv", "--json")
    assert done.code == 0, done.err
    assert "third" in done.err
    found = json.loads(done.out)
    assert [line["stage"] for line in found["summary"] if line["family"] == "all"] == ["first", "second"]
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[: len(SEEDS_COLUMNS)] == SEEDS_COLUMNS
    assert [row["stage"] for row in rows] == ["first", "second"]


def test_help_names_the_options_of_the_task(graphmill):
    done = graphmill("bench", "assignment", "--help")
    assert done.code == 0
    assert "-o repeats=" in done.out
