"""The GPU kernels of attention compile without a GPU, hold no atomics, and pass the gate behind ptxas."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent
TOOLS = HERE.parents[2] / "tools"


def gated(environ: dict[str, str], folder: Path, variants: str, *arguments: str) -> list[dict]:
    """What `kernel_checks ptxas` says of each variant."""
    environ = {**environ, "TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(TOOLS)}
    place = f"{HERE / 'attention_variants.py'}:{variants}"
    done = subprocess.run(
        [sys.executable, "-m", "kernel_checks", "ptxas", place, "--json", folder / "found", "--jobs", "2", *arguments],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "found").read_text())


def assert_sound(found: list[dict]) -> None:
    for each in found:
        assert (each["stack"], each["local_loads"], each["local_stores"], each["atomics"]) == (0, 0, 0, 0), each


def test_both_forms_behind_ptxas(source_environ, tmp_path):
    """All kernels, both forms, three architectures; the command refuses what is beyond the limits."""
    found = gated(source_environ, tmp_path, "some")
    assert_sound(found)
    assert {each["capability"] for each in found} == {80, 90, 100}
    assert {each["function"] for each in found} == {
        "attention_forward", "attention_weights", "attention_backward_targets", "attention_backward_sources",
        "attention_backward_weights", "attention_backward_features", "join_softmax", "join_sums",
    }  # fmt: skip


@pytest.mark.slow
def test_every_size_and_format_behind_ptxas(source_environ, tmp_path):
    found = gated(source_environ, tmp_path, "every")
    assert_sound(found)
    assert len(found) >= 200


@pytest.mark.slow
def test_ordinary_sizes_keep_an_h100_busy_by_the_model(source_environ, tmp_path):
    """18 kB under way an SM; but of three heads of GAT, a quarter of a tile's lanes masked, 13 kB."""
    for each in gated(source_environ, tmp_path, "ordinary"):
        least = 13_000 if each["name"].startswith("gat 3x15x5") else 18_000
        assert each["model"]["in_flight"] >= least, each
