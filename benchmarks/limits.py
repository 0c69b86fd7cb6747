"""The time limit: runs that need five limits of a minute finish by themselves, bit-identical to one without limits.

    python benchmarks/limits.py [--limits 5] [--minutes 1] [--seconds 40 | --epochs N] [--work DIR]

On a dev cluster of six hosts, two for each run: one is never cut, one goes on by requeue, one by follow-up jobs. All
have the same plan; `--seconds` is about what each limit leaves for steps (the rest goes into starting and ending), and
a short run beforehand measures how many steps that is. Then the two ways to give up: the last attempt allowed, and an
attempt that got no further. On a machine that others keep busy, a minute may be too short for a single step: 2, then.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from graphmill.record.events import Stop, Sync
from harness import ForeignLoad, print_table, write_result
from origin import Origin
from slurm_runs import Run, append, freeze, in_cluster, rows_of, wait_until

EXPERIMENT = """name: limits
dataset: {name: synthetic/sbm}
model: {hidden_channels: 64}
train:
  {epochs: 1000, batch_size: 200, num_neighbors: [10, 10], threads: 1, device: cpu, evaluate_every_epochs: 10,
   sync: {scheme: local_sgd, every: 16}, checkpoint: {every_epochs: 10}}
slurm: {site: devcluster, hosts: 2, mem: 1000M}
"""
SIZES = {"num_nodes": 20000, "num_edges": 100000, "features": 64}
NO_LIMIT = "slurm.time=90"
GIVES_UP_S = 2400
BETWEEN_ATTEMPTS_S = 15
LEFT_S = 6  # of the limit, when the ranks without progress start


def inside(options: argparse.Namespace) -> None:
    """On the cluster's head."""
    work, found = Path(options.work), Path(options.work) / "runs.jsonl"
    epochs = options.epochs
    if epochs is None:
        per_limit = calibrate(work, options.seconds)
        epochs = max(1, round(per_limit * (options.limits + 0.5)))
        print(f"{per_limit:.1f} epochs in {options.seconds} s: {epochs} epochs in all", flush=True)
    length, limit = f"train.epochs={epochs}", f"slurm.time={options.minutes}"
    ways = {
        "no limit": [NO_LIMIT],
        "requeue": [limit, "slurm.on_time_limit=requeue"],
        "resubmit": [limit, "slurm.on_time_limit=resubmit"],
    }
    runs = {name: submit(work, name, [length, *settings]) for name, settings in ways.items()}
    unlimited = runs["no limit"]
    wait_until(lambda: bool(unlimited.events(0)), "the first rank", 180)
    start_s = unlimited.events(0)[0].time - unlimited.folder.attempts()[0].time
    sleep_s = max(1, int(60 * options.minutes - start_s - LEFT_S))
    endless = ["train.epochs=100000", limit]
    stops = {
        "last attempt": submit(work, "last attempt", [*endless, "slurm.max_attempts=2"]),
        "no progress": submit(work, "no progress", [*endless, f'slurm.setup_lines=["sleep {sleep_s}"]']),
    }
    follow({**runs, **stops}, GIVES_UP_S)
    expected = runs["no limit"].digests()
    for name, run in runs.items():
        append(found, {"name": name, "epochs": epochs, **facts(run), "identical": run.digests() == expected})
    for name, run in stops.items():
        append(found, {"name": name, **facts(run)})


def calibrate(work: Path, seconds: float) -> float:
    """Epochs in so many seconds, while as many ranks train as will later."""
    settings = [NO_LIMIT, "train.epochs=100000"]
    runs = [submit(work, f"calibration {number}", settings) for number in range(3)]
    wait_until(lambda: all(run.steps_done() for run in runs), "the first steps", 180)
    time.sleep(3)
    before, began = [run.steps_done() for run in runs], time.monotonic()
    time.sleep(15)
    done = [run.steps_done() - steps for run, steps in zip(runs, before, strict=True)]
    elapsed = time.monotonic() - began
    for run in runs:
        run.graphmill("stop", str(run.folder.path))
    for run in runs:
        run.wait_over(60)
    plan = runs[0].folder.read_plan()
    return sum(done) / len(done) / elapsed * seconds / plan.calendar.steps_in(0)


def submit(work: Path, name: str, settings: list[str]) -> Run:
    return Run.submit(
        work / "limits.yaml", name.replace(" ", "-"), logs=work / "logs", data=work / "data", settings=settings
    )


def follow(runs: dict[str, Run], timeout_s: float) -> None:
    """Until all are over; a line for each attempt."""
    seen: dict[str, int] = {}
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        for name, run in runs.items():
            number = len(run.folder.attempts())
            if seen.get(name) != number:
                seen[name] = number
                print(f"{name}: attempt {number}, {run.steps_done()} steps so far", flush=True)
        if all(run.is_over() for run in runs.values()):
            time.sleep(1)
            if all(run.is_over() for run in runs.values()):
                return
        time.sleep(1)


def facts(run: Run) -> dict[str, Any]:
    """What became of a run."""
    plan, outcome = run.folder.read_plan(), run.outcome()
    log = run.log().replace(str(run.folder.path), run.folder.path.name)  # no path of this machine
    return {
        "status": outcome.status if outcome else "none",
        "message": outcome.message if outcome else "",
        "attempts": len(run.folder.attempts()),
        "jobs": len(run.jobs),
        "states": run.accounted(),
        "steps": run.steps_done(),
        "round_steps": plan.sync.every,
        "rounds_s": rounds(run),
        "steps_lost": run.steps_lost(),
        "stopped": [event.status for event in run.events(0) if isinstance(event, Stop)],
        "left_s": left(log),
        "damaged": run.damaged_checkpoints(),
        "verify": run.graphmill("verify", str(run.folder.path)),
        "last_words": [line for line in log.splitlines() if line.startswith("graphmill: attempt")][-1:],
    }


def rounds(run: Run) -> dict[str, float]:
    """Seconds between syncs: median and longest."""
    times = [event.time for event in run.events(0) if isinstance(event, Sync)]
    gaps = sorted(late - early for early, late in pairwise(times) if late - early < BETWEEN_ATTEMPTS_S)
    return {"median": gaps[len(gaps) // 2], "longest": gaps[-1]} if gaps else {}


def left(log: str) -> list[float]:
    """Seconds of the limit that were left when the ranks decided to stop."""
    return [
        float(line.partition(" s were left")[0].rpartition("(")[2])
        for line in log.splitlines()
        if " s were left" in line
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", type=int, default=5)
    parser.add_argument("--minutes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--epochs", type=int, help="of each run, instead of the measurement")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "graphmill-limits"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options)
        return
    from graphmill.tasks.node_classification.data.prepare import prepare

    work, watch, origin = Path(options.work), ForeignLoad(), Origin.now()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "limits.yaml").write_text(EXPERIMENT)
    prepare("synthetic/sbm", root=work / "data", options=SIZES)
    words = [sys.executable, __file__, "--inside", f"--work={work}"]
    words += [f"--limits={options.limits}", f"--minutes={options.minutes}", f"--seconds={options.seconds}"]
    words += [] if options.epochs is None else [f"--epochs={options.epochs}"]
    in_cluster(work, freeze(work), words, "--no-ssh", "--hosts=6").wait()
    report(rows_of(work / "runs.jsonl"), watch, options, origin)


def report(rows: list[dict[str, Any]], watch: ForeignLoad, options: argparse.Namespace, origin: Origin) -> None:
    """Table and result."""
    columns = ["run", "ended", "attempts", "jobs", "steps", "redone at worst", "bit-identical"]
    table = [
        [
            *(row[key] for key in ("name", "status", "attempts", "jobs", "steps")),
            max(row["steps_lost"], default=0),
            {True: "yes", False: "no", None: ""}[row.get("identical")],
        ]
        for row in rows
    ]
    print_table(f"time limits of {options.minutes} min", columns, [[str(cell) for cell in row] for row in table])
    result = {"runs": rows, "limit_s": 60 * options.minutes, "foreign_cores": watch.cores()}
    write_result("limits", result, origin)
    good = all(row.get("identical", True) and not row["damaged"] for row in rows)
    good = good and all(row["attempts"] > options.limits for row in rows if row["name"] in ("requeue", "resubmit"))
    print(json.dumps(rows, indent=1))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
