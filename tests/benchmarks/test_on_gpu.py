"""What runs on a GPU host in nine minutes was rehearsed: a typo there costs as much as a measurement."""

import subprocess
import sys

import pytest

import on_gpu
from gpu_epochs import covered


@pytest.mark.slow
def test_a_part_proves_at_small_sizes(bench):
    """The device's stand-ins give the CPU's batches to the bit; losses are the same."""
    pytest.importorskip("torch_geometric")
    equality = bench("on_gpu", "--rehearse", "--parts", "equality")["equality"]["result"]
    assert equality["rehearsal"]
    assert equality["batches"] > 4
    assert [equality[way] for way in ("copied", "drawn on the device", "drawn, rows in two places")] == [True] * 3
    assert [equality[f"exact, {where}"] for where in ("on the device", "in two places")] == [True] * 2
    assert equality["losses"]["cpu"] == equality["losses"]["device"]
    assert len(equality["losses"]["cpu"]) > 2


@pytest.mark.slow
def test_parts_measure_at_small_sizes(bench):
    pytest.importorskip("torch_geometric")
    entries = bench("on_gpu", "--rehearse", "--parts", "step", "products")
    step = entries["step"]["result"]
    assert {"sampling, device", "gather, device", "PyG's step, batch at hand (CSR)"} <= set(step["seconds"])
    epochs = entries["products"]["result"]
    assert epochs["loaders of the device"]["steps"] == epochs["loaders of the CPU"]["steps"] > 4
    assert epochs["loaders of the device"]["draws"]["asked"] == "measured"
    for share in ("share_in_steps", "share_in_kernels"):
        assert all(0 < epochs[f"loaders of the {name}"][share] <= 1 for name in ("device", "CPU"))


def test_a_device_is_busy_while_any_kernel_runs():
    assert covered([(5, 6), (0, 2), (1, 3), (1, 2)]) == pytest.approx(4 / 6)
    with pytest.raises(ValueError, match="no kernel"):
        covered([])


@pytest.mark.slow
def test_the_whole_rehearsal(bench):
    pytest.importorskip("torch_geometric")
    entries = bench("on_gpu", "--rehearse")
    assert list(entries) == [part.name for part in on_gpu.PARTS]
    assert not [name for name, entry in entries.items() if "failed" in entry["result"]]
    assert entries["resume"]["result"]["equal"]


def test_all_parts_together_are_less_than_nine_minutes():
    assert on_gpu.TOTAL_S < 540


@pytest.mark.parametrize(
    ("program", "limit_s", "problem"),
    [
        ("import time; time.sleep(600)", 0.5, "ended after its limit"),
        ("import os; os.kill(os.getpid(), 9)", 60, "it ended with -9"),
        ("print('nothing')", 60, "it wrote nothing"),
    ],
)
def test_a_part_that_fails_costs_itself_alone(monkeypatch, program, limit_s, problem):
    start = subprocess.Popen

    def instead(command, **options):
        del command
        return start([sys.executable, "-c", f"print('seen', flush=True); {program}"], **options)

    monkeypatch.setattr(on_gpu.subprocess, "Popen", instead)
    found = on_gpu.run_part("facts", limit_s, rehearse=True)
    assert problem in found["failed"]
    assert "seen" in found["log"] or limit_s < 1


def test_what_has_no_time_left_is_not_begun_and_said(monkeypatch):
    written = {}
    monkeypatch.setattr("entries.write_entries", lambda _, entries: written.update(entries))
    monkeypatch.setattr(on_gpu, "TOTAL_S", on_gpu.LEAST_S - 1)
    with pytest.raises(SystemExit, match="failed: facts, step"):
        on_gpu.run_parts([part for part in on_gpu.PARTS if part.name in ("facts", "step")], rehearse=False)
    assert [result["failed"][:9] for _, result in written.values()] == ["not begun"] * 2
