"""From the start of `graphmill submit` to sbatch's answer, beyond what sbatch itself takes; the bar is 1.0 s.

On a dev cluster, with held jobs. `sbatch --test-only`, which comes first, counts as ours.

python benchmarks/submit.py [--rounds 11]
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from graphmill_devcluster.description import ENVIRONMENT_NAME
from harness import ForeignLoad, Spread, print_table, write_result
from origin import Origin

BAR_S = 1.0
WRAPPER = """#!/bin/bash
began=$EPOCHREALTIME
{sbatch} "$@"
code=$?
printf '%s %s %s\\n' "$began" "$EPOCHREALTIME" "$1" >>{log}
exit "$code"
"""
PARTS = ("start to sbatch's answer", "of it sbatch itself", "beyond sbatch", "of it --test-only", "CPU time of it all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    if ENVIRONMENT_NAME not in os.environ:
        start = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--no-accounting", "--"]
        sys.exit(subprocess.run([*start, sys.executable, *sys.argv], check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.rounds)


class Submitter:
    """One installation that submits held jobs; the program sbatch on PATH notes when it began and ended.

    `python`: of the installation. `folder`: its own prepared data, runs and notes.
    """

    def __init__(self, python: str, folder: Path) -> None:
        self.log, sbatch = folder / "log", folder / "bin" / "sbatch"
        sbatch.parent.mkdir(parents=True)
        real = next(path for path in (Path(part) / "sbatch" for part in os.environ["PATH"].split(":")) if path.exists())
        sbatch.write_text(WRAPPER.format(sbatch=real, log=self.log))
        sbatch.chmod(0o755)
        self.environ = {**os.environ, "PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
        data = ["--dataset-root", str(folder / "data")]
        graphmill = [python, "-m", "graphmill.cli"]
        subprocess.run([*graphmill, "prepare", "debian-packages", *data], check=True, capture_output=True)
        self.command = [*graphmill, "submit", "debian-packages-sage", "--hosts", "2", "--site", "devcluster"]
        self.command += ["--sbatch-arg=--hold", "--logs-root", str(folder / "logs"), *data]

    def submit(self, name: str) -> dict[str, float]:
        """Seconds of the parts of one submission."""
        self.log.unlink(missing_ok=True)
        cpu, began = _cpu_s(), time.time()
        command = [*self.command, "--run-id", name]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        if len(lines) != 2:  # not by the exit status: `submit` warns of a job that is held, as these are
            raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        calls = {what: (float(a), float(b)) for a, b, what in (line.split() for line in lines)}
        (at, answer), tested = calls["--parsable"], calls["--test-only"]
        figures = (answer - began, answer - at, at - began, tested[1] - tested[0], _cpu_s() - cpu)
        return dict(zip(PARTS, figures, strict=True))


def measure(folder: Path, rounds: int) -> None:
    """Submit again and again."""
    origin = Origin.now()
    submitter = Submitter(sys.executable, folder / "one")
    submitter.submit("warm-up")
    watch = ForeignLoad()
    found = [submitter.submit(f"r{number}") for number in range(rounds)]
    cores = watch.cores()
    spreads = {name: Spread.of([parts[name] for parts in found]) for name in PARTS}
    print_table(
        f"seconds, median (quartiles) of {rounds}; others used {cores:.2f} cores; the bar is {BAR_S} s beyond sbatch",
        ["what", "s"],
        [[name, str(spread)] for name, spread in spreads.items()],
    )
    write_result("submit", {"rounds": rounds, "bar_s": BAR_S, "foreign_cores": cores, "seconds": spreads}, origin)


def _cpu_s() -> float:
    """CPU time of all children so far: what the command costs, whatever else the machine does."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
