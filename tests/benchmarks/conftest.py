"""Benchmarks at tiny sizes: each as the program that it is, with results and graphs in a folder of the test's own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Bench = Callable[..., dict]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def bench(source_environ: dict[str, str], tmp_path: Path, results: Path) -> Bench:
    """Run `python benchmarks/NAME.py WORDS` and return the entries of its result file, each with its origin."""

    def run(name: str, *words: str, status: int = 0) -> dict:
        environ = {
            **source_environ,
            "GRAPHMILL_BENCHMARK_RESULTS": str(results),
            "GRAPHMILL_BENCHMARK_CACHE": str(tmp_path / "cache"),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *words]
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        entries = json.loads((results / f"{name}.json").read_text())["entries"]
        assert all(has_origin(entry) for entry in entries.values())
        return entries

    return run


@pytest.fixture
def graphmill_train(source_environ: dict[str, str], tmp_path: Path) -> Callable[..., None]:
    """Run `graphmill WORDS` in the test's folder, where `bench` runs too."""

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "graphmill.cli", *words]
        subprocess.run(command, env=source_environ, cwd=tmp_path, capture_output=True, check=True)

    return run


def has_origin(entry: dict) -> bool:
    """Whether an entry says where it comes from, in full, and names no folder of this machine."""
    origin = entry["origin"]
    processor, code = origin["processor"], origin["code"]
    known = origin["time_utc"] and origin["argv"] and code["checksum"] and code["isa"] and processor["num_cores"]
    return bool(known) and str(ROOT) not in json.dumps(entry)
