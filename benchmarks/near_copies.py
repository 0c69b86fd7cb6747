"""Test packages that are near-copies of training packages, and how much easier they are.

The test split of debian-packages is what came to the archive later. Much of it is an old package under a new version's
name: `linux-image-6.1` after `linux-image-5.10`. Such a node asks for memory, not for generalisation, so micro-F1 is
reported on the test nodes with and without a near-copy, beside the headline on all of them.
"""

import re
import statistics
import subprocess
import sys
import tempfile
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.record.run_folder import RunFolder
from graphmill.tasks.debian_packages import read_compact
from graphmill.tasks.node_classification.data.store import LabelledGraphStore

WHAT = "the same words in the description, or the same name but for digits"
Keys = list[object]


def near_copies(folders: list[Path]) -> dict[str, Any]:
    """Of finished runs of different seeds: the share of near-copies, and mean micro-F1 with and without."""
    store = LabelledGraphStore.open(Path(RunFolder.open(folders[0]).read_plan().dataset.path))
    is_copy = copies_in(names_of_packages(), words_of(store), store.nodes_in("train"), store.nodes_in("test"))
    found = [of_parts(is_right(folder, store), is_copy) for folder in folders]
    return {
        "what": WHAT,
        "num_test": len(is_copy),
        "share": float(is_copy.mean()),
        "micro_f1_with": statistics.mean(each[0] for each in found),
        "micro_f1_without": statistics.mean(each[1] for each in found),
        "by_seed": found,
    }


def copies_in(names: Keys, words: Keys, train: NDArray[np.int64], test: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of each test node, whether a training node has the same words, or the same name but for digits."""
    known_names = {stem(names[node]) for node in train}
    known_words = {words[node] for node in train if words[node]}  # no words at all: not the same words
    return np.array([stem(names[node]) in known_names or words[node] in known_words for node in test])


def stem(name: object) -> str:
    return re.sub(r"\d+", "#", str(name))


def of_parts(right: NDArray[np.bool_], is_copy: NDArray[np.bool_]) -> tuple[float, float]:
    """Micro-F1 (every node has one class: the share that is right) of nodes with and without a near-copy."""
    return float(right[is_copy].mean()), float(right[~is_copy].mean())


def names_of_packages() -> Keys:
    """Of the embedded file, in the order of node ids."""
    path = resources.files("graphmill.tasks") / "debian-packages.npz"
    return list(read_compact(Path(str(path))).names)


def words_of(store: LabelledGraphStore) -> Keys:
    """The set of words of each node's description, as a tuple of ascending numbers."""
    features = store.features
    indptr, indices = np.asarray(features.indptr), np.asarray(features.indices)  # type: ignore[union-attr]
    return [tuple(sorted(indices[begin:end].tolist())) for begin, end in pairwise(indptr)]


def is_right(folder: Path, store: LabelledGraphStore) -> NDArray[np.bool_]:
    """Of each test node, whether the best checkpoint's prediction is its class."""
    outcome = RunFolder.open(folder).read_outcome()
    assert outcome is not None
    with tempfile.TemporaryDirectory() as temporary:
        predictions = Path(temporary) / "test.npz"
        command = [sys.executable, "-m", "graphmill.cli", "predict", str(folder), "--output", str(predictions)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with np.load(predictions, allow_pickle=False) as found:
            nodes, predicted = found["node"], found["prediction"]
    assert np.array_equal(nodes, store.nodes_in("test"))
    right: NDArray[np.bool_] = predicted == store.labels[nodes]
    said = outcome.test["micro_f1"] if outcome.test else None
    assert said is not None
    assert abs(right.mean() - said) < 1e-3, f"predictions give {right.mean()}, and the run said {said}"
    return right
