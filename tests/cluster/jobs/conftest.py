"""A real Slurm to submit scripts to."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import HANG_S

from graphmill.base.errors import UserError
from graphmill_devcluster.description import ENVIRONMENT_NAME, Description
from graphmill_devcluster.requirements import check_requirements

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def submit_all():
    """Submits every *.sbatch of a folder; returns what sbatch and Slurm said of each, by stem.

    In a dev cluster of its own, also where the whole session is inside one: it waits until no job is left.
    """
    try:
        check_requirements(Description(ssh=False, accounting=False))
    except UserError as error:
        pytest.skip(f"no dev cluster here: {error.message}")

    def submit(folder: Path, *options: str, cluster: Sequence[str] = ()) -> dict[str, Any]:
        driver = [sys.executable, str(PROGRAMS / "submit_all.py"), str(folder), *options]
        graphmill = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--no-accounting"]
        graphmill += ["--min-job-age-s", "86400"]  # no job is forgotten before the last one has ended
        done = subprocess.run([*graphmill, *cluster, "--", *driver], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads((folder / "answers.json").read_text())

    return submit


TOY = """# A toy
name: toy
dataset: {name: synthetic/sbm}
model: {hidden_channels: 8}
train: {epochs: 2, batch_size: 60, num_neighbors: [4, 4], threads: 1, baselines: false}
slurm: {site: devcluster, time: 10}
"""


class Cluster:
    """A dev cluster that stays up while tests run commands in it. Only one may run at a time."""

    def __init__(self) -> None:
        driver = [sys.executable, str(PROGRAMS / "shell_inside.py")]
        inside = ENVIRONMENT_NAME in os.environ
        start = [sys.executable, "-m", "graphmill.cli", "devcluster", "run", "--no-ssh", "--"]
        self._shell = subprocess.Popen(
            driver if inside else [*start, *driver],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        first = self._line()
        while first and first != "ready\n":
            first = self._line()
        assert first == "ready\n", "the dev cluster did not come up"
        tell = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
        self.environ: dict[str, str] = json.loads(self._ask(tell, "/", None)["out"])

    def run(self, *command: str | Path, cwd: Path, timeout_s: float = HANG_S, **environ: str) -> SimpleNamespace:
        """Run a command on the login host of the cluster."""
        words = [str(word) for word in command]
        return SimpleNamespace(**self._ask(words, str(cwd), {**self.environ, **environ}, timeout_s))

    def graphmill(self, *words: str | Path, cwd: Path, timeout_s: float = HANG_S, **environ: str) -> SimpleNamespace:
        """Run `graphmill …` on the login host."""
        return self.run(sys.executable, "-m", "graphmill.cli", *words, cwd=cwd, timeout_s=timeout_s, **environ)

    def wait_for(self, cwd: Path, run: str, *states: str, timeout_s: float = HANG_S) -> dict[str, Any]:
        """Look at a run until it is in one of these states."""
        until = time.monotonic() + timeout_s
        while True:
            answer = self.graphmill("watch", run, "--once", "--json", cwd=cwd)
            view = json.loads(answer.out)["runs"][0]
            if view["state"] in states:
                return view
            assert time.monotonic() < until, view
            time.sleep(0.2)

    def close(self) -> None:
        self._shell.stdin.write("null\n")  # in words: a fork of this process may hold the other end of the pipe, too
        self._shell.stdin.close()
        self._shell.wait(timeout=HANG_S)

    def _ask(
        self, words: list[str], cwd: str, environ: dict[str, str] | None, timeout_s: float = HANG_S
    ) -> dict[str, Any]:
        request = {"command": words, "cwd": cwd, "environ": environ, "timeout_s": timeout_s}
        self._shell.stdin.write(json.dumps(request) + "\n")
        self._shell.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        return self._shell.stdout.readline()


@pytest.fixture
def cluster(login_host, alone_on_slurm) -> Cluster:
    """A real Slurm with accounts, for this test alone, and a small dataset; $GRAPHMILL_DATA_ROOT names it."""
    return login_host


@pytest.fixture(scope="session")
def login_host(tmp_path_factory) -> Iterator[Cluster]:
    try:
        check_requirements(Description(ssh=False))
    except UserError as error:
        pytest.skip(f"no dev cluster here: {error.message}")
    from graphmill.tasks.node_classification.data.prepare import prepare

    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    made = Cluster()
    made.environ["GRAPHMILL_DATA_ROOT"] = str(root)
    yield made
    made.close()


@pytest.fixture
def toy(tmp_path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    return path
