"""A run on the dev cluster, seen from outside, for tests of what befalls its jobs."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import psutil
from real_slurm import RealSlurm

from graphmill.record.documents import Outcome
from graphmill.record.events import E, Start, Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WeightsFile
from graphmill.tasks.node_classification.data.prepare import prepare

EXPERIMENT = """
name: life
dataset: {name: synthetic/sbm}
model: {hidden_channels: 16}
train:
  {epochs: 100, batch_size: 50, num_neighbors: [5, 5], threads: 1, device: cpu, evaluate_every_epochs: 20,
   baselines: false, hang_timeout_s: 600, sync: {scheme: local_sgd, every: 2}, checkpoint: {every_steps: 18}}
slurm: {site: devcluster, hosts: 2, time: 5}
"""
EARLY = 24  # steps done when something happens
SHORT = "train.epochs=50"  # long enough for what happens at once
LONG_S = 240.0  # for a machine that others use as well


class Life:
    """A run on the cluster, from outside."""

    def __init__(self, slurm: RealSlurm, folder: RunFolder) -> None:
        self.slurm, self.folder = slurm, folder

    @property
    def job(self) -> str:
        """The one that runs, or ran last: of the jobs that were submitted, the last one may only wait for its end."""
        attempts = self.folder.attempts()
        return attempts[-1].job_id if attempts else self.folder.jobs()[-1].job_id

    def successor(self) -> str:
        def found() -> str:
            waits_for = {job.dependency: job.job_id for job in self.folder.jobs()}
            return waits_for.get(f"afterany:{self.job}", "")

        self.slurm.wait_until(lambda: bool(found()), "the successor", LONG_S)
        return found()

    def has_left_nothing(self) -> bool:
        """No job is in the queue, and none was submitted twice."""
        self.slurm.wait_until(lambda: not self.slurm.call("squeue", "--noheader"), "an empty queue", LONG_S)
        after = [job.dependency for job in self.folder.jobs() if job.how == "resubmit"]
        return len(after) == len(set(after))

    @property
    def outcome(self) -> Outcome:
        outcome = self.folder.read_outcome()
        assert outcome is not None, self.log()
        return outcome

    def time_left_s(self) -> int:
        """Until the job's limit, by Slurm; 0 beyond it."""
        said = self.slurm.call("squeue", "--noheader", f"--jobs={self.job}", "--format=%L").strip()
        if said == "INVALID":  # squeue's word for less than nothing
            return 0
        minutes, seconds = said.split(":")
        return 60 * int(minutes) + int(seconds)

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.path.glob("slurm-*.out")))

    def events(self, kind: type[E], rank: int = 0) -> list[E]:
        path = self.folder.events_path(rank)
        return events_in(path, kind) if path.exists() else []

    def wait_for_steps(self, steps: int = EARLY) -> None:
        def are_done() -> bool:
            return any(sync.steps_done >= steps for sync in self.events(Sync))

        self.slurm.wait_until(are_done, f"step {steps}", LONG_S)

    def wait_for_steps_of_attempt(self) -> None:
        """Until the latest attempt has done some."""
        began = self.folder.attempts()[-1].time
        self.slurm.wait_until(lambda: any(sync.time > began for sync in self.events(Sync)), "steps", LONG_S)

    def wait_done(self, timeout_s: float = LONG_S) -> None:
        def is_done() -> bool:
            outcome = self.folder.read_outcome()
            return outcome is not None and outcome.status == "done"

        self.slurm.wait_until(is_done, "the run to be done", timeout_s)
        # Slurm 24.11 calls a job PREEMPTED that was preempted, requeued by its driver, and completed.
        assert self.slurm.wait_for_state(self.job, timeout_s=LONG_S) in ("COMPLETED", "PREEMPTED")

    def process(self, rank: int) -> psutil.Process:
        """Of a rank; the head sees the processes of all hosts."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            is_rank = str(self.folder.path) in words and "graphmill.train.worker" in words and words[0] != "bash"
            if is_rank and process.environ().get("SLURM_PROCID") == str(rank):
                return process
        raise AssertionError("the rank does not run")

    def srun(self) -> psutil.Process:
        """Of the ranks."""
        return next(child for child in self.driver().children() if child.name() == "srun")

    def driver(self) -> psutil.Process:
        """Of the job."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if str(self.folder.path) in words and "graphmill.cluster.jobs.in_job" in words:
                return process
        raise AssertionError("the driver does not run")

    def resume(self) -> None:
        assert graphmill("submit", "--resume", self.folder.path).returncode == 0

    def steps_redone(self) -> int:
        """By the latest attempt."""
        start = self.events(Start)[-1]
        reached = max(sync.steps_done for sync in self.events(Sync) if sync.time < start.time)
        return reached - start.steps_done


def graphmill(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphmill.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})


def digests(folder: Path) -> dict[str, str]:
    last = max((folder / "checkpoints").glob("step_*"))
    return {path.name: WeightsFile.read(path).compute_checksum() for path in sorted(last.glob("*.safetensors"))}


def prepare_lives(root: Path) -> Path:
    """The dataset and the experiment. Returns the folder of both, which runs are for, too."""
    prepare("synthetic/sbm", root=root / "data", options={"num_nodes": 1500, "num_edges": 6000, "features": 16})
    (root / "life.yaml").write_text(EXPERIMENT)
    return root


@cache
def digests_alone(root: Path, epochs: int) -> dict[str, str]:
    """Those of a run of so many epochs that is left alone, here; it is trained when it is first asked for."""
    options = ("-O", "train.ranks=2", "-O", f"train.epochs={epochs}")
    alone = graphmill("train", root / "life.yaml", "--run-id", f"alone-{epochs}", *where(root), *options)
    assert alone.returncode == 0, alone.stderr
    return digests(root / "logs" / f"alone-{epochs}")


def where(root: Path) -> tuple[object, ...]:
    """Options that name the data and the runs."""
    return ("--dataset-root", root / "data", "--logs-root", root / "logs")


def submit(slurm: RealSlurm, root: Path, name: str, *settings: str, **environ: str) -> Life:
    """Submit the run; `settings` are further overrides, `environ` are variables that its job takes by name."""
    options = [word for setting in settings for word in ("-O", setting)]
    taken = [word for variable in environ for word in ("--env", variable)]
    done = graphmill("submit", root / "life.yaml", "--run-id", name, *where(root), *options, *taken, **environ)
    assert done.returncode == 0, done.stderr
    return Life(slurm, RunFolder(root / "logs" / name))


def is_unharmed(life: Life, root: Path) -> bool:
    """Whether it ended with the weights of the run that was left alone."""
    return digests(life.folder.path) == digests_alone(root, life.folder.read_plan().calendar.num_epochs)
