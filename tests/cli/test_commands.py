"""Each command does what it says, on real data in a temporary folder."""

import json
import re
import resource
import shutil

import pytest
from waiting import HANG_S

from graphmill.record.documents import Outcome
from graphmill.record.metrics import write_metrics
from graphmill.tasks.node_classification.page import KIND as NODES


def facts(result) -> dict:
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_datasets(graphmill, toy):
    found = {row["name"]: row for row in facts(graphmill("datasets", "--json"))["datasets"]}
    assert found["synthetic/sbm"]["prepared"] is True
    assert found["synthetic/sbm"]["synthetic"] is True
    assert found["synthetic/sbm"]["sizes"]["nodes"] == 300
    assert found["reddit"]["prepared"] is False
    assert found["debian-packages"]["origin"] == "embedded"
    lines = graphmill("datasets").out.splitlines()
    assert lines[0].split() == ["name", "task", "prepared", "origin", "synthetic", "sizes"]
    assert any(line.startswith("planetoid/cora ") for line in lines)


def test_datasets_of_an_empty_root(graphmill, tmp_path):
    rows = facts(graphmill("datasets", "--json", "--dataset-root", tmp_path / "none"))["datasets"]
    assert not any(row["prepared"] for row in rows)


def test_prepare_and_inspect(graphmill, tmp_path):
    prepared = graphmill(
        "prepare",
        "synthetic/rmat",
        "--as",
        "mine",
        "-o",
        "num_nodes=256",
        "-o",
        "num_edges=1000",
        "--dataset-root",
        "root",
    )
    assert prepared.code == 0, prepared.err
    assert "preparing mine" in prepared.err
    assert "synthetic" in prepared.out
    shown = facts(graphmill("inspect", "mine", "--check", "--json", "--dataset-root", "root"))
    assert (shown["name"], shown["num_nodes"], shown["checked"], shown["synthetic"]) == ("mine", 256, True, True)
    assert (
        "checksums and structure are as they should be"
        in graphmill("inspect", tmp_path / "root" / "mine", "--check").out
    )


def test_readings_are_told_from_a_graph_by_the_look_of_the_file(graphmill, tmp_path):
    import numpy as np

    times = np.arange(60, dtype=np.int64) * 300
    values = np.full((60, 2), 50, dtype=np.float32) + np.arange(60, dtype=np.float32)[:, None]
    ids, adj = np.array(["a", "b"]), np.ones((2, 2), dtype=np.float32)
    np.savez(tmp_path / "mine.npz", values=values, timestamps=times, sensor_ids=ids, adj=adj)
    words = ("--from", tmp_path / "mine.npz", "--dataset-root", "root")
    assert facts(graphmill("prepare", "mine", *words, "--json"))["num_sensors"] == 2
    as_graph = graphmill("prepare", "other", *words, "--task", "node_classification")
    assert as_graph.code == 2
    assert "lacks edge_index" in as_graph.err


def test_inspect_check_finds_damage(graphmill, toy, tmp_path, monkeypatch):
    import os

    root = tmp_path / "copy"
    shutil.copytree(os.environ["GRAPHMILL_DATA_ROOT"], root)
    path = root / "synthetic" / "sbm" / "y.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = graphmill("inspect", "synthetic/sbm", "--check", "--dataset-root", root)
    assert result.code == 2
    assert "y.npy" in result.err


def test_plan(graphmill, toy):
    shown = facts(graphmill("plan", "toy.yaml", "--ranks", "2", "-O", "train.sync.every=2", "--json"))
    assert shown["plan"]["ranks"] == 2
    assert shown["plan"]["epoch_lengths"] == [[2, 2]]
    assert shown["modelled"]["num_syncs"] == 2
    text = graphmill("plan", "toy.yaml", "--ranks", "2").out
    assert "modelled (by formula, not measured)" in text
    assert "rounds per epoch" in text
    assert "rounds per epoch" not in graphmill("plan", "toy.yaml").out, "one rank exchanges nothing"


def test_plan_counts_the_hosts_of_the_job(graphmill, toy):
    """It counted one, without a word."""
    words = ("plan", "toy.yaml", "--ranks", "2", "-O", "slurm.hosts=2")
    assert facts(graphmill(*words, "--json"))["plan"]["hosts"] == 2
    uneven = graphmill("plan", "toy.yaml", "--ranks", "3", "-O", "slurm.hosts=2")
    assert (uneven.code, "train.ranks=4" in uneven.err) == (2, True)
    tried = graphmill(*words, "--trial", "3")
    assert (tried.code, "without slurm.hosts" in tried.err) == (2, True)


def test_plan_takes_the_flags_of_the_sync_ablation_scripts(graphmill, toy):
    words = [
        *("--max_steps", "8", "--batch_size", "32", "--num_neighbors", "3", "2"),
        *("--sync_every", "4", "--sync_scheme", "local_sgd", "--hidden_channels", "4"),
    ]
    plan = facts(graphmill("plan", "toy.yaml", "--ranks", "2", "--json", *words))["plan"]
    assert plan["last_step"] == 4
    assert plan["task"]["num_neighbors"] == [3, 2]
    assert plan["sync"]["scheme"] == "local_sgd"
    assert plan["task"]["model"]["hidden_channels"] == 4
    before = facts(graphmill("plan", "--num_neighbors", "3", "2", "toy.yaml", "--batch-size=32", "--json"))["plan"]
    assert (before["task"]["num_neighbors"], before["batch_size"], before["epoch_lengths"][0][0]) == ([3, 2], 32, 2)


def test_plan_is_the_same_bytes_twice(graphmill, toy):
    assert graphmill("plan", "toy.yaml", "--json").out == graphmill("plan", "toy.yaml", "--json").out


STUDY = """# A study
name: s
experiment: toy.yaml
vary: {train.sync.every: [1, 2]}
seeds: [1, 2]
"""


def test_study_list(graphmill, toy, tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    cells = facts(graphmill("study", "list", "study.yaml", "--json"))["cells"]
    assert [cell["cell"] for cell in cells] == [
        "every-1__seed-1",
        "every-1__seed-2",
        "every-2__seed-1",
        "every-2__seed-2",
    ]
    assert {cell["status"] for cell in cells} == {"new"}
    assert "every-2__seed-2" in graphmill("study", "run", "study.yaml", "--dry-run").out
    assert not (tmp_path / "logs").exists()


def test_recipes_are_listed_with_what_they_learn_from(graphmill):
    recipes = {recipe["name"]: recipe for recipe in facts(graphmill("recipes", "--json"))["recipes"]}
    assert all(recipe["description"] and recipe["dataset"] for recipe in recipes.values())
    assert recipes["study-demo"]["dataset"] == recipes["debian-packages-sage"]["dataset"] == "debian-packages"
    assert (recipes["reddit-sage"]["is_measured"], recipes["cora-sage"]["is_measured"]) == (False, True)
    studies = facts(graphmill("study", "list", "--json"))["recipes"]
    assert {recipe["kind"] for recipe in studies} == {"study"}
    assert "pipeline-neighbours" in graphmill("recipes").out


def test_doctor(graphmill):
    result = graphmill("doctor", "--json")
    report = json.loads(result.out)
    assert result.code == (0 if report["ok"] else 1)
    assert {"cores", "torch", "native core", "logs root"} <= {finding["name"] for finding in report["findings"]}


def test_bench_lists_what_a_checkout_has(graphmill):
    found = facts(graphmill("bench", "--json"))
    assert all(item["path"].endswith(".py") for item in found)


def test_bench_of_an_installed_package_says_where_benchmarks_are(graphmill, tmp_path, monkeypatch):
    import graphmill as package

    monkeypatch.setattr(package, "__file__", str(tmp_path / "lib" / "python" / "graphmill" / "__init__.py"))
    result = graphmill("bench")
    assert result.code == 2
    assert "come with a checkout of graphmill only" in result.err


def test_bench_runs_a_script_and_passes_its_status_on(graphmill, tmp_path, monkeypatch):
    import graphmill as package

    folder = tmp_path / "checkout" / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "quick.py").write_text(
        '"""Quick and small."""\nimport sys\nif __name__ == "__main__":\n'
        '    open("seen", "w").write(str(sys.argv[1:]))\n    sys.exit(1)\n'
    )
    (folder / "shared.py").write_text('"""What they share."""\n')
    monkeypatch.setattr(package, "__file__", str(tmp_path / "checkout" / "src" / "graphmill" / "__init__.py"))
    assert "Quick and small." in graphmill("bench").out
    assert "What they share." not in graphmill("bench").out
    assert graphmill("bench", "quick", "--rounds", "3").code == 1
    assert (tmp_path / "seen").read_text() == "['--rounds', '3']"
    assert "did you mean 'quick'" in graphmill("bench", "quik").err


def rows(run_id: str, every: int) -> list[dict]:
    return [
        {
            "run_id": run_id, "sync_scheme": "local_sgd", "sync_every": every, "world_size": 2, "seed": 1,
            "epoch": epoch, "dataset": "toy", "synthetic": True, "payload": "fp32", "attempt": 1, "loss": 1.0,
            "val_micro_f1": 0.5 + 0.1 * epoch, "best_val_micro_f1": 0.5 + 0.1 * epoch, "val_macro_f1": 0.5,
            "best_val_macro_f1": 0.5,
            "global_steps": 10 * epoch, "modelled_mib_cum_fp32": 8.0 * epoch / every,
            "measured_mib_cum": 8.0 * epoch / every,
        }
        for epoch in (1, 2, 3)
    ]  # fmt: skip


def test_merge_pareto_figures(graphmill, tmp_path):
    for every in (1, 4):
        write_metrics(tmp_path / "logs" / f"k{every}" / "metrics.csv", rows(f"k{every}", every), NODES.columns)
    (merged,) = facts(graphmill("merge", "--json"))
    assert (merged["num_rows"], merged["csv"]) == (6, "results/metrics.csv")
    assert "6 rows of 2 runs" in graphmill("merge").out
    (written,) = facts(graphmill("pareto", "--json"))
    assert written["num_points"] == 6
    assert "results/pareto_frontier_fp32_toy.csv" in graphmill("pareto").out
    drawn = facts(graphmill("figures", "--only", "pareto_frontier", "--no-compile", "--json"))
    assert drawn["images"]
    assert all((tmp_path / image).stat().st_size > 1000 for image in drawn["images"])


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("merge", "--output", "a-file/metrics.csv"), "a-file: File exists"),
        (("merge", "--output", "a-folder.csv"), "a-folder.csv: Is a directory"),
        (("pareto", "--output-dir", "a-file"), "a-file: File exists"),
        (("figures", "--no-compile", "--images-dir", "a-file/deep"), "a-file/deep: Not a directory"),
        (("figures", "--no-compile", "--plots-dir", "a-file"), "a-file"),
    ],
)
def test_a_place_that_cannot_be_written_is_a_wrong_request(graphmill, tmp_path, command, says):
    write_metrics(tmp_path / "logs" / "k1" / "metrics.csv", rows("k1", 1), NODES.columns)
    assert graphmill("merge").code == 0
    (tmp_path / "a-file").write_text("")
    (tmp_path / "a-folder.csv").mkdir()
    result = graphmill(*command)
    assert result.code == 2
    assert says in result.err
    assert "name a place that you may write to" in result.err
    assert not list(tmp_path.rglob(".*.tmp"))


@pytest.mark.parametrize("command", [("merge",), ("pareto",), ("figures", "--no-compile")])
def test_a_full_disk_is_told_in_a_sentence(graphmill, tmp_path, command):
    """A limit on the size of files stands for the disk."""
    write_metrics(tmp_path / "logs" / "k1" / "metrics.csv", rows("k1", 1), NODES.columns)
    assert graphmill("merge").code == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        result = graphmill(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.code == 2
    assert "File too large" in result.err
    assert not list(tmp_path.rglob(".*.tmp"))


def finished(new_run, seed: int, val: float) -> None:
    """A run of two ranks, `logs/s1` with rng seed 1, that ended with this score on the validation split."""
    numbers = {"num_seeds": 234_612, "train_s": 2.0, "eval_s": 0.5, "num_syncs_cum": 29, "measured_mib_cum": 5529.0}
    folder, _ = new_run(run_id=f"s{seed}", seed=seed, sync={"scheme": "local_sgd", "every": 16})
    write_metrics(folder.metrics_path, [row | numbers for row in rows(f"s{seed}", 16)], NODES.columns)
    scores = {"best": {"epoch": 1, "micro_f1": val}, "test": {"micro_f1": seed / 3}}
    folder.write_outcome(Outcome(status="done", exit_code=0, epochs=3, steps_per_rank=1, wall_s=1, **scores))


def test_a_score_that_is_nan_is_null_in_json(graphmill, new_run):
    for seed in (1, 2):
        finished(new_run, seed, float("nan"))
    ((row,),) = (table["rows"] for table in facts(graphmill("compare", "--json"))["tables"])
    assert (len(row["runs"]), row["val"]["mean"]) == (2, None)
    assert "nan" in graphmill("compare").out


def test_runs_are_compared_by_the_keys_that_are_named(graphmill, new_run):
    for seed in (1, 2):
        finished(new_run, seed, 0.8 + seed / 100)
    shown = graphmill("compare", "--by", "train.sync.scheme,train.sync.every")
    title, header, row, *_ = shown.out.splitlines()
    assert "mean ± s.d." in title
    assert header.split()[:3] == ["scheme", "every", "runs"]
    assert header.endswith("syncs  measured MiB  nodes/s  wall s")
    assert row.split()[:3] == ["local_sgd", "16", "2"]
    assert row.split()[-4:] == ["29", "5,529", "117,306", "7.5"]
    refused = graphmill("compare", "--by", "train.sync.evry")
    assert refused.code == 2
    assert "--by sync.every" in refused.err


def test_typos_of_commands_and_options_suggest_the_nearest(graphmill, toy):
    assert "Did you mean 'datasets'" in graphmill("dataset").err
    assert "Did you mean 'run'" in graphmill("study", "rnu", "x").err
    assert "--json" in graphmill("doctor", "--jsn").err
    assert "did you mean '--ranks'" in graphmill("train", "toy.yaml", "--rank", "2").err
    assert "did you mean '--batch_size'" in graphmill("plan", "toy.yaml", "--batchsize", "2").err


def test_our_own_bugs_say_so(source_environ, tmp_path):
    import subprocess
    import sys

    program = (
        "import sys; sys.argv = ['graphmill', 'doctor']; import graphmill.runtime.checks as checks\n"
        "checks.examine = lambda **_: 1 / 0\nfrom graphmill.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=source_environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "This is a bug in graphmill, not in your request" in done.stderr


def test_an_interrupt_is_exit_130(source_environ):
    import subprocess
    import sys

    program = (
        "import os, signal, sys; sys.argv = ['graphmill', 'doctor']; import graphmill.runtime.checks as checks\n"
        "checks.examine = lambda **_: os.kill(os.getpid(), signal.SIGINT)\nfrom graphmill.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=source_environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def on_a_terminal(environ: dict[str, str], words: list[str], *, columns: int) -> str:
    """A real terminal: a pseudo-terminal pair, and what the program writes into it."""
    import os
    import pty
    import subprocess
    import sys

    leader, follower = pty.openpty()
    program = f"import sys; sys.argv = {['graphmill', *words]}; from graphmill.cli import main; main()"
    environ = {**environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=follower, stderr=follower)
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:  # the other side is closed
        pass
    os.close(leader)
    assert process.wait(HANG_S) == 0
    return shown.decode()


def test_tables_are_drawn_on_a_terminal(source_environ):
    shown = on_a_terminal(source_environ, ["recipes"], columns=120)
    assert "─" in shown
    assert "Recipes in" in shown


@pytest.mark.parametrize("columns", [80, 140])
def test_a_comparison_fits_the_terminal(graphmill, source_environ, new_run, columns):
    for seed in (1, 2):
        finished(new_run, seed, 0.8 + seed / 100)
    words = ["compare", "--by", "train.sync.scheme,train.sync.every"]
    shown = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(source_environ, words, columns=columns))
    assert max(len(line) for line in shown.splitlines()) <= columns
    assert ("0.8150 ± 0.0071" in shown) == (columns == 140)


@pytest.mark.parametrize("words", [["plan", "toy.yaml"], ["datasets"], ["study", "list"]])
def test_a_closed_pipe_is_no_traceback(toy, source_environ, tmp_path, words):
    import subprocess
    import sys

    program = f"import sys; sys.argv = ['graphmill', *{words!r}]; from graphmill.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=source_environ,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    err = process.stderr.read().decode()
    process.wait(HANG_S)
    assert "Traceback" not in err
