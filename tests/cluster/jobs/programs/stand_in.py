"""Stands where a script calls python or apptainer: writes down what it was given, then does the least that goes on.

In place of the driver it starts the ranks as the driver does: with the real arguments, and the real command of srun.
"""

import json
import os
import sys
from pathlib import Path

record = Path(os.environ["RECORD"]) / os.environ["CASE"]
record.mkdir(parents=True, exist_ok=True)
words = sys.argv[1:]


def note(what: str) -> None:
    seen = {
        "called": os.fsencode(sys.argv[0]).hex(),
        "words": [os.fsencode(word).hex() for word in words],
        "cwd": os.fsencode(Path.cwd()).hex(),
        "hostile": os.environb.get(b"HOSTILE", b"").hex(),
    }
    (record / f"{what}.json").write_text(json.dumps(seen))


def run_folder() -> Path:
    root = next(word.partition("=")[2] for word in words if word.startswith("--logs-root="))
    run = record / "logs" / root.lstrip("/") / "run"
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError:  # no such name on this file system
        run = record / "logs" / "run"
        run.mkdir(parents=True)
    return run


if Path(sys.argv[0]).name == "apptainer":
    note(f"apptainer-{os.environ['SLURM_PROCID']}")
    tail = words.index("-P")
    os.execv(words[tail - 1], words[tail - 1 :])
elif "graphmill.cluster.jobs.in_job" in words:
    note("driver")
    program = Path(os.environ["PROGRAMS"]) / "start_ranks.py"
    os.execv(os.environ["REAL_PYTHON"], [os.environ["REAL_PYTHON"], str(program), str(run_folder()), *words[3:]])
else:
    note(f"rank-{os.environ['SLURM_PROCID']}")
    (record / "run").write_bytes(os.fsencode(words[words.index("-m") + 2]))
    sys.stdout.write("a rank was here\n")
