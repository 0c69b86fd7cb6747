"""What the benchmarks on a dev cluster share: a frozen copy of the code, clusters, runs, and what became of them.

Other people may edit the sources while a benchmark runs: each cluster sees the copy that was made at its start, bound
over the sources, and a small file system of its own that can be filled.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import graphmill
from graphmill.base.errors import UserError
from graphmill.record.documents import Outcome
from graphmill.record.events import Event, Failure, Start, Sync, events_in
from graphmill.record.manifest import Manifest
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WeightsFile

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE"}
SMALL_MIB = 24


def freeze(work: Path) -> Path:
    """Copy graphmill's sources aside."""
    copy = work / "frozen"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_sources(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def in_cluster(work: Path, frozen: Path, command: Sequence[str], *options: str) -> subprocess.Popen:
    """Start `command` on the head of a dev cluster; `work`/small is its own small file system."""
    (work / "small").mkdir(exist_ok=True)
    script = f'mount --bind "$1" "$2" && mount -t tmpfs -o size={SMALL_MIB}m small "$3" && shift 3 && exec "$@"'
    cluster = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", *options]
    mounted = ["sh", "-c", script, "sh", str(frozen), str(_sources()), str(work / "small")]
    return subprocess.Popen(["unshare", "--mount", *mounted, *cluster, "--", *command])


def _sources() -> Path:
    return Path(graphmill.__file__).resolve().parent


@dataclass
class Run:
    """One run on the cluster that this process is in."""

    folder: RunFolder
    outputs: Path | None = None  # where its jobs print; None: the run folder
    said: list[str] = field(default_factory=list)  # what its commands printed
    num_ranks: int = 2

    @classmethod
    def submit(cls, experiment: Path, name: str, *, logs: Path, data: Path, settings: Sequence[str] = ()) -> "Run":
        """`graphmill submit`."""
        words = ["submit", str(experiment), "--run-id", name, "--logs-root", str(logs), "--dataset-root", str(data)]
        run = cls(RunFolder(logs / name))
        run.graphmill(*words, *(word for setting in settings for word in ("-O", setting)), check=True)
        return run

    def resume(self) -> None:
        """`graphmill submit --resume`, once Slurm has let go of the job."""
        until = time.monotonic() + 60
        while self.graphmill("submit", "--resume", str(self.folder.path)) and time.monotonic() < until:
            time.sleep(1)

    def graphmill(self, *words: str, check: bool = False) -> int:
        """Run a command; its exit status."""
        command = [sys.executable, "-m", "graphmill.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        self.said.append(done.stdout + done.stderr)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.returncode

    # --- jobs

    @property
    def jobs(self) -> list[str]:
        """Its jobs, first to last."""
        return list(dict.fromkeys(job.job_id for job in self.folder.jobs()))

    @property
    def state(self) -> str:
        """Of its latest job, as the controller says; empty where it does not answer."""
        return state_of(self.jobs[-1])

    def wait_running(self, *, steps: int, timeout_s: float = 120) -> None:
        """Until so many steps are done."""
        wait_until(lambda: self.steps_done() >= steps or self.is_over(), f"step {steps}", timeout_s)

    def is_over(self) -> bool:
        """Whether its latest job has ended and nothing follows. The controller forgets it after a while."""
        state = self.state
        return state in ENDED or (not state and bool(set(self.accounted()[-1:]) & ENDED))

    def wait_over(self, timeout_s: float) -> bool:
        """Until nothing goes on by itself any more. False: it still does after that long."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self.is_over():
                time.sleep(0.3)
                if self.is_over():
                    return True
            time.sleep(0.3)
        return False

    def accounted(self) -> list[str]:
        """What sacct says of every run of every job, oldest first: REQUEUED, FAILED, COMPLETED …"""
        jobs = ",".join(self.jobs)
        words = ("--duplicates", "--allocations", "--noheader", "--parsable2", "--format=state,exitcode")
        said: list[str] = []
        for _ in range(20):  # sacct learns of things later than squeue
            done = subprocess.run(["sacct", *words, f"--jobs={jobs}"], capture_output=True, text=True, check=False)
            said = [line.split("|")[0].split(" ")[0] for line in done.stdout.splitlines()]
            if said and not {"RUNNING", "PENDING", "COMPLETING"} & set(said):
                break
            time.sleep(0.5)
        return said

    # --- what it wrote

    def events(self, rank: int) -> list[Event]:
        """Of one rank."""
        path = self.folder.events_path(rank)
        try:
            return events_in(path) if path.exists() else []
        except UserError:
            return []

    def steps_done(self) -> int:
        """As its first rank told last."""
        return max((event.steps_done for event in self.events(0) if isinstance(event, Sync)), default=0)

    def steps_lost(self) -> list[int]:
        """Steps that each later attempt had to make again."""
        lost: list[int] = []
        reached = 0
        for event in self.events(0):
            if isinstance(event, Sync):
                reached = max(reached, event.steps_done)
            elif isinstance(event, Start) and (reached or event.resumed):
                lost.append(max(0, reached - event.steps_done))
        return lost

    def first_error_after(self, moment: float) -> float | None:
        """Unix time (s) of the first error that a rank told of."""
        errors = [e.time for rank in range(self.num_ranks) for e in self.events(rank) if isinstance(e, Failure)]
        return min((time_ for time_ in errors if time_ >= moment), default=None)

    def outcome(self) -> Outcome | None:
        """How it ended."""
        return self.folder.read_outcome()

    def status(self) -> str:
        """One word of it."""
        outcome = self.outcome()
        return outcome.status if outcome else "none"

    def damaged_checkpoints(self) -> list[str]:
        """What stands under a plain name and is not whole."""
        return [path.name for path in self.folder.checkpoints_dir.glob("step_*") if not _is_whole(path)]

    def digests(self) -> dict[str, str]:
        """Checksums of the last checkpoint's tensors, and of the best one's model."""
        last = max(self.folder.checkpoints_dir.glob("step_*"), default=None)
        files = sorted(last.glob("*.safetensors")) if last else []
        return {path.name: WeightsFile.read(path).compute_checksum() for path in files}

    def log(self) -> str:
        """What its jobs printed."""
        logs = sorted((self.outputs or self.folder.path).glob("slurm-*.out"))
        return "".join(path.read_text(errors="replace") for path in logs)


def _is_whole(path: Path) -> bool:
    for _ in range(3):  # it may be removed just now, as an older one
        try:
            return Manifest.read(path).damage(path) is None or not path.exists()
        except (OSError, ValueError):
            if not path.exists():
                return True
            time.sleep(0.2)
    return False


def state_of(job: str) -> str:
    """What the controller says of a job; empty where it does not answer."""
    command = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.split()
    except subprocess.TimeoutExpired:
        return ""
    return said[0] if said else ""


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait for a condition."""
    until = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(0.1)


def append(path: Path, row: dict[str, Any]) -> None:
    """One JSON line, whole."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """All lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def claim(folder: Path, name: str) -> bool:
    """Whether this process is the first to ask for `name`."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
