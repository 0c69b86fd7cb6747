"""Bar 7: jobs that asked for too much of one thing. The epilog names it, with numbers that match Slurm's own."""

import json
import shlex
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S

from graphmill.record.run_folder import RunFolder

USE = Path(__file__).parents[1] / "programs" / "use.py"
SECONDS = 40  # long enough for whole seconds, and Slurm's sampling every 2 s, to be small

JOBS = {
    "memory": (["--mem=3000M", "--cpus-per-task=1", "--time=2"], ["--mib=700"]),
    "cores": (["--mem=300M", "--cpus-per-task=2", "--time=2"], ["--cores=1"]),
    "time": (["--mem=300M", "--cpus-per-task=1", "--time=60"], []),
}


def submit(cluster, folder: RunFolder, asked: list[str], use: list[str]) -> str:
    python, run = shlex.quote(sys.executable), shlex.quote(str(folder.path))
    script = folder.path / "test.sbatch"
    script.write_text(
        "#!/bin/bash\n"
        "export RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1\n"
        f"srun {python} {shlex.quote(str(USE))} {run} --seconds {SECONDS} {shlex.join(use)}\n"
        f"{python} -m graphmill.diagnose.epilog {run}\n"
    )
    done = cluster.run(
        "sbatch", "--parsable", "--ntasks=1", *asked, f"--output={folder.path}/job.out", script, cwd=folder.path
    )
    assert done.code == 0, done.err
    return done.out.strip()


def wait_for_the_end(cluster, folder: RunFolder, job_id: str) -> None:
    give_up = time.monotonic() + HANG_S
    while True:
        state = cluster.run("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T", cwd=folder.path).out.strip()
        if state == "COMPLETED":
            return
        assert state in ("PENDING", "RUNNING", "COMPLETING"), (folder.path / "job.out").read_text()
        assert time.monotonic() < give_up
        time.sleep(0.5)


@pytest.mark.slow
def test_the_epilog_names_what_a_job_asked_too_much_of_and_its_numbers_are_those_of_slurm(cluster, new_run):
    folders = {name: new_run(ranks=1, run_id=name)[0] for name in JOBS}
    ids = {name: submit(cluster, folders[name], *JOBS[name]) for name in JOBS}
    for name, folder in folders.items():
        wait_for_the_end(cluster, folder, ids[name])
        inside = json.loads(folder.epilog_path.read_text())
        again = cluster.run(
            sys.executable, "-m", "graphmill.diagnose.epilog", folder.path, "--job", ids[name], cwd=folder.path
        )
        later = json.loads(folder.epilog_path.read_text())
        print(f"\n{(folder.path / 'job.out').read_text()}\n{again.out}")
        assert later["state"] == "COMPLETED"
        spent = later["accounted"]
        for epilog in (inside, later):
            used = epilog["used"]
            assert [advice["resource"] for advice in epilog["advice"]] == [name]
            assert used["time_s"] == pytest.approx(spent["time_s"], rel=0.1)
            # In the other jobs it is next to nothing, and the interpreters' start is all of it.
            own = {"memory": "max_rss_mib", "cores": "cpu_s", "time": "time_s"}[name]
            assert used[own] == pytest.approx(spent[own], rel=0.1)
        assert folder.sacct_summary_path.read_text().count(ids[name]) >= 2
    check_advice(folders)


def check_advice(folders: dict[str, RunFolder]) -> None:
    """Asked, used, suggested."""
    found = {name: json.loads(folder.epilog_path.read_text())["advice"][0] for name, folder in folders.items()}
    assert (found["memory"]["asked"], found["memory"]["suggested"]) == (3000, 1024)
    assert 700 < found["memory"]["used"] < 780
    assert (found["cores"]["asked"], found["cores"]["suggested"]) == (2, 1)
    assert (found["time"]["asked"], found["time"]["suggested"]) == (3600, 300)
