"""In a real notebook kernel: a bar while a run lasts, its epochs, its pictures inline, and interrupting it."""

import os
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="the extra dev has nbclient and ipykernel: make install")
nbformat = pytest.importorskip("nbformat")

pytestmark = pytest.mark.distributed

CELLS = (
    "import graphmill",
    "run = graphmill.train('toy.yaml', run_id='mine', epochs=3)",
    "run",
    "graphmill.compare('logs')",
    "graphmill.train('toy.yml')",
    "import os, signal, threading\n"
    "def stop():\n"
    "    while not os.path.exists('logs/long/metrics.csv'): pass\n"
    "    os.kill(os.getpid(), signal.SIGINT)\n"  # as the kernel's stop button
    "threading.Thread(target=stop).start()\n"
    "graphmill.train('toy.yaml', run_id='long', epochs=100000)",
)


@pytest.fixture
def outputs(toy, monkeypatch) -> list[list]:
    """What each cell shows."""
    monkeypatch.chdir(toy.parent)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it, ipykernel leaves what child processes print to the test
    monkeypatch.setenv("IPYTHONDIR", str(toy.parent / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=240, allow_errors=True).execute(env=dict(os.environ))
    return [cell.outputs for cell in notebook.cells]


def text_of(shown: list) -> str:
    return "".join(each.text for each in shown if each.output_type == "stream")


def html_of(shown: list) -> str:
    return "".join(each.data.get("text/html", "") for each in shown if "data" in each)


def error_of(shown: list) -> tuple[str, str]:
    (error,) = (each for each in shown if each.output_type == "error")
    return error.ename, error.evalue


def test_a_notebook_shows_the_run_and_its_pictures(outputs):
    _, trained, run, compared, refused, stopped = outputs
    assert "epoch 3/3  loss" in text_of(trained), "what rank 0 prints"
    assert "\x1b" not in text_of(trained), "its own bars are a terminal's"
    assert "logs/mine: 3 epochs" in text_of(trained), "the message of the command"
    assert '<progress value="3" max="3">' in html_of(trained)
    assert "mine  done" in html_of(trained)
    assert html_of(run).count("<svg ") == 2
    assert "micro-F1" in html_of(run)
    assert "<table" in html_of(compared)
    assert error_of(refused) == ("UserError", "toy.yml does not exist\n  → name a YAML file that holds an experiment")
    name, words = error_of(stopped)
    assert name == "EndedError"
    assert words.endswith("→ continue with `graphmill train --resume logs/long`")
    assert list(Path("logs/long/checkpoints").glob("step_*"))
