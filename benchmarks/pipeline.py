"""What `pipeline submit` predicts of each stage, and what its job then took: time and peak memory, on a dev cluster.

Each stage has a job of its own, so that the accounts of Slurm are the stage's. A prediction is made on the machine that
runs the job, a moment before; what others use of it meanwhile is reported with the figures. Slurm samples memory every
two seconds here and misses what lies between: the peak is the kernel's high-water mark of the rank after its last epoch
(or Slurm's figure, where that is larger), and Slurm's is kept beside it.

python benchmarks/pipeline.py [--rounds 3] [--recipes pipeline-neighbours pipeline-horizon]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.spec.pipeline import load_pipeline
from graphmill_devcluster.description import ENVIRONMENT_NAME
from harness import ForeignLoad, print_table, write_result
from origin import Origin

RECIPES = ("pipeline-neighbours", "pipeline-horizon")
DATA = (("debian-packages",), ("synthetic/traffic", "--task", "traffic"))
BARS = {"time": 0.20, "memory": 0.10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    options = parser.parse_args()
    if ENVIRONMENT_NAME not in os.environ:
        start = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--"]
        sys.exit(subprocess.run([*start, sys.executable, *sys.argv], check=False).returncode)
    origin, found = Origin.now(), []
    with tempfile.TemporaryDirectory() as folder:
        for words in DATA:
            graphmill("prepare", *words, "--dataset-root", f"{folder}/data")
        for number in range(options.rounds):
            for recipe in options.recipes:
                found += stages_of(recipe, Path(folder), number)
    columns = ["stage", "predicted s", "job s", "ratio", "predicted MiB", "job MiB", "ratio", "cores of others", "load"]
    write_result("pipeline", {"bars": BARS, "stages": found}, origin)
    print_table(f"predicted / real, {origin.processor.name}, {origin.time_utc}", columns, [row(each) for each in found])


def stages_of(recipe: str, folder: Path, number: int) -> list[dict[str, Any]]:
    """Each stage of a recipe, submitted by itself."""
    found = []
    for stage in load_pipeline(recipe).stages:
        watch = ForeignLoad()
        where = ("--dataset-root", f"{folder}/data", "--logs-root", f"{folder}/logs-{number}")
        words = ("--site", "devcluster", "--time-limit", "60", "--json")
        said = json.loads(graphmill("pipeline", "submit", recipe, "--stages", stage.name, *words, *where))
        (cost,), (job,) = [each["cost"] for each in said["stages"]], said["jobs"]
        while squeue():
            time.sleep(0.5)
        elapsed_s, sampled_mib = accounts(job["job_id"])
        run = RunFolder(folder / f"logs-{number}" / load_pipeline(recipe).name / stage.name)
        own_mib = float(read_metrics(run.metrics_path)[-1]["peak_rss_mib"])
        found.append(
            {
                "recipe": recipe,
                "stage": stage.name,
                "round": number,
                "predicted_s": cost["expected_s"],
                "job_s": elapsed_s,
                "predicted_mib": (cost["memory_mib"]["low"] + cost["memory_mib"]["high"]) / 2,
                "job_mib": max(own_mib, sampled_mib),
                "sampled_mib": sampled_mib,
                "foreign_cores": watch.cores(),
                "load_average": os.getloadavg()[0],
            }
        )
    return found


def accounts(job: str) -> tuple[float, float]:
    """Seconds of the job, and the memory of its rank in MiB: the largest of Slurm's samples."""
    words = ["sacct", "--noheader", "--parsable2", "--jobs", job, "--format=JobID,State,ElapsedRaw,MaxRSS", "--units=K"]
    deadline = time.monotonic() + 60
    while True:
        lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
        rows = {line.split("|")[0]: line.split("|")[1:] for line in lines}
        if rows.get(job, ["", ""])[0] == "COMPLETED" and rows.get(f"{job}.0", ["", "", ""])[2]:
            break
        if time.monotonic() > deadline:
            raise SystemExit(f"job {job} has not ended well: {rows}")
        time.sleep(1)
    return float(rows[job][1]), float(rows[f"{job}.0"][2].removesuffix("K")) / 1024


def row(each: dict[str, Any]) -> list[str]:
    ratios = each["predicted_s"] / each["job_s"], each["predicted_mib"] / each["job_mib"]
    return [
        f"{each['recipe']} {each['stage']}",
        f"{each['predicted_s']:.1f}",
        f"{each['job_s']:.0f}",
        f"{ratios[0]:.2f}",
        f"{each['predicted_mib']:.0f}",
        f"{each['job_mib']:.0f}",
        f"{ratios[1]:.2f}",
        f"{each['foreign_cores']:.1f}",
        f"{each['load_average']:.1f}",
    ]


def squeue() -> str:
    return subprocess.run(["squeue", "--noheader"], check=True, capture_output=True, text=True).stdout


def graphmill(*words: str) -> str:
    """Standard output."""
    done = subprocess.run([sys.executable, "-m", "graphmill.cli", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"graphmill {' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
