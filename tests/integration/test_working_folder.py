"""Files in the working folder, or in a run folder, that are called like Python's own modules: nobody imports them.

What the user names by dotted path is found in the working folder all the same.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from graphmill.record.run_folder import RunFolder

pytestmark = pytest.mark.distributed

LIKE_PYTHONS = ("random", "json", "queue", "types", "socket", "signal", "numpy", "psutil")
EXPERIMENT = {
    "name": "mine",
    "dataset": {"name": "cora"},
    "model": {"kind": "custom", "target": "mymodel.Net"},
    "train": {"epochs": 1, "batch_size": 40, "num_neighbors": [3], "threads": 1, "ranks": 2, "baselines": False},
}
MODEL = """
import random
import torch

class Net(torch.nn.Linear):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)

    def forward(self, x, edge_index):
        return super().forward(x) + 0 * random.random()
"""


@pytest.fixture
def home(tmp_path):
    """A folder to work in, with a model and an experiment of one's own among the traps."""
    (tmp_path / "mymodel.py").write_text(MODEL)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    set_traps(tmp_path, tmp_path)
    return tmp_path


def set_traps(folder: Path, root: Path, names=LIKE_PYTHONS) -> None:
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(root / 'sprung')!r}, 'a').write({name!r} + ' ')\n")


def run(environ, data_root, folder: Path, *words: str) -> str:
    """The command as a person types it: its console script keeps the working folder out of `sys.path`."""
    command = [Path(sys.executable).with_name("graphmill"), *words]
    environ = {**environ, "GRAPHMILL_DATA_ROOT": str(data_root)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_train_evaluate_and_predict_import_nothing_from_there(home, environ, data_root):
    run(environ, data_root, home, "train", "mine.yaml", "--run-id", "own")
    folder = RunFolder(home / "logs" / "own")
    assert folder.read_outcome().status == "done"
    run(environ, data_root, home, "evaluate", "own")
    assert not (home / "sprung").exists(), (home / "sprung").read_text()


@pytest.mark.slow
def test_evaluate_in_a_run_folder_imports_nothing_from_it(environ, data_root, planned, train_all, tmp_path):
    folder = train_all([planned("built-in", ranks=1, epochs=1)])["built-in"]
    set_traps(folder.path, tmp_path)
    for words in (["evaluate", "."], ["predict", ".", "--output", str(tmp_path / "out.csv")]):
        run(environ, data_root, folder.path, *words)
    assert not (tmp_path / "sprung").exists(), (tmp_path / "sprung").read_text()


@pytest.mark.slow
def test_torchrun_imports_only_what_python_needs_before_our_first_line(home, environ, data_root):
    (home / "types.py").unlink()
    torchrun = Path(sys.executable).with_name("torchrun")
    command = [torchrun, "--standalone", "--nproc-per-node=2", "-m", "graphmill.train", "mine.yaml", "--run-id", "t"]
    environ = {**environ, "GRAPHMILL_DATA_ROOT": str(data_root)}
    done = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (home / "sprung").exists(), (home / "sprung").read_text()
