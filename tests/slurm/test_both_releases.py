"""What Slurm 22.05 and 24.11 answer reads the same: the queue, the accounts, hosts and partitions, refusals."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "read_back.py"


def read_back(here: Path, *options: str) -> dict[str, Any]:
    here.mkdir()
    start = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--hosts=2", *options]
    done = subprocess.run(
        [*start, "--", sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HERE": str(here)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_what_both_releases_answer_reads_the_same(trixie, tmp_path):
    own, other = read_back(tmp_path / "own"), read_back(tmp_path / "other", "--release=trixie")
    assert other.pop("version") == trixie.split()[-1]
    own.pop("version")
    assert other == own
    states = {job["job_id"]: job["state"] for job in own["sacct"]}
    named = {name: states.get(job) for name, job in own["jobs"].items()}
    assert (named["done"], named["failed"], named["killed"]) == ("COMPLETED", "FAILED", "FAILED")
    assert (named["cancelled"], named["requeued"]) == ("CANCELLED", "COMPLETED")
    assert [job["state"] for job in own["squeue"]] == ["PENDING", "RUNNING", "PENDING"]
    assert all(own["refused"])
    assert not own["accepted"]
