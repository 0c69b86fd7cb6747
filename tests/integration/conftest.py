"""Real runs: prepared graphs, plans for them, and ranks as processes of this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run_in
from waiting import HANG_S, is_alive

from graphmill.cluster.launch.local import reserved_port
from graphmill.record.events import Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.secret import new_token
from graphmill.spec.plan import Plan
from graphmill.spec.world import World
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.sources.generate import generate
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment

PROGRAMS = Path(__file__).parent / "programs"
SOURCE = Path(__file__).parents[2] / "src"
CORA = Path(__file__).resolve().parents[3] / "shared" / "data" / "nodes" / "cora.npz"


@pytest.fixture(scope="session")
def environ() -> dict[str, str]:
    """For child processes: one thread each, no spinning, this checkout's code; of no outer run and no one test."""
    mine = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "PYTEST_CURRENT_TEST")
    }
    paths = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(SOURCE), str(PROGRAMS))))
    return {
        **mine,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "GLOO_SOCKET_IFNAME": "lo",
    }


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared graphs: `cora` (140 training nodes; a stand-in where the real one is not here), `tiny` (2 of them)."""
    root = tmp_path_factory.mktemp("data")
    options = {"num_nodes": 400, "num_edges": 3000, "features": 12, "communities": 4, "signal": 1.0}
    raw = generate("sbm", {**options, "num_nodes": 12, "num_edges": 40}, "tiny")
    write_store(replace(raw, split=np.array([0, 0, *[1] * 5, *[2] * 5], dtype=np.int8)), root / "tiny")
    if CORA.exists():
        prepare("cora", root=root, from_path=CORA)
    else:
        prepare("synthetic/sbm", root=root, save_as="cora", options={**options, "num_nodes": 234, "communities": 7})
    return root


@pytest.fixture(scope="session")
def cut_into(data_root: Path):
    """`cut_into(dataset, num_parts)`: the name of a prepared graph in parts, made when it is first asked for."""

    @cache
    def cut(dataset: str, num_parts: int) -> str:
        words = ("--num-parts", str(num_parts), "--method", "ldg", "--dataset-root", str(data_root))
        run_in(data_root, "partition", dataset, *words)
        return f"parts/{dataset}/{num_parts}-ldg"

    return cut


@pytest.fixture(scope="session")
def planned(data_root: Path):
    """Makes plans: short runs of a small model, unless told otherwise."""

    def plan(run_id: str, *, dataset: str = "cora", model: dict[str, Any] | None = None, **train: Any) -> Plan:
        own = {"kind": "graphsage", "hidden_channels": 8, "num_layers": 2, "dropout": 0.5}
        settings = {
            "epochs": 2,
            "batch_size": 10,
            "num_neighbors": [3, 3],
            "optimizer": {"kind": "adam", "lr": 0.01},
            "threads": 1,
            "baselines": False,  # they take longer than such a run
        }
        wanted = model or {}
        experiment = NodeClassificationExperiment.model_validate(
            {
                "dataset": {"name": dataset},
                "model": wanted if "kind" in wanted else {**own, **wanted},
                "train": {**settings, **train},
            }
        )
        return plan_experiment(experiment, dataset_root=data_root, run_id=run_id)

    return plan


@pytest.fixture(scope="session")
def train_all(zygote: "Zygote", tmp_path_factory: pytest.TempPathFactory):
    """Trains plans one after the other, each by ranks of its own. Returns their folders by run id."""

    def train(plans: list[Plan]) -> dict[str, RunFolder]:
        root = tmp_path_factory.mktemp("logs")
        folders = {plan.run_id: RunFolder.create(plan, root) for plan in plans}
        for folder in folders.values():
            codes = zygote.wait(zygote.start(folder, resume=False))
            assert set(codes) == {0}, zygote.said(folder)
        return folders

    return train


@pytest.fixture(scope="session")
def syncs():
    """The sync events of every rank of a run: a list per rank."""

    def read(folder: RunFolder) -> list[list[Sync]]:
        ranks = range(folder.read_plan().ranks)
        return [events_in(folder.events_path(rank), Sync) for rank in ranks]

    return read


@pytest.fixture(scope="session")
def last_checkpoint():
    """The folder of the checkpoint at the end of a run that is done."""
    return lambda folder: max(folder.checkpoints_dir.glob("step_*"))


class Zygote:
    """The process that ranks are forked from."""

    def __init__(self, environ: dict[str, str], logs: Path) -> None:
        self.logs = logs
        self.process = subprocess.Popen(
            [sys.executable, PROGRAMS / "zygote.py"],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running: list[int] = []
        self.at_port, self.token = 0, ""
        self.port = ExitStack()  # of the ranks that run: no test beside this one is given it

    def start(
        self,
        folder: RunFolder,
        *,
        resume: bool,
        die_at: int = 0,
        dies: tuple[int, str] | None = None,
        ranks: int | None = None,
        world: World | None = None,
        port: int | None = None,
        job_id: str = "",
    ) -> list[int]:
        """Start the ranks of a run, as many as planned unless told otherwise; returns their process ids.

        `world`: the attempt has these processes; `ranks`: other ranks are started than the attempt has.
        `port`: of the rendezvous, which another process may hold; None: one that is free.
        `die_at`, `dies`: when one of them kills itself (programs/zygote.py).

        Ranks that a failed test has left running are ended first: their answer must not be taken for the next one.
        """
        if self.running:
            self.kill(self.running)
            self.wait(self.running)
        self.port.close()
        self.at_port = self.port.enter_context(reserved_port("127.0.0.1")) if port is None else port
        self.token = new_token()
        folder.begin_attempt(resumed=resume, command=["test"], world=world, job_id=job_id)
        log = self._log(folder)
        ranks = folder.world().processes if ranks is None else ranks
        request = {"ranks": ranks, "folder": str(folder.path), "resume": resume, "log": str(log), "die_at": die_at}
        request |= {"port": self.at_port, "token": self.token, "dies": dies}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        self.running = self._answer()
        return self.running

    def wait(self, pids: list[int], *, patience_s: float | None = None) -> list[int]:
        """Exit codes of all ranks. `patience_s` after one has ended those that still live are killed, as by a launcher.

        On a busy machine they may not have begun by then: only an end starts the clock, or that none ends.
        """
        ended = threading.Event()
        killer = threading.Thread(target=self._end_others, args=(pids, patience_s, ended))
        if patience_s is not None:
            killer.start()
        codes = self._answer()
        self.running = []
        ended.set()
        if patience_s is not None:
            killer.join()
        return codes

    def _end_others(self, pids: list[int], patience_s: float, ended: threading.Event) -> None:
        give_up = time.monotonic() + HANG_S
        while all(map(is_alive, pids)) and time.monotonic() < give_up:
            if ended.wait(0.05):
                return
        if not ended.wait(patience_s):
            self.kill(pids)

    def said(self, folder: RunFolder) -> str:
        """What the ranks of a run printed, in all attempts."""
        return "\n".join(path.read_text() for path in sorted(self.logs.glob(f"{self._log(folder).name}.[0-9]")))

    def changes(self, folder: RunFolder) -> int:
        """How often rank 0 of a run that was started with `die_at=-1` changed the file system."""
        return int(Path(f"{self._log(folder)}.count").read_text())

    def _log(self, folder: RunFolder) -> Path:
        return self.logs / str(folder.path).strip("/").replace("/", "_")

    @staticmethod
    def kill(pids: list[int], number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to those of the ranks that still live."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        self.kill(self.running)
        self.port.close()
        self.process.stdin.close()
        self.process.wait(timeout=HANG_S)

    def _answer(self) -> list[int]:
        line = self.process.stdout.readline()
        assert line, "the zygote died"
        return json.loads(line)


@pytest.fixture(scope="session")
def zygote(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Starts ranks in a blink."""
    started = Zygote(environ, tmp_path_factory.mktemp("said"))
    yield started
    started.close()
