"""Any operation on any file of a run may fail: a hiccup ends nothing, and a disk that is gone ends it as `io_error`,
from where the next attempt goes on to the same bits.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from failing_disk import FOR_EVER

from graphmill.tasks.node_classification.data.prepare import prepare

PROGRAM = Path(__file__).parent / "programs" / "faults.py"
OPTIONS = (
    "-O", "train.ranks=1", "-O", "train.epochs=3", "-O", "train.batch_size=40", "-O", "train.threads=1",
    "-O", "train.num_neighbors=[3,3]", "-O", "model.hidden_channels=8", "-O", "train.checkpoint.every_steps=5",
    "-O", "train.device=cpu",
)  # fmt: skip
FILES = ("metrics.csv", "evaluations.csv", "RUN/events", "RUN/checkpoints", "/.lock", "outcome.json", "attempts.jsonl")
OPERATIONS = ("open", "read", "write", "fsync", "truncate", "rename", "stat", "unlink", "mkdir", "list")
ERRORS = ("EIO", "ESTALE", "ETIMEDOUT", "ENOTCONN", "EREMOTEIO")


def faults(operations, files) -> list[dict]:
    """Each pair once for a moment, at its first call and at a later one, and once for ever."""
    errors = itertools.cycle(ERRORS)
    how = ({"after": 0, "times": 2}, {"after": 3, "times": 1}, {"after": 2, "times": FOR_EVER})
    return [
        {"operation": operation, "part": f"{file}", "error": next(errors), **when}
        for operation, file, when in itertools.product(operations, files, how)
    ]


@pytest.fixture(scope="module")
def run_faults(tmp_path_factory, failing_disk):
    root = tmp_path_factory.mktemp("faults")
    prepare("synthetic/sbm", root=root / "data", options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    (root / "toy.yaml").write_text("name: toy\ndataset: {name: synthetic/sbm}\n")
    where = ("--logs-root", str(root / "logs"), "--run-id", "alone", "--dataset-root", str(root / "data"))
    train = [sys.executable, "-m", "graphmill.cli", "train", str(root / "toy.yaml"), *OPTIONS, *where]
    subprocess.run(train, check=True)
    series = itertools.count()

    def run(asked: list[dict]) -> list[tuple[dict, dict]]:
        environ = failing_disk(["open"], "no such path at all")
        program = [sys.executable, PROGRAM, root / f"trials_{next(series)}", root / "logs" / "alone"]
        lines = "".join(f"{json.dumps(fault)}\n" for fault in asked)
        done = subprocess.run(program, input=lines, env=environ, check=False, stdout=subprocess.PIPE, text=True)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(found) == len(asked), f"died of {asked[len(found)]}"
        return list(zip(asked, found, strict=True))

    return run


def judge(pairs: list[tuple[dict, dict]]) -> None:
    for fault, found in pairs:
        is_gone = fault["times"] == FOR_EVER and found["met"] > fault["after"]
        assert found["status"] in ((71, 0) if is_gone else (0,)), (fault, found)
        assert found["outcome"] in (("io_error", "done", "") if is_gone else ("done",)), (fault, found)
        wanted = {"again": 0, "same": True, "failed": [], "left": []}
        assert {name: found[name] for name in wanted} == wanted, (fault, found)


def test_a_hiccup_ends_no_run_and_a_disk_that_is_gone_ends_none_for_good(run_faults):
    asked = [
        {"operation": operation, "part": file, "error": error, "after": after, "times": times}
        for operation, file, error, after, times in (
            ("write", "metrics.csv", "ESTALE", 0, 1), ("write", "metrics.csv", "ESTALE", 2, FOR_EVER),
            ("fsync", "metrics.csv", "EIO", 1, 1), ("write", "RUN/events", "EIO", 5, 2),
            ("fsync", "checkpoints", "EIO", 4, 1), ("fsync", "checkpoints", "EIO", 4, FOR_EVER),
            ("rename", "checkpoints", "ESTALE", 3, 2), ("stat", "checkpoints", "EIO", 3, FOR_EVER),
        )
    ]  # fmt: skip
    pairs = run_faults(asked)
    assert all(found["met"] for _, found in pairs)
    judge(pairs)


@pytest.mark.slow
def test_a_run_whose_outcome_can_never_be_read_back_is_sealed_or_goes_on(run_faults):
    """Once an outcome says that the run is done nothing continues it."""
    asked = [
        {"operation": operation, "part": "outcome.json", "error": "EIO", "after": after, "times": FOR_EVER}
        for operation, after in (("open", 2), ("open", 1), ("read", 0), ("rename", 0), ("stat", 3))
    ]
    judge(run_faults(asked))


@pytest.mark.slow
def test_a_full_disk_is_no_hiccup(run_faults):
    full = {"operation": "write", "part": "checkpoints", "error": "ENOSPC", "after": 3, "times": FOR_EVER}
    [(_, found)] = run_faults([full])
    assert (found["status"], found["outcome"]) == (1, "failed")
    assert (found["again"], found["same"], found["failed"]) == (0, True, [])


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_operation_on_any_file_may_fail(run_faults, operation):
    pairs = run_faults(faults([operation], FILES))
    judge(pairs)
