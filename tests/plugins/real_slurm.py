"""A real Slurm for the tests that ask for one: the fixture `slurm`.

A pytest session that has such tests moves as a whole into a dev cluster before it begins (`graphmill devcluster run --
pytest …`), with all its xdist workers: one cluster a session, no start-up anywhere else, and nothing to take down that
a killed session could leave behind. Tests that ask for `slurm` have the cluster to themselves, one after another, and
find all hosts idle. Where no dev cluster can run, they are skipped with the reason; `--no-devcluster` skips them too.
`--slurm-release trixie`: on the Slurm of that suite of Debian, once `graphmill devcluster install trixie` unpacked it.
"""

import fcntl
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import HANG_S

from graphmill_devcluster import build, daemons, hosts
from graphmill_devcluster.description import HOME, Description
from graphmill_devcluster.requirements import why_not

GROUP = "real_slurm"
TESTS = Path(__file__).parents[1]
ALONE = "alone_on_slurm"  # the fixture of those that submit jobs to it
ASKS = re.compile(r"^\s*(?:async )?def \w+\([^)]*\bslurm\b", re.MULTILINE)
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE")


class RealSlurm:
    """The dev cluster that this session is in."""

    def __init__(self, shared: Path) -> None:
        self.cluster = Description.of_this_cluster()
        self.shared = shared
        """A folder that all hosts see."""
        self.hosts = tuple(host.name for host in self.cluster.hosts)

    # --- jobs

    def submit(self, script: str, *options: str) -> str:
        """Write a script into the shared folder and submit it, from there. Returns the job's id."""
        path = self.shared / f"job-{time.monotonic_ns()}.sbatch"
        path.write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}\n")
        command = ["sbatch", "--parsable", f"--chdir={self.shared}", *options, str(path)]
        return self.call(*command).strip().partition(";")[0]

    def state(self, job: str) -> str:
        """What the controller says of a job, in sacct's words; what sacct says once the controller has forgotten it."""
        command = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        return said[0] if said else (self.states_of_runs(job) or ["UNKNOWN"])[-1]

    def states_of_runs(self, job: str) -> list[str]:
        """What sacct says of each run of a job: REQUEUED, NODE_FAIL, COMPLETED …"""
        words = ("--duplicates", "--allocations", "--noheader", "--parsable2", "--format=state", f"--jobs={job}")
        return [line.split(" ")[0] for line in self.call("sacct", *words).splitlines()]

    def wait_for_state(self, job: str, *states: str, timeout_s: float = HANG_S) -> str:
        """Wait until the job is in one of these states, or in any in which it has ended; returns that state."""
        wanted = states or ENDED
        self.wait_until(lambda: self.state(job) in wanted, f"job {job} to be {' or '.join(wanted)}", timeout_s)
        return self.state(job)

    def wait_for_runs(self, job: str, *states: str, timeout_s: float = HANG_S) -> None:
        """Wait until sacct says exactly this of the runs of a job; it learns of things later than squeue."""
        what = f"the runs of job {job} to be {' '.join(states)}"
        self.wait_until(lambda: self.states_of_runs(job) == list(states), what, timeout_s)

    def hosts_of(self, job: str) -> list[str]:
        """Names of the hosts that a running job has."""
        said = self.call("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
        return self.call("scontrol", "show", "hostnames", said).split()

    # --- hosts and daemons

    def run_on(self, name: str, *command: str, timeout_s: float = HANG_S) -> str:
        """Run a program on a host. Returns its standard output; a failure is an error."""
        done = hosts.run_on(self.cluster.host(name), command, capture_output=True, timeout=timeout_s)
        assert done.returncode == 0, f"{' '.join(command)} on {name}: {done.stderr}"
        return done.stdout

    def crash(self, name: str) -> None:
        """Power off. Slurm notices after SlurmdTimeout; at once with `down`."""
        hosts.crash(self.cluster.host(name))

    def boot(self, name: str) -> None:
        """Power on."""
        build.boot(self.cluster, self.cluster.host(name))

    def cut(self, name: str) -> None:
        """Unplug the network cable."""
        hosts.cut(self.cluster.host(name))

    def heal(self, name: str) -> None:
        """Plug it in again."""
        hosts.heal(self.cluster.host(name))

    def down(self, name: str) -> None:
        """Tell Slurm that a host is down, so that it need not find out."""
        self.call("scontrol", "update", f"nodename={name}", "state=down", "reason=test")

    def restart(self, daemon: str, *, pause_s: float = 0) -> None:
        """Stop and start munged or slurmctld."""
        daemons.stop(daemon)
        time.sleep(pause_s)
        {"munged": daemons.start_munge, "slurmctld": daemons.start_slurmctld}[daemon]()

    def preempt(self, mode: str, grace_s: int = 0) -> None:
        """Say how jobs in the slurm_partition `preempt` make room."""
        self.call("scontrol", "update", "partitionname=preempt", f"preemptmode={mode}", f"gracetime={grace_s}")

    def take_all_hosts(self) -> None:
        """Submit a job that wants all hosts, for a moment."""
        self.call("sbatch", f"-N{len(self.hosts)}", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")

    def settle(self) -> None:
        """End all jobs, mend all hosts, wait until all are idle."""
        if self.call("squeue", "--noheader"):
            self.call("scancel", "--quiet", f"--user={self.cluster.user}")
        for host in self.cluster.hosts:
            hosts.heal(host)
            if hosts.first_process(host) is None:
                build.boot(self.cluster, host)
        self.wait_until(self._all_idle, "all hosts to be idle", 120)

    # --- waiting

    @staticmethod
    def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = HANG_S) -> None:
        """Wait for a condition."""
        give_up = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < give_up, f"waited {timeout_s} s for {what}"
            time.sleep(0.1)

    def call(self, *command: str) -> str:
        """Run a program on the head. Returns its standard output; a failure is an error."""
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def _all_idle(self) -> bool:
        words = ("--noheader", "--Node", "--partition=normal", "--format=%N %T")
        states = dict(line.split() for line in self.call("sinfo", *words).splitlines())
        for name, state in states.items():
            if state in ("down", "drained"):  # by `down`: it does not return by itself
                self.call("scontrol", "update", f"nodename={name}", "state=resume")
        return set(states.values()) == {"idle"} and not self.call("squeue", "--noheader")


@pytest.fixture
def alone_on_slurm() -> Iterator[None]:
    """No other test of this session touches the cluster meanwhile, also where xdist does not group them."""
    if not hosts.inside():
        yield
        return
    with (HOME / "test-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def slurm(tmp_path: Path, alone_on_slurm: None) -> Iterator[RealSlurm]:
    """A real Slurm with idle hosts, for this test alone."""
    if not hosts.inside():
        pytest.skip(f"no dev cluster: {why_not() or 'switched off, or this session could not know that it needs one'}")
    tmp_path.chmod(0o755)
    cluster = RealSlurm(tmp_path)
    yield cluster
    cluster.settle()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-devcluster", action="store_true", help="skip tests that need a Slurm")
    parser.addoption(
        "--slurm-release", metavar="SUITE", help="Slurm of this Debian suite (graphmill devcluster install)"
    )
    parser.addoption("--first-trial", type=int, default=0, help="the number of the first of --trials: others each time")
    parser.addoption("--trials", type=int, default=2, help="of each way in which a job is struck at a random moment")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    option = config.option
    asked = not (option.no_devcluster or option.collectonly or option.help or option.version or option.showfixtures)
    if not asked or hosts.inside() or hasattr(config, "workerinput") or not asks_for_slurm(config.args) or why_not():
        return None
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    release = [f"--release={option.slurm_release}"] if option.slurm_release else []
    command = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", *release, "--"]
    words = [sys.executable, "-m", "pytest", *config.invocation_params.args]
    return subprocess.run([*command, *words], check=False, cwd=config.invocation_params.dir).returncode


def asks_for_slurm(arguments: list[str]) -> bool:
    """Whether one of the tests, or one of their fixtures, takes `slurm`, as far as can be seen without running them."""
    chosen = [Path(argument.partition("::")[0]).resolve() for argument in arguments]
    files = {file for path in chosen for file in (path.rglob("*.py") if path.is_dir() else [path])}
    above = {parent / "conftest.py" for path in chosen if path.is_relative_to(TESTS) for parent in path.parents}
    around = above & set(TESTS.rglob("conftest.py"))
    return any(
        ASKS.search(file.read_text(encoding="utf-8"))
        for file in files | around
        if file.suffix == ".py" and file.exists()
    )
