"""Staging as a step of a job: once per host, onto each host's own disk, found again, never read when damaged."""

import shlex
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S

from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import read_staged
from graphmill.tasks.node_classification.page import GraphDatasetSpec

RANK = """
import os, sys
from pathlib import Path
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import staged_store_path
folder = RunFolder.open(Path(sys.argv[1]))
path = staged_store_path(folder.read_plan(), os.environ, folder)
print("reads", LabelledGraphStore.open(path or Path(folder.read_plan().dataset.path)).path, flush=True)
"""
STEP = "srun --nodes=2 --ntasks-per-node=1"


@pytest.fixture
def job(cluster, tmp_path: Path, make_plan):
    """Runs lines of a script on two hosts; returns its state at the end and what it printed."""
    data = Path(cluster.environ["GRAPHMILL_DATA_ROOT"]) / "synthetic" / "sbm"
    if not data.exists():
        (data,) = [path.parent for path in Path(cluster.environ["GRAPHMILL_DATA_ROOT"]).rglob("metadata.json")]
    from graphmill.tasks.node_classification.data.store import LabelledGraphStore

    plan = make_plan()
    task = plan.task.model_copy(update={"dataset": LabelledGraphStore.open(data).info(GraphDatasetSpec())})
    folder = RunFolder.create(plan.model_copy(update={"task": task}), tmp_path / "logs")
    (tmp_path / "rank.py").write_text(RANK)
    names = {"python": sys.executable, "run": str(folder.path), "rank": str(tmp_path / "rank.py")}
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in names.items())

    def run(text: str):
        script = tmp_path / "job.sbatch"
        script.write_text(f"#!/bin/bash\nset -e\n{head}export GRAPHMILL_STAGED_ROOT=$SLURM_TMPDIR/graphmill\n{text}")
        options = ["--parsable", "--nodes=2", "--ntasks-per-node=1", f"--output={tmp_path}/out", "--open-mode=append"]
        number = cluster.run("sbatch", *options, script, cwd=tmp_path).out.strip()
        state, give_up = "PENDING", time.monotonic() + HANG_S
        while state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            assert time.monotonic() < give_up
            time.sleep(0.2)
            state = cluster.run("squeue", "-h", "-t", "all", "-j", number, "-o", "%T", cwd=tmp_path).out.strip()
        return state, (tmp_path / "out").read_text()

    return folder, run


@pytest.mark.slow
def test_each_host_has_its_copy_and_a_damaged_one_is_not_read(job):
    folder, run = job
    stage = f'{STEP} "$python" -m graphmill.cluster.staging.stage "$run"\n'
    read = f'{STEP} "$python" "$rank" "$run"\n'
    # A copy of another test may lie there, too: those of labels alone have the same name and a suffix.
    damage = (
        "srun --nodes=2 --ntasks-per-node=1 sh -c 'for y in $SLURM_TMPDIR/graphmill/*/y.npy; do printf x >>$y; done'\n"
    )
    state, text = run(stage + read + stage)
    assert state == "COMPLETED", text
    assert [host.outcome for host in read_staged(folder)] == ["reused", "reused"]
    assert len({host.hostname for host in read_staged(folder)}) == 2
    assert text.count("reads /run/local/graphmill/") == 2
    state, text = run(stage + damage + read)
    assert state == "FAILED"
    assert "was changed after it was verified" in text
    state, text = run(stage + damage + stage + read)
    assert state == "COMPLETED", text
    assert [host.outcome for host in read_staged(folder)] == ["copied", "copied"]


@pytest.mark.slow
def test_a_host_without_room_fails_the_job_or_reads_the_shared_copy(job):
    folder, run = job
    fill = f"{STEP} sh -c 'rm -rf $SLURM_TMPDIR/graphmill; fallocate -l $(df --output=avail -B1 $SLURM_TMPDIR"
    fill += " | tail -1) $SLURM_TMPDIR/full'\n"
    stage = f'{STEP} "$python" -m graphmill.cluster.staging.stage "$run"'
    state, text = run(f"{fill}{stage}\n")
    assert state == "FAILED"
    assert "MiB free" in text
    empty = f"{STEP} rm $SLURM_TMPDIR/full\n"  # other tests stage to the same disk
    state, text = run(f'{stage} --on-failure=use_shared\n{STEP} "$python" "$rank" "$run"\n{empty}')
    assert state == "COMPLETED", text
    assert [host.outcome for host in read_staged(folder)] == ["use_shared", "use_shared"]
    assert text.count("warning: what runs on host") == 2
