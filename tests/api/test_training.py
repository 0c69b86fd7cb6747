"""`graphmill.train` and what is done with its run: the same run folder, scores and messages as by the commands."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars
import pytest
from command_line import TOY
from safetensors import safe_open
from waiting import HANG_S, wait_until

import graphmill as package
from graphmill.base import exits

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def desk(tmp_path_factory, _toy_root) -> Path:
    """A folder with a run that Python trained, for tests that read it."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("GRAPHMILL_DATA_ROOT", str(_toy_root))
        (folder / "toy.yaml").write_text(TOY)
        package.train("toy.yaml", ranks=2, run_id="mine")
    return folder


@pytest.fixture
def run(graphmill, desk, _toy_root, monkeypatch) -> package.Run:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(_toy_root))
    return package.Run("logs/mine")


def names(folder) -> set[str]:
    """Without what the monitor writes, if the run lasts long enough."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {name for name in found if not name.startswith("monitor/")}


def checksum(folder: Path) -> str:
    with safe_open(folder / "checkpoints/step_0000000004/model.safetensors", framework="numpy") as file:
        return json.loads(file.metadata()["graphmill"])["checksum"]


def test_the_run_folder_is_the_commands(graphmill, run):
    assert graphmill("train", "toy.yaml", "--ranks", "2", "--run-id", "theirs", "--logs-root", "others").code == 0
    mine, theirs = run.path, Path("others/theirs")
    plan = (theirs / "plan.json").read_text().replace('"theirs"', '"mine"')
    assert (mine / "plan.json").read_text() == plan
    assert package.plan("toy.yaml", ranks=2, run_id="mine").model_dump_json(indent=2) + "\n" == plan
    assert names(mine) == names(theirs)
    assert checksum(mine) == checksum(theirs)
    assert run.summary["test"] == package.Run(theirs).summary["test"]
    assert graphmill("verify", "mine").code == 0


def test_a_run_says_what_its_folder_says(graphmill, run):
    assert run.plan.run_id == "mine"
    assert run.summary["status"] == "done"
    assert run.metrics["epoch"].to_list() == [1, 2]
    assert run.metrics["loss"].dtype == polars.Float64
    tested = run.evaluations.filter(polars.col("set") == "test")
    values = dict(zip(tested["measure"], tested["value"], strict=True))
    assert values["micro_f1"] == run.summary["test"]["micro_f1"]
    page = run._repr_html_()
    assert page.count("<svg ") == 2, "the loss and the measure"
    assert f"{run.summary['test']['micro_f1']:.4f}" in page


def test_evaluate_returns_the_measures_of_the_run(run):
    assert run.evaluate(split="test")["micro_f1"] == run.summary["test"]["micro_f1"]


@pytest.mark.slow
def test_evaluate_returns_what_the_command_prints(graphmill, run):
    said = json.loads(graphmill("evaluate", "mine", "--split", "val", "--json").out)
    assert run.evaluate(split="val") == package.evaluate("mine", "val") == said


def test_predict_returns_what_it_writes(run):
    table = package.predict("mine", output="kept.csv", embeddings=True)
    assert {"embedding_0", "embedding_7"} <= set(table.columns)
    assert polars.read_csv("kept.csv").height == table.height


@pytest.mark.slow
def test_predict_returns_what_the_command_writes(graphmill, run):
    assert graphmill("predict", "mine", "--output", "theirs.parquet").code == 0
    table = package.predict(run)
    assert table.select(polars.read_parquet("theirs.parquet").columns).equals(polars.read_parquet("theirs.parquet"))


@pytest.mark.slow
def test_compare_returns_the_rows_of_the_command(graphmill, run):
    logs = [run, *(package.train("toy.yaml", {"train.seed": seed}, logs_root="seeds", epochs=1) for seed in (1, 2))]
    (theirs,) = json.loads(graphmill("compare", *map(str, [each.path for each in logs]), "--json").out)["tables"]
    rows = package.compare(logs).to_dicts()
    assert [len(row["runs"]) for row in rows] == [len(row["runs"]) for row in theirs["rows"]]
    for mine, row in zip(rows, theirs["rows"], strict=True):
        assert (mine["val"], mine["test_sd"]) == (row["val"]["mean"], row["test"]["sd"])
        assert mine["best"] == (row == theirs["best"])
        assert {key: mine[key] for key in theirs["varied"]} == row["values"]
    assert package.compare("seeds", by="train.seed", sort="seed")["seed"].to_list() == [1, 2]


@pytest.mark.slow
def test_a_run_is_resumed_and_extended(graphmill, run):
    assert package.train(run, resume=True).summary == run.summary, "it is done already"
    longer = package.train("mine", extend=True, epochs=3, run_id="longer", logs_root="logs")
    assert longer.summary["epochs"] == 3
    assert longer.plan.extends.run_id == "mine"


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["toy.yaml", "--run-id", "mine"], {"experiment": "toy.yaml", "run_id": "mine"}),
        (["--resume"], {"resume": True}),
        (["mine", "--resume", "--lr", "0.5"], {"experiment": "mine", "resume": True, "lr": 0.5}),
        (["mine", "--extend", "--resume"], {"experiment": "mine", "extend": True, "resume": True}),
        (["mine", "--extend"], {"experiment": "mine", "extend": True}),
        (["mine", "--extend", "--dataset-root", "x"], {"experiment": "mine", "extend": True, "dataset_root": "x"}),
    ],
)
def test_refusals_have_the_commands_two_sentences(graphmill, run, words, given):
    told = graphmill("train", *words)
    with pytest.raises(package.UserError) as error:
        package.train(**given)
    assert told.code == 2
    assert told.err == f"error: {error.value.message}\n  → {error.value.fix}\n"


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (["evaluate", "mine", "--split", "tset"], lambda: package.evaluate("mine", "tset")),
        (["evaluate", "mine", "--weights", "bset"], lambda: package.evaluate("mine", weights="bset")),
        (["evaluate", "mime"], lambda: package.evaluate("mime")),
        pytest.param(["evaluate", "mine", "--dataset", "nothing"], lambda: package.evaluate("mine", dataset="nothing"),
                     marks=pytest.mark.slow),
        pytest.param(["predict", "mine", "--output", "x.parquet", "--attention", "y.csv"],
                     lambda: package.predict("mine", attention="y.csv"), marks=pytest.mark.slow),
        (["compare", "mine", "--sort", "lr"], lambda: package.compare("mine", sort="lr")),
    ],
)  # fmt: skip
def test_errors_of_use_have_the_commands_two_sentences(graphmill, run, words, call):
    told = graphmill(*words)
    with pytest.raises(package.UserError) as error:
        call()
    assert told.code == 2
    assert told.err == f"error: {error.value.message}\n  → {error.value.fix}\n"


def test_a_run_that_fails_says_what_the_ranks_said(toy, capfd, monkeypatch):
    monkeypatch.chdir(toy.parent)
    with pytest.raises(package.EndedError) as error:
        package.train("toy.yaml", ranks=1, run_id="mine", lr=1e38)
    shown = capfd.readouterr().err
    assert error.value.exit_status == exits.BAD_REQUEST
    what = error.value.message.removeprefix("logs/mine: ")
    assert f"error: {what}\n  → {error.value.fix}\n" in shown
    assert package.Run(error.value.path).summary["status"] == "bad_request"


INTERRUPTED = """
import graphmill
try:
    graphmill.train("toy.yaml", run_id="mine", epochs=100000)
except graphmill.EndedError as error:
    print(error.exit_status, error, flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_run_after_a_checkpoint(toy, source_environ, tmp_path):
    environ = {**source_environ, "GRAPHMILL_DATA_ROOT": os.environ["GRAPHMILL_DATA_ROOT"]}
    script = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env=environ,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "logs/mine/metrics.csv").exists, "the first epoch to be over")
    script.send_signal(signal.SIGINT)
    out, err = script.communicate(timeout=HANG_S)
    assert script.returncode == 0, err
    assert f"{exits.OUT_OF_TIME} logs/mine: stopped on SIGINT" in out
    assert out.endswith("→ continue with `graphmill train --resume logs/mine`\n")
    assert list((tmp_path / "logs/mine/checkpoints").glob("step_*"))
