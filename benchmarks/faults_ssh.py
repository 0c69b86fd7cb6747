"""Faults over SSH: each kind at a random moment of short runs of `graphmill launch`, on hosts of the dev cluster.

    python benchmarks/faults_ssh.py [--trials 10] [--only KIND …] [--clusters 3] [--work DIR] [--again]

As benchmarks/faults.py, which see. A trial is as promised where the launcher ended with the right exit status and told
the first error first, no process of ours was left on any host (one that is still cut off, too), `graphmill launch
--resume` then ended the run, and its last checkpoint is that of an undisturbed run, bit for bit. `launch` stages
nothing, is not preempted and asks no daemon of Slurm's, so those three faults do not apply.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

import faults
from faults import EARLIEST, EXPERIMENT, LATEST, NO_HANG_S, Benchmark, Kind, Trial
from graphmill.cluster.launch.ssh.session import AGENT
from graphmill.cluster.launch.ssh.wire import SILENCE_S
from graphmill.record.run_folder import RunFolder
from graphmill.verify.run import verify_run
from graphmill_devcluster import build
from graphmill_devcluster.description import Description
from slurm_runs import Run

NUM_HOSTS = 2
FORKED = "graphmill.runtime.forked"  # ranks, and what they are forked from
OUTLIVED_S = 90  # then the launcher is ended by us, and the trial has failed
_ERROR = re.compile(r"Traceback|error", re.IGNORECASE)


@dataclass
class Launched(Run):
    """A run whose ranks `graphmill launch` starts. `outputs`: the file in which all that it prints is."""

    work: Path = Path()
    num_ranks: int = NUM_HOSTS
    launcher: subprocess.Popen[bytes] | None = None

    @classmethod
    def named(cls, name: str, work: Path, *, small: bool = False) -> "Launched":
        """Nothing of an earlier run of that name is left."""
        run = cls(RunFolder(work / ("small" if small else "logs") / name), outputs=work / "out" / f"{name}.out")
        run.work = work
        shutil.rmtree(run.folder.path, ignore_errors=True)
        run._output.parent.mkdir(exist_ok=True)
        run._output.unlink(missing_ok=True)
        return run

    @property
    def _output(self) -> Path:
        assert self.outputs is not None, "it was named"
        return self.outputs

    def begin(self, *, resume: bool = False) -> None:
        """`graphmill launch`, in a session of its own, as a terminal gives it."""
        path = self.folder.path
        if resume:
            words = ["--resume", str(path)]
        else:
            words = [str(self.work / "faults.yaml"), "--run-id", path.name, "--logs-root", str(path.parent)]
            words += ["--dataset-root", str(self.work / "data")]
        words += ["--hosts", str(self.work / "hosts.yaml"), "--ssh-config", os.environ["GRAPHMILL_SSH_CONFIG"]]
        command = [sys.executable, "-m", "graphmill.cli", "launch", *words]
        with self._output.open("ab") as file:
            self.launcher = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def exit_code(self) -> int | None:
        """Of the launcher; None while it runs."""
        assert self.launcher is not None, "it was begun"
        return self.launcher.poll()

    def is_over(self) -> bool:
        """Whether the launcher has ended."""
        return self.exit_code is not None

    def log(self) -> str:
        """What the launcher printed."""
        return self._output.read_text(errors="replace")

    def first_error(self) -> str:
        """The first line that speaks of one."""
        return next((line for line in self.log().splitlines() if _ERROR.search(line)), "")

    def wait_gone(self, since: float, timeout_s: float) -> tuple[float | None, float | None]:
        """Seconds from `since` (Unix time, s) to the launcher's end, and to that of the last process on any host."""
        over = gone = None
        until = time.monotonic() + timeout_s
        while (over is None or gone is None) and time.monotonic() < until:
            if over is None and self.is_over():
                over = time.time() - since
            if over is not None and not on_hosts():
                gone = time.time() - since
            time.sleep(0.1)
        return over, gone


def on_hosts() -> list[psutil.Process]:
    """Our agents and ranks, on all hosts of this cluster: other clusters cannot be seen from here."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if {FORKED, AGENT} & set(words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@dataclass
class SshTrial(Trial):
    """Rank i is on host i + 1."""

    run: Launched

    def names(self) -> list[str]:
        return [host.name for host in self.cluster.hosts]


def crash(trial: Trial) -> None:
    host = trial.host()
    trial.mended.append(lambda: build.boot(trial.cluster, host))
    faults.crash(trial)


def cut(trial: Trial) -> None:
    trial.mended.append(lambda: faults.revive(trial.cluster))
    faults.cut(trial)


def interrupt(trial: Trial) -> None:
    """Ctrl-C and SIGTERM take turns."""
    _launcher(trial).send_signal([signal.SIGINT, signal.SIGTERM][trial.number % 2])


def kill_launcher(trial: Trial) -> None:
    _launcher(trial).kill()


def kill_agent(trial: Trial) -> None:
    """The process that started the struck rank, by a fork server."""
    fork_server = trial.process().parent()
    assert fork_server is not None, "a rank dies with its fork server"
    agent = fork_server.parent()
    assert agent is not None, "which dies with its agent"
    assert AGENT in agent.cmdline(), agent.cmdline()
    agent.kill()


def _launcher(trial: Trial) -> "subprocess.Popen[bytes]":
    assert isinstance(trial, SshTrial), trial
    assert trial.run.launcher is not None, "it was begun"
    return trial.run.launcher


def freeze_folder(trial: Trial) -> None:
    """On every host and on this one: the launcher reads and writes the run folder, too."""
    faults.freeze_folder(trial)
    run = str(trial.run.folder.path)
    subprocess.run(faults.read_only_command(run), check=True)
    trial.mended.append(lambda: subprocess.run(["umount", "--lazy", run], check=True))


# `states` are the launcher's exit statuses here
KINDS = {
    "rank_killed": Kind(
        "rank SIGKILLed",
        faults.kill,
        "resume",
        ("1",),
        "error: rank {rank} of {ranks} failed first on {host}: killed by SIGKILL",
    ),
    "rank_stopped": Kind("rank SIGSTOPped", faults.stop, "resume", ("74",), "rank {rank} on {host}"),
    "interrupted": Kind("Ctrl-C or SIGTERM at the launcher", interrupt, "resume", ("75",), loss=0),
    "launcher_killed": Kind("launcher SIGKILLed", kill_launcher, "resume", ("-9",)),
    "agent_killed": Kind("agent of a host SIGKILLed", kill_agent, "resume", ("74",), "error: {host} was lost"),
    "cut_5s": Kind("network cut 5 s", faults.cut_short, "unharmed", ("0",), loss=0),
    "disk_full": Kind("disk full on checkpoint", faults.fill, "resume", ("1",), "No space left", small=True),
    "read_only": Kind("run folder made read-only", freeze_folder, "resume", ("1",), "Read-only file system"),
    "other_code": Kind(
        "other code on one host", faults.other_code, "resume", ("2",), "not all hosts run the code", before=True, loss=0
    ),
    "crashed": Kind("host crashed", crash, "resume", ("74",), "error: {host} was lost"),
    "cut": Kind("network cut for good", cut, "resume", ("74",), "error: {host} was lost"),
}  # fmt: skip


# --- inside a cluster


def inside(options: argparse.Namespace) -> None:
    work, cluster = Path(options.work), Description.of_this_cluster()
    expected = faults.undisturbed(work, lambda: launch_undisturbed(work))

    def trial(kind: Kind, name: str, number: int) -> dict[str, Any]:
        return one(kind, f"{name}-{number}", number, work, cluster, expected)

    faults.go_through(options, KINDS, trial, lambda: settle(cluster))


def launch_undisturbed(work: Path) -> None:
    entries = [{"address": f"host{number}"} for number in range(1, NUM_HOSTS + 1)]
    (work / "hosts.yaml").write_text(yaml.safe_dump({"defaults": {"ranks": 1}, "hosts": entries}))
    run = Launched.named("undisturbed", work)
    run.begin()
    run.wait_gone(time.time(), 240)
    if run.status() != "done":
        raise RuntimeError(run.log())


def one(
    kind: Kind, name: str, number: int, work: Path, cluster: Description, expected: dict[str, str]
) -> dict[str, Any]:
    """One trial."""
    run = Launched.named(name, work, small=kind.small)
    trial = SshTrial(number, run, cluster, random.Random(name))
    try:
        row = struck_run(kind, trial)
        trial.mend()
        resume(run, row)
        row["identical"] = run.digests() == expected
        untrue = [check for check in verify_run(run.folder) if check.result == "fail"]
        row["problems"] = problems_of(kind, trial, row)
        row["problems"] += [f"verify: {check.group} {check.name}: {check.detail}" for check in untrue]
        row["as_promised"] = not row["problems"]
        return row
    finally:
        trial.mend()
        if run.launcher is not None and run.exit_code is None:
            run.launcher.kill()
        if kind.small:  # what is to be read must move away
            shutil.copytree(run.folder.path, work / "logs" / name, dirs_exist_ok=True)
            shutil.rmtree(run.folder.path, ignore_errors=True)


def struck_run(kind: Kind, trial: SshTrial) -> dict[str, Any]:
    """Launch, strike, and see what becomes of it while the fault lasts."""
    run, at_step = trial.run, 0
    if kind.before:
        kind.strike(trial)
        struck = time.time()
        run.begin()
    else:
        at_step = trial.chance.randrange(EARLIEST, LATEST)
        run.begin()
        run.wait_running(steps=at_step)
        if run.is_over():
            raise RuntimeError(f"it ended before the fault: {run.log()}")
        struck = time.time()
        kind.strike(trial)
    over, gone = run.wait_gone(struck, OUTLIVED_S)
    outcome = run.outcome()
    told = run.first_error_after(struck)
    return {
        "at_step": at_step,
        "rank": trial.rank,
        "host": trial.cluster.hosts[trial.number % 2].name if kind.before else trial.host().name,
        "told_s": _rounded(None if told is None else told - struck),
        "over_s": _rounded(over),
        "gone_s": _rounded(gone),
        "exit_code": run.exit_code,
        "first_error": run.first_error(),
        "log": run.log()[-4000:],
        "attempt_outcome": run.status(),
        "message": outcome.message if outcome else "",
        "left": [f"{process.pid} {process.info['cmdline']}" for process in on_hosts()],
        "damaged": run.damaged_checkpoints(),
        "attempts_alone": len(run.folder.attempts()),
    }


def resume(run: Launched, row: dict[str, Any]) -> None:
    """Go on, or begin anew where nothing has begun, and wait for the end."""
    if run.status() != "done":
        run.begin(resume=run.folder.plan_path.exists())
        run.wait_gone(time.time(), 120)
    row["resume_exit_code"] = run.exit_code
    row["lost"] = max(run.steps_lost(), default=0)
    row["status"] = run.status()


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def tells_first(line: str, says: str) -> bool:
    """Whether the first line about an error is the launcher's own, or the right rank's."""
    return line.startswith("error: ") or (" | error: " in line and says in line)


def problems_of(kind: Kind, trial: SshTrial, row: dict[str, Any]) -> list[str]:
    """What was promised and is not so."""
    says = kind.says.format(rank=trial.rank, host=row["host"], ranks=trial.run.num_ranks)
    silent = row["exit_code"] in (0, 75, -signal.SIGKILL)
    longest = max(row["over_s"] or 999, row["gone_s"] or 999)
    checks = {
        f"exit status {row['exit_code']}": str(row["exit_code"]) in kind.states,
        f"the run is {row['status']}": row["status"] == "done",
        "not identical": row["identical"],
        f"damaged: {row['damaged']}": not row["damaged"],
        f"left on the hosts: {row['left']}": not row["left"],
        f"harmed: {row['attempts_alone']} attempts": row["attempts_alone"] == (0 if kind.before else 1),
        f"does not say {says!r}": says in row["log"],
        f"tells first: {row['first_error']!r}": tells_first(row["first_error"], says)
        if not silent
        else not row["first_error"],
        f"lost {row['lost']} steps": row["lost"] <= kind.most_lost(),
        f"all was over only after {longest} s": kind.goes_on == "unharmed" or longest <= NO_HANG_S,
        f"the outcome is done after exit status {row['exit_code']}": (row["attempt_outcome"] == "done")
        == (row["exit_code"] == 0),
    }
    return [what for what, holds in checks.items() if not holds]


def settle(cluster: Description) -> None:
    """All hosts up, and nothing of ours on them, whatever the trial left."""
    faults.revive(cluster)
    for process in on_hosts():
        process.kill()


if __name__ == "__main__":
    Benchmark(
        name="faults_ssh",
        doc=__doc__,
        kinds=KINDS,
        experiment=EXPERIMENT,
        inside=inside,
        cluster=("--no-accounting", f"--hosts={NUM_HOSTS}"),
        has_slurmd=False,
        columns=(
            ("a rank said so after s", "told_s"),
            ("launcher over after s", "over_s"),
            ("no process left after s", "gone_s"),
            ("steps lost", "steps_lost"),
        ),
        facts={"num_hosts": NUM_HOSTS, "silence_s": SILENCE_S},
    ).main()
