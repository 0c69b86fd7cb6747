"""Batches of a graph in parts are those of the graph stored whole, to the bit, for its seeds: blocks, features, labels.

Real ranks, each of which reads its own parts only; every policy, both topologies, both ways to hand out seeds.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import start
from waiting import HANG_S

from graphmill.graph.features import dense
from graphmill.tasks.node_classification.labelled import LabelledGraph
from graphmill.tasks.node_classification.prepare import prepare
from graphmill.tasks.node_classification.store import write_store

PROGRAM = Path(__file__).parent / "programs" / "batches.py"
SIZES = {"num_nodes": 1200, "num_edges": 12_000, "features": 7, "classes": 3}
DATASETS = ("synthetic/sbm", "debian-packages", "edgy")

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Dense and sparse features, edges in both directions and not, in 1, 2 and 4 parts."""
    folder = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=folder, options=SIZES)
    prepare("debian-packages", root=folder)
    write_store(edgy(), folder / "edgy")
    for dataset in DATASETS:
        for num_parts in (1, 2, 4):
            arguments = ["partition", dataset, "--num-parts", str(num_parts), "--method", "ldg"]
            arguments += ["--fanouts", "4", "--fanouts", "3", "--dataset-root", str(folder)]
            command = start(dict(os.environ), folder, *arguments)
            _, errors = command.communicate(timeout=HANG_S)
            assert command.returncode == 0, errors
    return folder


def edgy() -> LabelledGraph:
    """A graph whose edges have three features, given in one direction; in the order of no part."""
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 300, (2, 2500))
    return LabelledGraph(
        edge_index=edges,
        features=dense(rng.standard_normal((300, 5))),
        labels=np.arange(300) % 4,
        split=(rng.permutation(300) % 3).astype(np.int8),
        name="edgy",
        source="random",
        synthetic=True,
        edge_features=rng.standard_normal((2500, 3)).astype(np.float32),
        edge_feature_names=("a", "b", "c"),
    )


def found(root: Path, out: Path, ranks: int, num_parts: int, epochs: int) -> list[dict]:
    source = str(Path(__file__).parents[3] / "src")
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo"}
    environ |= {
        "WORLD_SIZE": str(ranks),
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), source))),
    }
    command = [sys.executable, PROGRAM, out / "meeting", out, root, str(num_parts), str(epochs)]
    started = [subprocess.Popen(command, env={**environ, "RANK": str(rank)}) for rank in range(ranks)]
    try:
        assert [rank.wait(timeout=HANG_S) for rank in started] == [0] * ranks
    finally:
        for rank in started:
            rank.kill()
            rank.wait()
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize(
    ("ranks", "num_parts"),
    [
        (1, 1),
        (1, 4),
        (2, 2),
        (4, 4),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in [(1, 2), (2, 1), (2, 4), (4, 1), (4, 2)]),
    ],
)
def test_batches_are_those_of_the_whole_graph(root, tmp_path, ranks, num_parts):
    for rank, cells in enumerate(found(root, tmp_path, ranks, num_parts, epochs=3)):
        assert len(cells) == 2 * 2 * 2 * (6 + 2) + 2 * 2 * 2 * 2
        broken = {words: cell["differences"] for words, cell in cells.items() if cell["differences"]}
        assert not broken, f"rank {rank}"
        asks = {words: cell for words, cell in cells.items() if cell["remote_rows"]}
        assert bool(asks) == (ranks > 1 and num_parts > 1), "each rank reads its own parts only"
        for words, cell in asks.items():
            assert cell["fetched_rows"] == cell["remote_rows"] or ", none," not in words
            assert cell["fetched_rows"] < cell["remote_rows"] or ", none," in words, words
