"""Progressive training under a time limit: the stages of `pipeline-assignment-small`, lengthened, on a dev cluster.

One rank of one thread, and the thread that makes its batches: two cores. Once as `pipeline run`, without any limit;
once as `pipeline submit`: measured, packed into jobs of `--minutes` at most, continued by the next job where the ranks
saved in time, and once where they did not. For that a rank is kept frozen (SIGSTOP) from shortly before a limit, in the
middle of an epoch: Slurm's limit ends it, with SIGKILL, and the last checkpoint counts. Compared: every stage's best
and last weights and the evaluations, to the bit; the predicted time of each stage with what it took; its predicted
memory, by trial and by formula, with the kernel's high-water mark.

python benchmarks/assignment_limits.py [--minutes 2] [--longer 1.0] [--work DIR]
"""

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from graphmill.record.events import Start, Stop
from graphmill.record.find_weights import weights_of
from graphmill.record.run_folder import RunFolder
from graphmill.spec.modelled import modelled
from graphmill.spec.recipes import recipes_folder
from graphmill_devcluster.description import ENVIRONMENT_NAME
from harness import ForeignLoad, console, print_table, write_result
from origin import Origin
from slurm_runs import Run

SHARED: Final = {"train.threads": 1, "slurm.site": "devcluster", "slurm.cpus_per_host": 2, "slurm.max_attempts": 20}
RECIPE: Final = "pipeline-assignment-small"
EPOCHS: Final = {"small_128": 240, "small_256": 190, "small_512": 145, "small_1024": 130}
INSTANCES: Final = "instances_map=[128:24,256:24,512:16,1024:8]"
BARS: Final = {"time": 0.20, "memory": 0.10}
FREEZE_S: Final = 25.0  # before a limit: earlier than the ranks would stop by themselves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=2, help="of a job, at most")
    parser.add_argument("--longer", type=float, default=1.0, help="times as many epochs of every stage")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "graphmill-assignment-limits")
    options = parser.parse_args()
    if ENVIRONMENT_NAME not in os.environ:
        start = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--hosts", "1", "--"]
        sys.exit(subprocess.run([*start, sys.executable, *sys.argv], check=False).returncode)
    origin = Origin.now()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    result = measured(options.work, options.minutes, options.longer)
    write_result("assignment_limits", {"bars": BARS, "limit_s": 60 * options.minutes, **result}, origin)
    show(result, origin)
    good = all(stage["identical"] for stage in result["stages"]) and result["evaluations_identical"]
    sys.exit(0 if good and result["num_killed"] else 1)


def measured(folder: Path, minutes: int, longer: float) -> dict[str, Any]:
    recipe = yaml.safe_load((recipes_folder() / f"{RECIPE}.yaml").read_text())
    for stage in recipe["stages"]:
        stage["set"]["train.epochs"] = round(EPOCHS[stage["name"]] * longer)
    document = {**recipe, "name": "p", "set": {**recipe["set"], **SHARED}}
    (folder / "p.yaml").write_text(yaml.safe_dump(document))
    graphmill("prepare", "synthetic/assignment", "-o", INSTANCES, "--dataset-root", str(folder / "data"))
    names = [stage["name"] for stage in recipe["stages"]]
    alone, cut = Arm(folder, folder / "alone", names), Arm(folder, folder / "cut", names)
    said = {each["stage"]: each for each in json.loads(alone.pipeline("plan", "--json"))["stages"]}
    watch, began = ForeignLoad(), time.time()
    alone.pipeline("run")
    ended, load = time.time(), watch.cores()
    console.print(f"without a limit: {ended - began:.0f} s")
    watch = ForeignLoad()
    jobs = cut.submitted(minutes)
    begins = [*(alone.run(name).folder.attempts()[0].time for name in names), ended]
    stages = []
    for name, begin, end in zip(names, begins, begins[1:], strict=False):
        stages.append(
            {
                "stage": name,
                "predicted_s": said[name]["cost"]["expected_s"],
                "took_s": end - begin,
                **of_memory(said[name]["trial"]["peak_rss_mib"], alone.run(name), cut.run(name)),
                **of_attempts(cut.run(name)),
                "identical": alone.weights(name) == cut.weights(name),
            }
        )
    return {
        "epochs": {stage["name"]: stage["set"]["train.epochs"] for stage in recipe["stages"]},
        "stages": stages,
        "jobs": jobs,
        "num_killed": cut.num_frozen,
        "states": cut.states(),
        "evaluations_identical": alone.evaluations() == cut.evaluations(),
        "foreign_cores": load,
        "foreign_cores_under_limits": watch.cores(),
    }


@dataclass
class Arm:
    """The pipeline, run once in a folder of its own."""

    folder: Path
    logs: Path
    names: list[str]
    job_ids: list[str] = field(default_factory=list)
    num_frozen: int = 0

    def pipeline(self, verb: str, *words: str) -> str:
        where = ("--logs-root", str(self.logs), "--dataset-root", str(self.folder / "data"))
        return graphmill("pipeline", verb, str(self.folder / "p.yaml"), *words, *where)

    def run(self, name: str) -> Run:
        return Run(RunFolder(self.logs / "p" / name), num_ranks=1)

    def weights(self, name: str) -> list[str]:
        """Checksums of names, shapes and values."""
        folder = self.run(name).folder
        return [weights_of(folder, which, lambda *_: None).checked() for which in ("best", "last")]

    def evaluations(self) -> list[list[str]]:
        """Of every stage's best weights on the validation sets of all."""
        with (self.logs / "p" / "evaluations.csv").open() as file:
            return sorted(csv.reader(file))

    def submitted(self, minutes: int) -> list[dict[str, Any]]:
        """Submit the chain and wait for its end, freezing a rank once. What each job was to do, and what it took."""
        said = json.loads(self.pipeline("submit", "--time-limit", str(minutes), "--json"))
        self.job_ids = [job["job_id"] for job in said["jobs"]]
        parted = {
            job["job_id"] for job, following in pairwise(said["jobs"]) if job["stages"][-1] in following["stages"]
        }
        while alive := squeue():
            for job_id, state, left_s in alive:
                if not self.num_frozen and job_id in parted and state == "RUNNING" and left_s < FREEZE_S:
                    self.num_frozen += self.freeze(job_id)
            time.sleep(0.5)
        took = elapsed(self.job_ids)
        asked = {job_id: minutes_of(job_id) for job_id in self.job_ids}
        return [
            {"stages": job["stages"], "asked_min": asked[job["job_id"]], "took_s": took[job["job_id"]]}
            for job in said["jobs"]
        ]

    def freeze(self, job_id: str) -> bool:
        """Keep the rank that trains from going on until it is killed: Slurm wakes it before it asks it to end."""
        frozen = self.rank()
        if frozen is None:
            return False
        frozen.send_signal(signal.SIGSTOP)
        done = [self.run(name).steps_done() for name in self.names]
        console.print(f"{time.strftime('%H:%M:%S')} rank of job {job_id} frozen; steps done: {done}")
        with suppress(psutil.NoSuchProcess):
            while frozen.status() != psutil.STATUS_ZOMBIE:
                frozen.send_signal(signal.SIGSTOP)
                time.sleep(0.002)
        console.print(f"{time.strftime('%H:%M:%S')} it is killed")
        return True

    def rank(self) -> psutil.Process | None:
        """Of the stage that is trained now."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            ours = any(str(self.logs) in word for word in words)
            if ours and "graphmill.train.worker" in words and "python" in Path(words[0]).name:  # not srun
                return process
        return None

    def states(self) -> list[str]:
        """What sacct says of every run of every job."""
        words = ("--duplicates", "--allocations", "--noheader", "--parsable2", "--format=jobid,state")
        return sacct(*words, f"--jobs={','.join(self.job_ids)}").split()


def of_memory(trial_mib: float, *runs: Run) -> dict[str, float]:
    """The largest peak of a rank under either way, and what was said of it beforehand."""
    peaks = [float(rows_of_metrics(run)[-1]["peak_rss_mib"]) for run in runs]
    said = modelled(runs[0].folder.read_plan()).memory_per_rank_mib
    assert said is not None
    return {"trial_mib": trial_mib, "formula_mib": said, "peak_mib": max(peaks)}


def rows_of_metrics(run: Run) -> list[dict[str, str]]:
    with run.folder.metrics_path.open() as file:
        return list(csv.DictReader(file))


def of_attempts(run: Run) -> dict[str, Any]:
    """How often a stage was begun, from where, and what of it was done twice."""
    calendar = run.folder.read_plan().calendar
    ends = {0, *accumulate(calendar.steps_in(epoch) for epoch in range(calendar.num_epochs))}
    events = run.events(0)
    starts = [event.steps_done for event in events if isinstance(event, Start) and event.steps_done]
    return {
        "attempts": len(run.folder.attempts()),
        "resumed_in_mid_epoch": sum(step not in ends for step in starts),
        "saved_in_time": sum(isinstance(event, Stop) for event in events),
        "steps": calendar.last_step,
        "steps_made_twice": sum(run.steps_lost()),
    }


def squeue() -> list[tuple[str, str, float]]:
    """Id, state and seconds left of every job."""
    words = ["squeue", "--noheader", "--format=%i %T %L"]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return [(job_id, state, seconds_of(left)) for job_id, state, left in (line.split() for line in lines)]


def seconds_of(clock: str) -> float:
    """Of 1:05 or 01:00:05; infinity where there is none."""
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts):
        return float("inf")
    return float(sum(int(part) * 60**place for place, part in enumerate(reversed(parts))))


def elapsed(job_ids: list[str]) -> dict[str, float]:
    """Seconds of each job, all its runs added up."""
    words = ("--duplicates", "--allocations", "--noheader", "--parsable2", "--format=jobid,elapsedraw,state")
    for _ in range(60):  # sacct learns of things later than squeue
        lines = [line.split("|") for line in sacct(*words, f"--jobs={','.join(job_ids)}").splitlines()]
        if {line[0] for line in lines} == set(job_ids) and not any("RUNNING" in line[2] for line in lines):
            return {job_id: sum(float(line[1]) for line in lines if line[0] == job_id) for job_id in job_ids}
        time.sleep(1)
    raise SystemExit(f"sacct does not know how jobs {job_ids} ended")


def minutes_of(job_id: str) -> int:
    return int(
        sacct("--allocations", "--noheader", "--parsable2", "--format=timelimitraw", f"--jobs={job_id}").split()[0]
    )


def sacct(*words: str) -> str:
    return subprocess.run(["sacct", *words], check=True, capture_output=True, text=True).stdout


def graphmill(*words: str) -> str:
    """Standard output."""
    done = subprocess.run([sys.executable, "-m", "graphmill.cli", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"graphmill {' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def show(result: dict[str, Any], origin: Origin) -> None:
    columns = ["stage", "predicted s", "took s", "trial MiB", "formula MiB", "peak MiB", "attempts", "bit-identical"]
    rows = [
        [
            stage["stage"],
            *(f"{stage[key]:.0f}" for key in ("predicted_s", "took_s", "trial_mib", "formula_mib", "peak_mib")),
            str(stage["attempts"]),
            "yes" if stage["identical"] else "NO",
        ]
        for stage in result["stages"]
    ]
    print_table(f"{RECIPE}, {origin.processor.name}, {origin.time_utc}", columns, rows)
    console.print(result["jobs"], result["states"])


if __name__ == "__main__":
    main()
