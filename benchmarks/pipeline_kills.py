"""A pipeline on a dev cluster, ended at random moments, twenty times: its final weights, bit for bit those of
`pipeline run` left alone. `nodes`: two stages, the second begins with the weights of the first; `can`: the five stages
of `recipes/pipeline-can.yaml`, three of which learn from the weights of others, on generated captures.

What is ended: `pipeline submit` while it measures and packs, the job (scancel), its driver, its rank (SIGKILL). A third
of the kills wait for the moment when a stage has begun that takes weights, and has not saved a checkpoint of its own:
such a kill counts as one while handing over. Where nothing of the chain is left, the pipeline is submitted again.

python benchmarks/pipeline_kills.py [--pipeline nodes|can] [--kills 20] [--seed 9]
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from graphmill.record.find_weights import weights_of
from graphmill.record.manifest import saved_steps
from graphmill.record.run_folder import RunFolder
from graphmill.spec.recipes import recipes_folder
from graphmill_devcluster.description import ENVIRONMENT_NAME
from harness import ForeignLoad, console, write_result
from origin import Origin


@dataclass(frozen=True, slots=True)
class Subject:
    """What is killed."""

    data: tuple[str, ...]  # words of `graphmill prepare`
    document: dict[str, Any]  # of the pipeline

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(stage["name"] for stage in self.document["stages"])

    @property
    def takers(self) -> tuple[str, ...]:
        """Stages that take weights of others."""
        return tuple(stage["name"] for stage in self.document["stages"] if {"init_from", "sources"} & stage.keys())


NODES = Subject(
    ("synthetic/sbm", "-o", "num_nodes=1500", "-o", "num_edges=6000", "-o", "features=16"),
    {
        "name": "p",
        "experiment": {
            "task": {"kind": "node_classification"},
            "dataset": {"name": "synthetic/sbm"},
            "model": {"hidden_channels": 16},
            "train": {
                "ranks": 1, "threads": 1, "device": "cpu", "batch_size": 20, "num_neighbors": [5, 5],
                "checkpoint": {"every_epochs": 0, "every_steps": 40}, "evaluate_every_epochs": 10,
            },
            "slurm": {"site": "devcluster", "max_attempts": 100},
        },
        "stages": [
            {"name": "few", "set": {"train.num_neighbors": [2, 1], "train.epochs": 10}},
            {"name": "many", "set": {"train.epochs": 20}, "init_from": {"stage": "few"}},
        ],
    },
)  # fmt: skip


def can() -> Subject:
    """The recipe's stages as they are, but for their epochs and checkpoints."""
    recipe = yaml.safe_load((recipes_folder() / "pipeline-can.yaml").read_text())
    for stage in recipe["stages"]:
        stage["set"] = {**stage.get("set", {}), "train.epochs": 4}
    shared = {
        **recipe["set"], "train.threads": 1, "train.batch_size": 16, "train.checkpoint.every_epochs": 0,
        "train.checkpoint.every_steps": 10, "slurm.site": "devcluster", "slurm.max_attempts": 100,
    }  # fmt: skip
    data = ("synthetic/can", "-o", "seconds=30")
    return Subject(data, {**recipe, "name": "p", "set": shared})


SUBJECTS = {"nodes": lambda: NODES, "can": can}
RESULTS = {"nodes": "pipeline_kills", "can": "pipeline_kills_can"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", choices=list(SUBJECTS), default="nodes")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=9)
    options = parser.parse_args()
    if ENVIRONMENT_NAME not in os.environ:
        start = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--"]
        sys.exit(subprocess.run([*start, sys.executable, *sys.argv], check=False).returncode)
    origin, watch = Origin.now(), ForeignLoad()
    with tempfile.TemporaryDirectory() as name:
        result = compare(SUBJECTS[options.pipeline](), Path(name), options.kills, random.Random(options.seed))
    write_result(RESULTS[options.pipeline], {**result, "seed": options.seed, "foreign_cores": watch.cores()}, origin)
    console.print(f"{result['kills']} kills ({result['by_way']}): {result['equal']} of {result['pipelines']} pipelines")
    sys.exit(0 if result["equal"] == result["pipelines"] and not result["run_twice"] else 1)


def compare(subject: Subject, folder: Path, wanted: int, dice: random.Random) -> dict[str, Any]:
    """Pipelines are killed and finished until there were enough kills."""
    (folder / "p.yaml").write_text(yaml.safe_dump(subject.document))
    prepare = [sys.executable, "-m", "graphmill.cli", "prepare", *subject.data]
    subprocess.run([*prepare, "--dataset-root", str(folder / "data")], check=True, capture_output=True)
    alone = Pipeline(subject, folder, folder / "alone")
    out, err = (child := alone.start("run")).communicate()
    if child.returncode:
        raise SystemExit(f"the undisturbed pipeline failed:\n{out}{err}")
    ways: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    equal = number = run_twice = 0
    while ways.total() < wanted:
        number += 1
        pipeline = Pipeline(subject, folder, folder / f"killed-{number}")
        run_twice += disturb(pipeline, dice, ways, wanted)
        struck += pipeline.struck
        same = pipeline.weights() == alone.weights()
        equal += same
        console.print(f"pipeline {number}: {'equal' if same else 'DIFFERENT'} after {ways.total()} kills in all")
    return {
        "kills": ways.total(), "by_way": dict(ways), "by_stage": dict(struck), "pipelines": number, "equal": equal,
        "run_twice": run_twice,
    }  # fmt: skip


@dataclass
class Pipeline:
    """One run of the pipeline, used through the command line."""

    subject: Subject
    folder: Path
    logs: Path
    attempts_when_done: dict[str, int] = field(default_factory=dict)
    struck: Counter[str] = field(default_factory=Counter)
    """Kills by the stage that had begun and was not done; "none": between two."""

    def start(self, verb: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "graphmill.cli", "pipeline", verb, str(self.folder / "p.yaml"), *words]
        command += ["--logs-root", str(self.logs), "--dataset-root", str(self.folder / "data")]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def stage(self, name: str) -> RunFolder:
        return RunFolder(self.logs / "p" / name)

    def is_done(self) -> bool:
        """Whether all stages are; notes how many attempts each of them took."""
        for name in self.subject.stages:
            folder = self.stage(name)
            if folder.plan_path.exists() and folder.is_done():
                self.attempts_when_done.setdefault(name, len(folder.attempts()))
        return set(self.attempts_when_done) == set(self.subject.stages)

    def under_way(self) -> str:
        """The stage that has begun and is not done."""
        folders = {name: self.stage(name) for name in self.subject.stages}
        begun = [name for name, folder in folders.items() if folder.plan_path.exists() and not folder.is_done()]
        return begun[0] if begun else "none"

    def hands_over(self) -> bool:
        """Whether a stage that takes weights has begun and saved nothing yet."""
        folders = [self.stage(name) for name in self.subject.takers]
        return any(folder.path.exists() and not saved_steps(folder.checkpoints_dir) for folder in folders)

    def has_handed_over(self) -> bool:
        """Whether every stage that takes weights has saved something."""
        return all(saved_steps(self.stage(name).checkpoints_dir) for name in self.subject.takers)

    def run_twice(self) -> int:
        """Stages that were begun again after they were done."""
        return sum(len(self.stage(name).attempts()) != count for name, count in self.attempts_when_done.items())

    def weights(self) -> dict[tuple[str, str], str]:
        """Checksums of names, shapes and values."""
        found = {}
        for name in self.subject.stages:
            for which in ("best", "last"):
                found[name, which] = weights_of(self.stage(name), which, lambda *_: None).checked()
        return found


def disturb(pipeline: Pipeline, dice: random.Random, ways: Counter[str], wanted: int) -> int:
    """Submit again and again, killing until there were `wanted` kills, until all stages are done."""
    while not pipeline.is_done():
        submit = pipeline.start("submit", "--trial", "5", "--time-limit", "3")
        if ways.total() < wanted and dice.random() < 0.3:
            time.sleep(dice.uniform(0, 25))
            strike(pipeline, submit, dice, ways)
        out, err = submit.communicate()
        if submit.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"pipeline submit: exit status {submit.returncode}\n{out}{err}")
        while jobs("pending", "running", "completing"):
            if ways.total() >= wanted:
                time.sleep(1)
                continue
            wait_for_moment(pipeline, dice)
            strike(pipeline, submit, dice, ways)
            pipeline.is_done()
    return pipeline.run_twice()


def wait_for_moment(pipeline: Pipeline, dice: random.Random) -> None:
    """A random time; or until a stage that takes weights has begun, and up to two seconds more."""
    if dice.random() < 2 / 3 or pipeline.hands_over():  # a stage that was just struck there is to come further
        time.sleep(dice.uniform(0, 25))
        return
    while jobs("pending", "running") and not pipeline.hands_over():
        if pipeline.has_handed_over():
            return  # too late: it has been
        time.sleep(0.05)
    time.sleep(dice.uniform(0, 2))


def strike(pipeline: Pipeline, submit: subprocess.Popen[str], dice: random.Random, ways: Counter[str]) -> None:
    """End whatever is there to be ended now."""
    is_handing_over, stage = pipeline.hands_over(), pipeline.under_way()
    if submit.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(submit.pid, signal.SIGKILL)
        submit.wait()
        way = "submit"
    else:
        running = jobs("running")
        drivers = processes(pipeline, "graphmill.cluster.jobs.in_job")
        ranks = processes(pipeline, "graphmill.train.worker")
        possible = ["scancel"] * bool(running) + ["driver"] * bool(drivers) + ["rank"] * bool(ranks)
        if not possible:
            return
        way = dice.choice(possible)
        if way == "scancel":
            subprocess.run(["scancel", *running], check=True)
        else:
            with suppress(psutil.Error):
                (drivers if way == "driver" else ranks)[0].kill()
    way += " while handing over" * is_handing_over
    ways[way] += 1
    pipeline.struck[stage] += 1
    console.print(f"{time.strftime('%H:%M:%S')} kill {ways.total()}: {way}; stage: {stage}")


def processes(pipeline: Pipeline, module: str) -> list[psutil.Process]:
    """Of this pipeline."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        ours = any(str(pipeline.logs) in word for word in words)
        if ours and module in words and "python" in Path(words[0]).name:
            found.append(process)
    return found


def jobs(*states: str) -> list[str]:
    words = ["squeue", "--noheader", f"--states={','.join(states)}", "--format=%i"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()


if __name__ == "__main__":
    main()
