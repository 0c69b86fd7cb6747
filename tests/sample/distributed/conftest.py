"""Graphs whole and in parts, and real ranks that run a program of this folder on them."""

from pathlib import Path

import numpy as np
import pytest
from command_line import run_in
from labelled_stores import made_store
from ranks_of_a_program import told_by_ranks

from graphmill.graph.features import dense
from graphmill.runtime.process import PYG
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.store import write_store

PROGRAMS = Path(__file__).parent / "programs"
IMPORTS = ("graphmill.access.opening", "graphmill.tasks.node_classification.task")  # once, and not in each rank
SIZES = {"num_nodes": 1200, "num_edges": 12_000, "features": 7, "classes": 3}
DATASETS = ("synthetic/sbm", "debian-packages", "edgy", "typed")


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """Dense and sparse features, edges in both directions and not, in 1, 2 and 4 parts."""
    folder = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=folder, options=SIZES)
    prepare("debian-packages", root=folder)
    write_store(edgy(), folder / "edgy")
    made_store(folder / "typed", num_nodes=300, num_edges=6000, edge_features=True, typed=True)
    for dataset in DATASETS:
        for num_parts in (1, 2, 4):
            arguments = ["partition", dataset, "--num-parts", str(num_parts), "--method", "ldg"]
            arguments += ["--fanouts", "4", "--fanouts", "3", "--dataset-root", str(folder)]
            run_in(folder, *arguments)
    return folder


def edgy() -> LabelledGraph:
    """A graph whose edges have three features, given in one direction; in the order of no part."""
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 300, (2, 2500))
    return LabelledGraph(
        edge_index=edges,
        features=dense(rng.standard_normal((300, 5))),
        labels=np.arange(300) % 4,
        split=(rng.permutation(300) % 4 - 1).astype(np.int8),
        name="edgy",
        source="random",
        synthetic=True,
        edge_features=rng.standard_normal((2500, 3)).astype(np.float32),
        edge_feature_names=("a", "b", "c"),
    )


@pytest.fixture(name="told_by_ranks")
def _told_by_ranks(root, tmp_path, source_environ):
    """`told_by_ranks(program, ranks, num_parts, *words)`: what each rank wrote into its file."""

    def run(program: str, ranks: int, num_parts: int, *words: object) -> list[dict]:
        asked = (root, num_parts, *words)
        imports = (*IMPORTS, PYG) if program == "loaders.py" else IMPORTS
        return told_by_ranks(PROGRAMS / program, ranks, tmp_path, *asked, environ=source_environ, imports=imports)

    return run
