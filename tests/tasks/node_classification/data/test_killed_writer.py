"""A writer that is killed leaves a whole store or none, and the next one clears what it left."""

import os
import random
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.base.files import remove_leftovers, replacing_folder
from graphmill.graph.features import dense
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store

WRITER = """
import sys
from pathlib import Path
import numpy as np
from graphmill.graph.features import dense
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store

rng = np.random.default_rng(0)
raw = LabelledGraph(
    edge_index=rng.integers(0, 20_000, (2, 400_000)), features=dense(rng.random((20_000, 32))),
    labels=rng.integers(0, 5, 20_000), split=rng.integers(0, 3, 20_000).astype(np.int8),
    name="killed", source="random", synthetic=True,
)
while True:  # the first round writes where nothing is, the others replace
    print("writing", flush=True)
    write_store(raw, Path(sys.argv[1]))
"""


def kill_while_writing(path, environ, delay_s):
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env=environ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay_s)
        writer.kill()
    assert writer.returncode == -signal.SIGKILL


def check_kills(tmp_path, environ, num_kills, seed):
    rng = random.Random(seed)
    path = tmp_path / "store"
    outcomes = []
    for _ in range(num_kills):
        kill_while_writing(path, environ, rng.uniform(0, 0.6))
        if path.exists():
            LabelledGraphStore.open(path).verify()
        outcomes.append((path.exists(), bool(list(tmp_path.glob(".*.tmp")))))
        if rng.random() < 0.5 and path.exists():
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
    assert any(left for _, left in outcomes), "no kill hit a write: the test proves nothing"
    write_store(small(), path).verify()
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


def small():
    return LabelledGraph(
        edge_index=np.array([[0], [1]]),
        features=dense(np.ones((2, 1))),
        labels=np.array([0, 1]),
        split=np.array([0, 1], dtype=np.int8),
        name="small",
        source="by hand",
        synthetic=True,
    )


def test_killed_writers(tmp_path, source_environ):
    check_kills(tmp_path, source_environ, num_kills=5, seed=1)


@pytest.mark.slow
def test_killed_writers_at_length(tmp_path, source_environ):
    check_kills(tmp_path, source_environ, num_kills=60, seed=2)


def test_writers_at_the_same_time_take_turns(tmp_path, source_environ):
    rounds = WRITER.replace("while True:", "for _ in range(3):")
    command = [sys.executable, "-c", rounds, str(tmp_path / "store")]
    writers = [subprocess.Popen(command, stdout=subprocess.DEVNULL, env=source_environ) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    LabelledGraphStore.open(tmp_path / "store").verify()
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


def test_a_failing_block_leaves_the_old_folder(tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "old").write_text("old")

    def fail():
        with replacing_folder(tmp_path / "f") as temporary:
            (temporary / "new").write_text("new")
            raise UserError("no", fix="try again")

    with pytest.raises(UserError):
        fail()
    assert [path.name for path in tmp_path.rglob("*")] == ["f", "old"]


def test_another_writer_may_put_the_folder_there_first(tmp_path):
    with replacing_folder(tmp_path / "f") as temporary:
        (temporary / "new").write_text("new")
        (tmp_path / "f").mkdir()
        (tmp_path / "f" / "theirs").write_text("theirs")
    assert [path.name for path in tmp_path.rglob("*")] == ["f", "new"]


def test_leftovers_of_the_living_and_of_other_hosts_stay(tmp_path):
    host = socket.gethostname()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = {
        f".s.{host}@{dead.pid}.new.tmp": False,
        f".s.{host}@{dead.pid}.old.tmp": False,
        f".s.{host}@{os.getppid()}.new.tmp": True,
        f".s.elsewhere@{dead.pid}.new.tmp": True,
        f".other.{host}@{dead.pid}.new.tmp": True,
        ".s.mine.tmp": True,
    }
    for name in names:
        (tmp_path / name).mkdir()
    remove_leftovers(tmp_path / "s")
    assert {path.name for path in tmp_path.iterdir()} == {name for name, stays in names.items() if stays}
