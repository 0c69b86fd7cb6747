"""The stages of recipes/pipeline-can.yaml, killed at random moments: weights of stages that learn from each other."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.record.find_weights import weights_of
from graphmill.record.run_folder import RunFolder
from graphmill.spec.pipeline import load_pipeline

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

STAGES = [stage.name for stage in load_pipeline("pipeline-can").stages]
SMALL = (
    *("-O", "train.epochs=2", "-O", "train.batch_size=16", "-O", "train.threads=1"),
    *("-O", "train.checkpoint.every_epochs=0", "-O", "train.checkpoint.every_steps=5"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    words = ["prepare", "synthetic/can", "-o", "seconds=20", "--dataset-root", str(root)]
    subprocess.run([sys.executable, "-m", "graphmill.cli", *words], check=True, capture_output=True)
    return root


def start(logs: Path, data: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    words = ["pipeline", "run", "pipeline-can", *SMALL, "--logs-root", str(logs), "--dataset-root", str(data)]
    return subprocess.Popen(
        [sys.executable, "-m", "graphmill.cli", *words], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip


def finish(child: subprocess.Popen[str]) -> None:
    said, _ = child.communicate()
    assert child.returncode == 0, said


def weights(logs: Path) -> dict[tuple[str, str], str]:
    """Checksums of names, shapes and values."""
    folders = {name: RunFolder(logs / "can" / name) for name in STAGES}
    return {
        (name, which): weights_of(folder, which, lambda *_: pytest.fail("damaged")).checked()
        for name, folder in folders.items()
        for which in ("best", "last")
    }


def test_ten_kills_at_random_moments(tmp_path, data, source_environ):
    alone = tmp_path / "alone"
    finish(start(alone, data, source_environ))
    dice, kills = random.Random(11), 0
    for number in range(50):
        logs = tmp_path / str(number)
        while True:
            child = start(logs, data, source_environ)
            try:
                child.wait(dice.uniform(2, 20) if kills < 10 else None)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
                kills += 1
                continue
            finish(child)
            break
        assert weights(logs) == weights(alone)
        if kills >= 10:
            return
    pytest.fail(f"{kills} kills in 50 pipelines")
