"""`graphmill.submit(...).wait()` on a real Slurm, in a script of the user's."""

import json
import sys

import pytest

SCRIPT = """
import json, graphmill
job = graphmill.submit("toy.yaml", {"slurm.time": 5}, ranks=2, run_id="mine", epochs=1)
run = job.wait(interval_s=1)
again = graphmill.submit(run, resume=True)
assert again.wait() == run
print(json.dumps([job.id, str(job.path), run.summary["status"], run.metrics.height]))
"""
FAILS = """
import graphmill
try:
    graphmill.submit("toy.yaml", run_id="fails", lr=1e38).wait(interval_s=1)
except graphmill.EndedError as error:
    print(error.exit_status, error)
try:
    graphmill.submit("toy.yaml", {"slurm.hosts": 1000})
except graphmill.UserError as error:
    print(error)
"""


def test_a_job_is_submitted_and_waited_for(cluster, toy, tmp_path):
    done = cluster.run(sys.executable, "-c", SCRIPT, cwd=tmp_path)
    assert done.code == 0, done.err
    job, path, status, epochs = json.loads(done.out)
    assert (path, status, epochs) == (str(tmp_path / "logs/mine"), "done", 1)
    (noted,) = (tmp_path / "logs/mine/jobs.jsonl").read_text().splitlines()
    assert json.loads(noted)["job_id"] == job
    assert f"mine  job {job}  done" in done.err, "what `graphmill watch` prints"
    assert "mine is done already" in done.err
    assert cluster.graphmill("verify", "mine", cwd=tmp_path).code == 0
    said = cluster.graphmill("submit", toy, "--ranks", "2", "--epochs", "1", "--dry-run", "--json", cwd=tmp_path)
    plan = {**json.loads(said.out)["plan"], "run_id": "mine"}
    assert json.loads((tmp_path / "logs/mine/plan.json").read_text()) == plan


@pytest.mark.slow
def test_a_job_that_fails_is_an_exception(cluster, toy, tmp_path):
    done = cluster.run(sys.executable, "-c", FAILS, cwd=tmp_path)
    assert done.code == 0, done.err
    first, *rest = done.out.splitlines()
    assert first.startswith(f"1 {tmp_path}/logs/fails is ") or first.startswith(f"2 {tmp_path}/logs/fails is ")
    assert any("1000" in line for line in rest)
    assert not (tmp_path / "logs/toy").exists()
