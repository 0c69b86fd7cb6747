"""What `benchmarks/unchanged.py` calls equal, different and explained."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MACHINE = {"cpu_model": "c", "torch": "2", "numpy": "2", "native_isa": "avx2", "torch_isa": "AVX2", "commit": "0" * 40}
RUN = "cora-sage/2-ranks/local_sgd"
OUTCOME = {"status": "done", "wall_s": 3.0, "best": {"step": 8, "epoch": 2}, "test": {"micro_f1": 0.5}}


@pytest.fixture
def reading(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import unchanged_reading

    return unchanged_reading


def a_run(folder: Path, *, table: str) -> Path:
    """A run folder of two checkpoints, the first of which is the best."""
    for step in (8, 12):
        checkpoint = folder / "checkpoints" / f"step_{step:010d}"
        checkpoint.mkdir(parents=True)
        save_file({"w": np.full((2, 2), step, np.float32)}, checkpoint / "model.safetensors")
        save_file({"moment": np.zeros(2, np.float32)}, checkpoint / "rank_0.safetensors")
    (folder / "metrics.csv").write_text(table)
    (folder / "outcome.json").write_text(json.dumps(OUTCOME))
    return folder


@pytest.fixture
def record(tmp_path, reading):
    run = a_run(tmp_path / "run", table="epoch,val_micro_f1,measured_mib_epoch,train_s\n1,0.25,1.5,9\n")
    return {"provenance": MACHINE, "runs": {RUN: reading.read_run(run)}}


def compare(folder: Path, base: dict, new: dict, explained: dict | None = None) -> tuple[int, str]:
    """Exit status, and what was printed."""
    files = {"base": base, "new": new, "explained": explained or {}}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    paths = [str(folder / f"{name}.json") for name in files]
    command = [sys.executable, str(BENCHMARKS / "unchanged.py"), "compare", *paths[:2], "--explained", paths[2]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_final_and_best_weights_are_found(tmp_path, reading):
    run = reading.read_run(a_run(tmp_path / "run", table="epoch\n1\n"))
    assert run["final"] != run["best"]
    assert (run["final_file"], run["best_file"]) == tuple(
        f"checkpoints/step_{n:010d}/model.safetensors" for n in (12, 8)
    )


def test_what_a_run_computed_is_compared_and_its_time_is_not(reading, record):
    found = reading.measures(record["runs"][RUN])
    assert set(found) >= {"val_micro_f1", "measured_mib_epoch", "test_micro_f1", "best_epoch"}
    assert "train_s" not in found


def test_equal_records_exit_with_0_and_a_changed_value_with_1(tmp_path, record):
    new = copy.deepcopy(record)
    new["runs"][RUN]["rows"]["metrics"][0]["train_s"] = "10"
    assert compare(tmp_path, record, new)[0] == 0
    new["runs"][RUN]["rows"]["metrics"][0]["val_micro_f1"] = "0.2500001"
    status, printed = compare(tmp_path, record, new)
    assert status == 1
    assert "metric:val_micro_f1" in printed
    assert "weights" not in printed


def test_a_renamed_tensor_is_equal_and_a_changed_one_is_not(tmp_path, record):
    new = copy.deepcopy(record)
    new["runs"][RUN]["final"] = {"model.w": new["runs"][RUN]["final"]["w"]}
    assert compare(tmp_path, record, new)[0] == 0
    new["runs"][RUN]["final"]["model.w"]["sha256"] = "0" * 64
    assert compare(tmp_path, record, new)[0] == 1


def test_a_missing_run_and_a_missing_column_are_differences(tmp_path, record):
    assert compare(tmp_path, record, record | {"runs": {}})[0] == 1
    new = copy.deepcopy(record)
    del new["runs"][RUN]["rows"]["metrics"][0]["val_micro_f1"]
    assert compare(tmp_path, record, new)[0] == 1


def test_an_explanation_covers_what_it_names_and_is_printed(tmp_path, record):
    new = copy.deepcopy(record)
    new["runs"][RUN]["final"]["w"]["sha256"] = "0" * 64
    status, printed = compare(tmp_path, record, new, {"cora-sage/*#weights": "a wanted change"})
    assert status == 0
    assert "a wanted change" in printed
    assert compare(tmp_path, record, new, {"cora-sage/*#best": "another"})[0] == 1


def test_records_of_two_instruction_sets_are_refused(tmp_path, record):
    new = record | {"provenance": MACHINE | {"native_isa": "avx512"}}
    assert compare(tmp_path, record, new)[0] == 2
