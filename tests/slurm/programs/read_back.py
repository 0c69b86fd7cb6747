"""Jobs that end in different ways on this cluster of two hosts, as the readers of Slurm's answers see them: as JSON."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphmill.base.errors import UserError
from graphmill.slurm.accounting import all_runs, ask_for_rows, sacct
from graphmill.slurm.commands import call, sbatch_test_only, scancel, scontrol, squeue
from graphmill.slurm.configuration import read_cluster
from graphmill.slurm.hostlist import expand_hostlist
from graphmill.slurm.job import kill_wait_s

ENDING = {
    "done": ["--nodes=2", "--wrap=srun true"],
    "failed": ["--wrap=exit 3"],
    "failed in a step": ["--nodes=2", "--wrap=srun --ntasks=2 sh -c 'exit $SLURM_PROCID'"],
    "killed": ["--wrap=kill -TERM $$"],
    "gpus": ["--gres=gpu:v100:1", "--cpus-per-task=2", "--mem=1000M", "--wrap=true"],
    "array": ["--array=1-2", "--wrap=true"],
    "requeued": ['--wrap=[ -n "${SLURM_RESTART_COUNT:-}" ] || { touch "$HERE/began"; exec sleep 300; }'],
    "cancelled": ["--hold", "--wrap=true"],
}  # fmt: skip
STAYING = {
    "held": ["--hold", "--nodes=2", "--time=90", "--wrap=true"],
    "running": ["--nodes=2", "--time=2:00:00", "--partition=preempt", "--wrap=sleep 300"],
    "after it": ["--dependency=afterany:{running}", "--wrap=true"],
}
KEPT = ("job_id", "state", "reason", "limit_s", "num_hosts", "hosts", "slurm_partition", "command")
ENDED = ("job_id", "state", "exit_code", "signal", "limit_s", "num_hosts", "hosts")
RUN = ("job_id", "state", "asked")
STATES = ("COMPLETED", "FAILED", "CANCELLED", "REQUEUED")


HERE = Path(os.environ.setdefault("HERE", tempfile.mkdtemp()))


def submit(options: list[str]) -> str:
    words = ["sbatch", "--parsable", "--output=/dev/null", "--job-name=a|b", "--requeue", *options]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    jobs: dict[str, str] = {}
    for name, options in ENDING.items():
        jobs[name] = submit(options)
        if name == "requeued":
            wait((HERE / "began").exists, "it to run")
            time.sleep(1)
            scontrol(["requeue", jobs[name]])
    scancel([jobs["cancelled"]])
    ids = [jobs[name] for name in ENDING]
    wait(lambda: [job.state for job in accounted(ids)].count("COMPLETED") == 5, "the accounts of what has ended")
    wait(lambda: all(job.state in STATES for job in accounted(ids)), "the accounts of what has ended")
    for name, options in STAYING.items():
        jobs[name] = submit([option.format(**jobs) for option in options])
    waiting = [jobs[name] for name in STAYING]
    wait(lambda: [job.state for job in squeue([jobs["running"]])] == ["RUNNING"], "a job to run")
    wait(lambda: all(job.reason for job in squeue(waiting)), "the reasons")
    rows = ask_for_rows(ids, patience_s=20)
    cluster = read_cluster()
    document = {
        "jobs": jobs,
        "squeue": [chosen(job, KEPT) for job in sorted(squeue(waiting), key=lambda job: job.job_id)],
        "times": [[job.submitted is not None, job.start is not None, job.end is not None] for job in squeue(waiting)],
        "sacct": [chosen(job, ENDED) for job in accounted(ids)],
        "runs": sorted((chosen(run, RUN) for run in all_runs(rows) if run.state != "CANCELLED"), key=str),
        "steps": sorted([row["JobID"], row["State"], row["ExitCode"], row["NTasks"]] for row in rows),
        "kill_wait_s": kill_wait_s(),
        "cluster": {**asdict(cluster), "settings": {}},
        "enforces": cluster.enforces,
        "refused": [refusal("--partition=none"), refusal("--nodes=9"), refusal("--gres=gpu:a100:1")],
        "accepted": refusal("--nodes=2"),
    }
    version = call("sinfo", ["--version"])[0].split()[-1]
    sys.stdout.write(json.dumps({"version": version, **document}, default=sorted) + "\n")


def accounted(ids: list[str]) -> list[Any]:
    return sorted(sacct(ids), key=lambda job: (job.job_id, job.submitted, job.start or 0, job.state))


def chosen(found: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Which of the hosts a job gets is chance, how many is not."""
    row = {name: asdict(found)[name] for name in names}
    return row | ({"hosts": len(expand_hostlist(row["hosts"]))} if "hosts" in row else {})


def refusal(option: str) -> str:
    """The kind of error; nothing if the job would be taken."""
    try:
        sbatch_test_only("#!/bin/sh\ntrue\n", options=[option])
    except UserError as error:
        return type(error).__name__
    return ""


def wait(holds: Any, what: str) -> None:
    give_up = time.monotonic() + 120
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(what)
        time.sleep(0.3)


if __name__ == "__main__":
    main()
