"""What merge, compare, report and list take over thousands of runs: processor time, peak memory, size of the page.

One run is trained; the others are its copies, with run ids, rng seeds and learning rates of their own.

python benchmarks/many_runs.py [--runs 1000 10000] [--epochs 100]
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from harness import ForeignLoad, print_table, write_result
from origin import Origin

EXPERIMENT = """
dataset: {{name: tiny}}
model: {{kind: graphsage, hidden_channels: 8}}
train: {{epochs: {epochs}, threads: 1, ranks: 1}}
"""
COMMANDS = {
    "merge": ["merge", "--input-root", "many"],
    "merge --layout long": ["merge", "--layout", "long", "--input-root", "many"],
    "compare": ["compare", "--logs-root", "many"],
    "list": ["list", "--logs-root", "many"],
    "report": ["report", "many", "--output", "results/report.html"],
}
SEEDS = 5
COPIED = ("attempts.jsonl", "outcome.json", "provenance.json", "evaluations.csv", "events", "monitor")


@dataclass(frozen=True, slots=True)
class Took:
    runs: int
    command: str
    processor_s: float
    peak_mib: float
    written_mib: float  # the file that is the answer; 0: it was printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    origin, watch = Origin.now(), ForeignLoad()
    found: list[Took] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.yaml").write_text(EXPERIMENT.format(epochs=options.epochs))
        graphmill(["prepare", "synthetic/sbm", "--as", "tiny", "-o", "num_nodes=400", "-o", "num_edges=3000"], folder)
        graphmill(["train", "tiny.yaml", "--run-id", "one", "--logs-root", "trained"], folder)
        for begin, runs in pairwise([0, *sorted(options.runs)]):
            for number in range(begin, runs):
                copy(folder / "trained" / "one", folder / "many", number)
            found += [took(runs, command, folder) for command in COMMANDS]
    print_table(
        f"{options.epochs} epochs each; bars of 1,000 runs: merge 200 MB, report 30 s and 2 MB",
        ["runs", "command", "processor s", "peak MiB", "written MiB"],
        [
            [
                f"{each.runs:,}",
                each.command,
                f"{each.processor_s:.1f}",
                f"{each.peak_mib:.0f}",
                f"{each.written_mib:.2f}",
            ]
            for each in found
        ],
    )
    result = {"epochs": options.epochs, "foreign_cores": watch.cores(), "took": [asdict(each) for each in found]}
    write_result("many_runs", result, origin)


def took(runs: int, command: str, folder: Path) -> Took:
    usage = graphmill(COMMANDS[command], folder)
    answers = {"merge": "metrics.csv", "merge --layout long": "evaluations.csv", "report": "report.html"}
    written = (folder / "results" / answers[command]).stat().st_size if command in answers else 0
    return Took(runs, command, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**10, written / 2**20)


def graphmill(words: list[str], folder: Path) -> resource.struct_rusage:
    """Run a command; what it used. The peak is that of its largest process."""
    process = subprocess.Popen([sys.executable, "-m", "graphmill.cli", *words], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return usage


def copy(run: Path, root: Path, number: int) -> None:
    """Make a run of its own of a copy. Its seals are those of the first, which `verify` would say."""
    seed, configuration = number % SEEDS, number // SEEDS
    folder = root / f"c{configuration:05d}-s{seed}"
    folder.mkdir(parents=True)
    for name in COPIED:
        (shutil.copytree if (run / name).is_dir() else shutil.copyfile)(run / name, folder / name)
    plan = json.loads((run / "plan.json").read_text())
    plan |= {"run_id": folder.name, "seed": seed}
    plan["optimizer"]["lr"] = round(0.001 * (1 + configuration), 6)
    (folder / "plan.json").write_text(json.dumps(plan, indent=2))
    header, *rows = (line.split(",") for line in (run / "metrics.csv").read_text().splitlines())
    places = {header.index("run_id"): folder.name, header.index("seed"): str(seed)}
    cells = [header, *([places.get(place, cell) for place, cell in enumerate(row)] for row in rows)]
    (folder / "metrics.csv").write_text("".join(f"{','.join(row)}\n" for row in cells))


if __name__ == "__main__":
    main()
