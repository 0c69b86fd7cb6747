"""Runs that are killed at random moments and resumed until they are done, and what must be the same of them."""

import random
import signal
import time
from dataclasses import dataclass
from typing import Any

from waiting import HANG_S

from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder

MEASURED = {"train_s", "seeds_per_s", "sample_s", "gather_s", "wait_s", "compute_s", "sync_s", "eval_s"}
MEASURED |= {"interface_mib_epoch", "interface_mib_cum", "peak_rss_mib", "peak_gpu_mib", "attempt"}
MEASURED |= {"cpu_util_avg", "gpu_util_avg"}
MEASURED |= {
    "remote_rows",
    "cache_hit_rate",
    "repeated_rows",
    "fetched_rows",
    "fetched_mib",
    "loader_mib",
    "eval_mib",
    "fetch_s",
}  # by one attempt


@dataclass
class Tally:
    """What the kills hit."""

    kills: int = 0
    in_checkpoints: int = 0  # a half-made or half-removed checkpoint was left behind
    resumes: int = 0
    runs: int = 0


def content(folder: RunFolder) -> dict[str, Any]:
    """All of a finished run that must not depend on what happened to it."""
    files = sorted(folder.checkpoints_dir.glob("*/*.safetensors"))
    rows = read_metrics(folder.metrics_path)
    outcome = folder.read_outcome()
    return {
        "files": {str(path.relative_to(folder.path)): path.read_bytes() for path in files},
        "evaluations": folder.evaluations_path.read_bytes(),
        "metrics": [{name: row[name] for name in row.keys() - MEASURED} for row in rows],
        "outcome": (outcome.status, outcome.epochs, outcome.steps_per_rank, outcome.test, outcome.best),
        "leftovers": [path.name for path in folder.checkpoints_dir.glob(".*")],
    }


def assert_same(folder: RunFolder, reference: RunFolder) -> None:
    found, expected = content(folder), content(reference)
    assert found["files"].keys() == expected["files"].keys()
    assert [name for name in expected["files"] if found["files"][name] != expected["files"][name]] == []
    assert found["metrics"] == expected["metrics"]
    assert found["evaluations"] == expected["evaluations"]
    assert found["outcome"] == expected["outcome"]
    assert found["leftovers"] == []


def has_begun(folder: RunFolder, num_starts: int) -> bool:
    path = folder.events_path(0)
    return path.exists() and path.read_text().count('"kind": "start"') >= num_starts


def was_in_checkpoint(folder: RunFolder) -> bool:
    return any(folder.checkpoints_dir.glob(".step_*"))


def run_with_kills(zygote, folder: RunFolder, dice: random.Random, tally: Tally, num_kills: int, most_s: float) -> None:
    """Kill the run `num_kills` times or until it is done, then let it end."""
    processes, resume, killed = folder.read_plan().world.processes, False, 0
    while folder.read_outcome() is None or folder.read_outcome().status != "done":
        before = folder.events_path(0).read_text().count('"kind": "start"') if folder.events_path(0).exists() else 0
        pids = zygote.start(folder, resume=resume)
        tally.resumes += resume
        if killed < num_kills:
            deadline = time.monotonic() + HANG_S
            while not has_begun(folder, before + 1) and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(dice.uniform(0, most_s))
            zygote.kill(dice.choice([pids, *([pid] for pid in pids)]))
        codes = zygote.wait(pids, patience_s=None if killed >= num_kills else 3)
        if -signal.SIGKILL in codes:
            killed += 1
            tally.kills += 1
            tally.in_checkpoints += was_in_checkpoint(folder)
        else:
            assert codes == [0] * processes, zygote.said(folder)
        resume = True
