"""Preemption and its neighbours: short runs whose job is taken away at a random moment, and what became of them.

    python benchmarks/preemption.py [--trials 20] [--only KIND …] [--clusters 3] [--away 60] [--work DIR] [--again]

On dev clusters of two hosts, which share out the trials (SUSPEND needs one of its own); every run has one of the hosts.
A trial is as promised where the run was done by itself and its last checkpoint is that of an undisturbed run, bit for
bit; or, where a person cancelled the job, where nothing followed until `graphmill submit --resume`. In every case: no
run is left behind, no job is left over, and no job was submitted twice for one predecessor. Every trial is a line of
DIR/trials.jsonl; a benchmark that was stopped goes on where it was.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from graphmill.verify.run import verify_run
from graphmill_devcluster import build, daemons, hosts
from graphmill_devcluster.description import Description
from harness import Ledger, print_table, write_result
from slurm_runs import Run, append, claim, freeze, in_cluster, rows_of, state_of, wait_until

EXPERIMENT = """name: preemption
dataset: {name: synthetic/sbm}
model: {hidden_channels: 32}
train:
  {batch_size: 50, num_neighbors: [5, 5], threads: 1, device: cpu, evaluate_every_epochs: 12,
   checkpoint: {every_steps: 50}}
slurm: {site: devcluster, hosts: 1, time: 60, mem: 1000M, slurm_partition: preempt}
"""
SIZES = {"num_nodes": 1500, "num_edges": 6000, "features": 16}
EARLIEST, LATEST = 40, 250  # steps done when the job is taken away
LIMIT_S = 15  # from then to the limit that the controller misses; a run of LONG epochs takes longer
LONG = 240
OVER_S = 1800.0
SUSPENDED_S = 5


@dataclass(frozen=True)
class Trial:
    """One run, and what is around it."""

    run: Run
    cluster: Description
    away_s: float  # the controller


def slurm(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def running(run: Run) -> str:
    """Its job that runs; the last of its jobs may only wait for the end of that."""
    return run.folder.attempts()[-1].job_id


def take_hosts(trial: Trial) -> None:
    everywhere = [f"--nodes={len(trial.cluster.hosts)}", "--exclusive", "--partition=normal", "--output=/dev/null"]
    slurm("sbatch", *everywhere, "--mem=1000M", f"--wrap=sleep {SUSPENDED_S}")


def kill_driver(trial: Trial) -> None:
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(trial.run.folder.path) in words and "graphmill.cluster.jobs.in_job" in words:
            process.kill()


def power_off(trial: Trial) -> None:
    """Nobody tells Slurm, which gives the host up after SlurmdTimeout."""
    name = slurm("squeue", "--noheader", f"--jobs={running(trial.run)}", "--format=%N").strip()
    hosts.crash(trial.cluster.host(name))


def cancel(trial: Trial) -> None:
    slurm("scancel", running(trial.run))


def lose_controller(trial: Trial) -> None:
    """Away when the ranks leave because of the limit, and for a while after it."""
    job = running(trial.run)
    slurm("scontrol", "update", f"jobid={job}", f"endtime=now+{LIMIT_S}seconds")
    slurm("scancel", "--signal=USR2", job)
    time.sleep(3)  # the ranks ask for the new limit after the round that they are in
    daemons.stop("slurmctld")
    time.sleep(trial.away_s)
    daemons.start_slurmctld()
    wait_until(lambda: state_of(job) != "" and state_of(job) != "RUNNING", "the job to leave", 300)
    if trial.run.status() != "done" and job == trial.run.jobs[-1]:  # requeued, it keeps the shortened limit
        wait_until(lambda: state_of(job) == "PENDING", "the job to wait again", 300)
        slurm("scontrol", "update", f"jobid={job}", "timelimit=60")


@dataclass(frozen=True)
class Kind:
    """How a job is taken away, and what is promised."""

    words: str
    strike: Callable[[Trial], None]
    way: str = "resubmit"  # slurm.on_time_limit
    mode: str = "cancel"  # PreemptMode of the slurm_partition
    grace_s: int = 0
    goes_on: str = "itself"  # "itself" | "again": by another attempt in any case | "unharmed" | "resume"
    epochs: int = 24


KINDS = {
    "cancel": Kind("preempted, PreemptMode=CANCEL", take_hosts),
    "cancel_grace": Kind("the same, GraceTime 10 s", take_hosts, grace_s=10),
    "cancel_requeue": Kind("PreemptMode=CANCEL, on_time_limit: requeue", take_hosts, way="requeue"),
    "requeue": Kind("preempted, PreemptMode=REQUEUE", take_hosts, way="requeue", mode="requeue"),
    "suspend": Kind("preempted, PreemptMode=SUSPEND", take_hosts, mode="suspend", goes_on="unharmed"),
    "driver": Kind("the job's driver SIGKILLed", kill_driver),
    "power": Kind("host powered off with the driver", power_off),
    "scancel": Kind("scancel by a person", cancel, goes_on="resume"),
    "controller": Kind("controller away at the limit", lose_controller, way="requeue", goes_on="again", epochs=LONG),
    "controller_resubmit": Kind("the same, on_time_limit: resubmit", lose_controller, goes_on="again", epochs=LONG),
}


# --- inside a cluster


def inside(options: argparse.Namespace) -> None:
    work, cluster = Path(options.work), Description.of_this_cluster()
    expected = {epochs: undisturbed(work, epochs) for epochs in {KINDS[name].epochs for name in options.only}}
    for number in range(options.trials):
        for name in options.only:
            trial = f"{name}-{number}"
            done = {row["trial"] for row in rows_of(work / "trials.jsonl")}
            if trial in done or not claim(work / "claims", trial):
                continue
            began = time.time()
            try:
                row = one(KINDS[name], trial, work, cluster, expected[KINDS[name].epochs], options.away)
            except Exception as error:  # noqa: BLE001  # one trial must not end the others
                row = {"problems": [f"{type(error).__name__}: {error}"]}
            row = {"trial": trial, "kind": name, "took_s": round(time.time() - began, 1), **row}
            append(work / "trials.jsonl", row)
            print(f"{trial}: {'; '.join(row['problems']) or 'as promised'} ({row['took_s']} s)", flush=True)
            settle(cluster)


def undisturbed(work: Path, epochs: int) -> dict[str, str]:
    """The digests of a run that is left alone; the first cluster makes it, the others wait."""
    from graphmill.record.run_folder import RunFolder

    name = f"undisturbed-{epochs}"
    run = Run(RunFolder(work / "logs" / name), num_ranks=1)
    if claim(work / "claims", name) and (not run.folder.path.exists() or run.status() != "done"):
        shutil.rmtree(run.folder.path, ignore_errors=True)
        submit(work, name, "stop", epochs)
    wait_until(lambda: run.folder.path.exists() and run.status() == "done", "the undisturbed run", OVER_S)
    return run.digests()


def submit(work: Path, name: str, way: str, epochs: int) -> Run:
    settings = [f"slurm.on_time_limit={way}", f"train.epochs={epochs}"]
    run = Run.submit(work / "preemption.yaml", name, logs=work / "logs", data=work / "data", settings=settings)
    run.num_ranks = 1
    return run


def one(
    kind: Kind, name: str, work: Path, cluster: Description, expected: dict[str, str], away_s: float
) -> dict[str, Any]:
    """One trial."""
    shutil.rmtree(work / "logs" / name, ignore_errors=True)
    if kind.mode != "suspend":
        slurm("scontrol", "update", "partitionname=preempt", f"preemptmode={kind.mode}", f"gracetime={kind.grace_s}")
    run = submit(work, name, kind.way, kind.epochs)
    at_step = random.Random(name).randrange(EARLIEST, LATEST)
    run.wait_running(steps=at_step, timeout_s=OVER_S)
    struck = time.time()
    kind.strike(Trial(run, cluster, away_s))
    ended = wait_nothing_left(run)
    row: dict[str, Any] = {"at_step": at_step, "status_alone": run.status(), "attempts_alone": len(attempts(run))}
    if kind.goes_on == "resume" and ended:
        run.resume()
        ended = wait_nothing_left(run)
    row |= {
        "ended": ended,
        "over_s": round(time.time() - struck, 1),
        "status": run.status(),
        "identical": run.digests() == expected,
        "attempts": len(attempts(run)),
        "jobs": len(run.jobs),
        "states": run.accounted(),
        "left_over": jobs_of(run),
        "doubled": doubled(run),
        "lost": max(run.steps_lost(), default=0),
        "untrue": [f"{check.name}: {check.detail}" for check in verify_run(run.folder) if check.result == "fail"],
    }
    return {**row, "problems": problems_of(kind, row)}


def attempts(run: Run) -> list[Any]:
    return run.folder.attempts()


def jobs_of(run: Run) -> list[str]:
    """Its jobs in the queue, recorded or not."""
    lines = slurm("squeue", "--noheader", "--format=%i %o").splitlines()
    return [line.split()[0] for line in lines if line.endswith(str(run.folder.script_path))]


def doubled(run: Run) -> list[str]:
    """Jobs that have more than one successor."""
    after = [job.dependency for job in run.folder.jobs() if job.how == "resubmit"]
    return sorted({dependency for dependency in after if after.count(dependency) > 1})


def wait_nothing_left(run: Run) -> bool:
    """Until no job of the run is in the queue, twice in a row."""
    seen, until = 0, time.monotonic() + OVER_S
    while time.monotonic() < until:
        seen = 0 if jobs_of(run) else seen + 1
        if seen > 1:
            return True
        time.sleep(1)
    return False


def problems_of(kind: Kind, row: dict[str, Any]) -> list[str]:
    """What was promised and is not so."""
    again = row["attempts_alone"] > 1
    alone = {"itself": again or row["lost"] == 0, "again": again, "unharmed": not again}
    checks = {
        "nothing ended within the time": row["ended"],
        f"left behind: the run is {row['status']}": row["status"] == "done",
        "not identical": row["identical"],
        f"left over: {row['left_over']}": not row["left_over"],
        f"doubled: {row['doubled']}": not row["doubled"],
        f"{row['attempts_alone']} attempts": alone.get(kind.goes_on, True),
        f"not stopped as asked: {row['status_alone']}, {row['attempts_alone']} attempts": kind.goes_on != "resume"
        or (row["status_alone"], row["attempts_alone"]) == ("stopped", 1),
        f"verify: {row['untrue']}": not row["untrue"],
    }
    return [what for what, holds in checks.items() if not holds]


def settle(cluster: Description) -> None:
    """No job, all hosts idle."""
    subprocess.run(["scancel", "--quiet", f"--user={cluster.user}"], check=False)
    for host in cluster.hosts:
        if hosts.first_process(host) is None:
            build.boot(cluster, host)

    def idle() -> bool:
        states = dict(line.split() for line in slurm("sinfo", "-h", "-N", "-p", "normal", "-o", "%N %T").splitlines())
        for name, state in states.items():
            if state in ("down", "drained"):
                subprocess.run(["scontrol", "update", f"nodename={name}", "state=resume"], check=False)
        return set(states.values()) == {"idle"}

    wait_until(idle, "all hosts to be idle", 180)


# --- outside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--clusters", type=int, default=3)
    parser.add_argument("--away", type=float, default=60, help="seconds that the controller is away at a limit")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "graphmill-preemption"))
    parser.add_argument("--again", action="store_true", help="forget earlier trials")
    parser.add_argument("--report", action="store_true", help="only write the result of the trials so far")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options)
        return
    work = Path(options.work)
    if options.again:
        shutil.rmtree(work, ignore_errors=True)
    with Ledger(work / "logs") as ledger:  # one code for all trials, over all calls
        if not options.report:
            run_clusters(options, work)
    report([row for row in rows_of(work / "trials.jsonl") if row["kind"] in options.only], ledger, options)


def run_clusters(options: argparse.Namespace, work: Path) -> None:
    """All clusters at once."""
    from graphmill.tasks.node_classification.data.prepare import prepare

    (work / "logs").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(work / "claims", ignore_errors=True)
    (work / "preemption.yaml").write_text(EXPERIMENT)
    if not (work / "data").exists():
        prepare("synthetic/sbm", root=work / "data", options=SIZES)
    frozen = freeze(work)
    words = [sys.executable, __file__, "--inside", f"--work={work}", f"--trials={options.trials}"]
    words += [f"--away={options.away}", "--only"]
    suspended = [name for name in options.only if KINDS[name].mode == "suspend"]
    others = [name for name in options.only if name not in suspended]
    started = [("--preempt-mode=suspend", suspended)] * bool(suspended)
    started += [("--preempt-mode=cancel", others)] * (options.clusters if others else 0)
    running = [in_cluster(work, frozen, [*words, *kinds], "--no-ssh", "--hosts=2", mode) for mode, kinds in started]
    for process in running:
        process.wait()


def report(rows: list[dict[str, Any]], ledger: Ledger, options: argparse.Namespace) -> None:
    """Table and result."""
    table, kinds = [], {}
    for name, kind in KINDS.items():
        mine = [row for row in rows if row["kind"] == name]
        if not mine:
            continue
        counted = {
            "trials": len(mine),
            "as_promised": sum(not row["problems"] for row in mine),
            "identical": sum(bool(row.get("identical")) for row in mine),
            "left_behind": sum(row.get("status") != "done" for row in mine),
            "left_over": sum(bool(row.get("left_over")) for row in mine),
            "doubled": sum(bool(row.get("doubled")) for row in mine),
            "most_steps_lost": max(row.get("lost", 0) for row in mine),
        }
        problems = [{row["trial"]: row["problems"]} for row in mine if row["problems"]]
        kinds[name] = {"words": kind.words, **counted, "problems": problems}
        table.append([kind.words, *(str(value) for value in counted.values())])
    columns = ["", "trials", "as promised", "bit-identical", "left behind", "left over", "doubled", "most steps lost"]
    print_table("preemption", columns, table)
    facts = {"away_s": options.away, "checkpoint_every_steps": 50, "foreign_cores": ledger.foreign_cores()}
    write_result("preemption", {"kinds": kinds, **facts}, ledger.origin)
    sys.exit(0 if not any(row["problems"] for row in rows) else 1)


if __name__ == "__main__":
    main()
