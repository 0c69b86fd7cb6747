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

from graphmill.cluster.devcluster.description import ENVIRONMENT_NAME
from harness import ForeignLoad, Spread, print_table, write_result

BAR_S = 1.0
WRAPPER = """#!/bin/bash
began=$EPOCHREALTIME
{sbatch} "$@"
code=$?
printf '%s %s %s\\n' "$began" "$EPOCHREALTIME" "$1" >>{log}
exit "$code"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    if ENVIRONMENT_NAME not in os.environ:
        start = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--no-accounting", "--"]
        sys.exit(subprocess.run([*start, sys.executable, *sys.argv], check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.rounds)


def measure(folder: Path, rounds: int) -> None:
    """Submit again and again; the program sbatch on PATH notes when it began and ended."""
    log, sbatch = folder / "log", folder / "bin" / "sbatch"
    sbatch.parent.mkdir()
    real = next(path for path in (Path(part) / "sbatch" for part in os.environ["PATH"].split(":")) if path.exists())
    sbatch.write_text(WRAPPER.format(sbatch=real, log=log))
    sbatch.chmod(0o755)
    command = [sys.executable, "-m", "graphmill.cli", "submit", "debian-packages-sage", "--hosts", "2"]
    command += ["--site", "devcluster", "--sbatch-arg=--hold", "--logs-root", str(folder / "logs")]
    command += ["--dataset-root", str(folder / "data")]
    environ = {**os.environ, "PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
    parts: dict[str, list[float]] = {
        name: []
        for name in (
            "start to sbatch's answer",
            "of it sbatch itself",
            "beyond sbatch",
            "of it --test-only",
            "CPU time of it all",
        )
    }
    watch = ForeignLoad()
    for number in range(-1, rounds):  # the first one prepares the dataset, and does not count
        log.unlink(missing_ok=True)
        cpu, began = _cpu_s(), time.time()
        subprocess.run([*command, "--run-id", f"r{number + 1}"], env=environ, capture_output=True, check=False)
        calls = {what: (float(a), float(b)) for a, b, what in (line.split() for line in log.read_text().splitlines())}
        if number < 0:
            continue
        at, answer = calls["--parsable"]
        tested = calls["--test-only"]
        figures = (answer - began, answer - at, at - began, tested[1] - tested[0], _cpu_s() - cpu)
        for name, figure in zip(parts, figures, strict=True):
            parts[name].append(figure)
    cores = watch.cores()
    spreads = {name: Spread.of(values) for name, values in parts.items()}
    print_table(
        f"seconds, median (quartiles) of {rounds}; others used {cores:.2f} cores; the bar is {BAR_S} s beyond sbatch",
        ["what", "s"],
        [[name, str(spread)] for name, spread in spreads.items()],
    )
    write_result("submit", {"rounds": rounds, "bar_s": BAR_S, "foreign_cores": cores, "seconds": spreads})


def _cpu_s() -> float:
    """CPU time of all children so far: what the command costs, whatever else the machine does."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
