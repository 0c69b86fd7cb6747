"""The commands in-process, and a small generated graph to work on."""

import contextlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

TOY = """# A toy
name: toy
dataset: {name: synthetic/sbm}
model: {hidden_channels: 8}
train: {epochs: 2, batch_size: 60, num_neighbors: [4, 4], threads: 1, baselines: false}
"""


MAIN = "import sys; sys.argv[0] = 'graphmill'; from graphmill.cli import main; main()"


def start(environ: dict[str, str], folder: Path, *words: str) -> subprocess.Popen[str]:
    """The command as a process of its own, in `folder`: it may start ranks, and be sent signals."""
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_here(*arguments: str | Path) -> SimpleNamespace:
    """A command in this process: its exit status, and what it printed; ranks that it starts print elsewhere."""
    from typer.testing import CliRunner

    from graphmill.cli.app import commands

    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(commands(words), words, prog_name="graphmill")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


@contextlib.contextmanager
def own_messages() -> Iterator[None]:
    """No handler of messages stays that a command puts there: the next one, or the next test, is not to see it."""
    before = [(log, log.handlers[:], log.level) for log in map(logging.getLogger, ("graphmill", "__main__"))]
    try:
        yield
    finally:
        for log, handlers, level in before:
            log.handlers[:] = handlers
            log.setLevel(level)


@pytest.fixture(autouse=True)
def _own_messages() -> Iterator[None]:
    """A command that a test runs in this process shows messages; the next test is not to see them."""
    with own_messages():
        yield


def run_in(folder: Path, *words: str | Path, code: int = 0) -> str:
    """What a command prints that runs in this process, for a fixture of several tests; or its messages, if it fails."""
    with contextlib.chdir(folder), own_messages():
        done = run_here(*words)
    assert done.code == code, f"{words}\n{done.out}\n{done.err}"
    return done.err if code else done.out


@pytest.fixture
def graphmill(tmp_path, monkeypatch):
    """Run a command in an empty folder: `graphmill("plan", "toy.yaml")`."""
    monkeypatch.chdir(tmp_path)
    return run_here


@pytest.fixture(scope="session")
def _toy_root(tmp_path_factory) -> Path:
    from graphmill.tasks.node_classification.data.prepare import prepare

    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    return root


@pytest.fixture
def toy(tmp_path, monkeypatch, _toy_root) -> Path:
    """An experiment file whose dataset is prepared."""
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(_toy_root))
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    return path
