"""`verify` of jobs that a real Slurm ran."""

import json
import sys
from pathlib import Path

import pytest

from graphmill.record.run_folder import RunFolder


@pytest.fixture
def submitted(cluster, toy, tmp_path):
    """Submits the toy; returns the job's id."""

    def submit(run_id: str, *options: str) -> str:
        done = cluster.graphmill("submit", toy, "--run-id", run_id, "--json", *options, cwd=tmp_path)
        assert done.code == 0, done.err
        return json.loads(done.out)["job_id"]

    return submit


def checks_of(answer) -> dict[tuple[str, str], tuple[str, str]]:
    """(group, check) → (result, detail)."""
    checks = json.loads(answer.out)["runs"][0]["checks"]
    return {(check["group"], check["name"]): (check["result"], check["detail"]) for check in checks}


def test_a_job_on_two_hosts_is_true_to_its_plan(cluster, submitted, tmp_path):
    job_id = submitted("good", "--hosts", "2")
    assert cluster.wait_for(tmp_path, "good", "done")
    answer = cluster.graphmill("verify", "good", "--json", cwd=tmp_path)
    found = checks_of(answer)
    assert answer.code == 0, found
    assert {group for group, _ in found} == {"files", "job", "metrics", "distributed", "data", "checkpoints"}
    assert found["job", "state"] == ("ok", f"COMPLETED (job {job_id}, by sacct)")
    assert found["job", "hosts"][1].startswith("2: ")
    assert " of a limit of 0:10:00" in found["job", "elapsed"][1]
    assert found["distributed", "hosts"][1].startswith("2 hosts: ")
    folder = RunFolder(tmp_path / "logs" / "good")

    by_job = cluster.graphmill("verify", job_id, cwd=tmp_path)
    assert by_job.code == 0, by_job.out
    from_elsewhere = cluster.graphmill("verify", job_id, cwd=Path("/"))
    assert from_elsewhere.code == 0, from_elsewhere.out + from_elsewhere.err
    assert str(folder.path) in from_elsewhere.out

    # In the job the accounting may have lagged; now it does not.
    again = cluster.run(sys.executable, "-m", "graphmill.diagnose.epilog", str(folder.path), cwd=tmp_path)
    assert again.code == 0, again.err
    here = cluster.graphmill("verify", "good", "--json", cwd=tmp_path, PATH="/nowhere")
    assert here.code == 0, here.out
    assert "sacct.json; sacct is not on PATH" in checks_of(here)["job", "state"][1]

    folder.sacct_summary_path.unlink()
    assert cluster.graphmill("verify", "good", cwd=tmp_path).code == 1


@pytest.mark.slow
def test_a_cancelled_job_is_not(cluster, submitted, tmp_path):
    job_id = submitted("cancelled", "-O", "train.epochs=2000")
    assert cluster.wait_for(tmp_path, "cancelled", "training", "running")
    assert cluster.run("scancel", job_id, cwd=tmp_path).code == 0
    assert cluster.wait_for(tmp_path, "cancelled", "stopped", "failed", "out_of_time")
    answer = cluster.graphmill("verify", job_id, "--json", cwd=tmp_path)
    found = checks_of(answer)
    assert answer.code == 1
    assert found["job", "state"][0] == "fail"
    assert found["job", "state"][1].startswith("CANCELLED: ")
    name = "epochs" if ("metrics", "epochs") in found else "table"  # it may have been cancelled before there is one
    assert found["metrics", name][0] == "unfinished"
