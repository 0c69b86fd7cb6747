"""Labels of training nodes propagated along edges: a baseline, and columns that SIGN reads beside features.

Y ← α S Y + (1 − α) Y₀ (Zhou et al. 2004), where S = D^-1/2 A D^-1/2 has no self-loops. What is computed is D^-1/2 Y,
of which a step is a mean over in-neighbours: shares of labels in a row are the same.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.graph.topology import Topology

FOLDS: Final = 5
"""Of training nodes that read the labels of all the others: few, for all labels are propagated so many times."""

_ALPHA: Final = 0.9  # what a node takes from its neighbours
ROUNDS: Final = 50
_LEAST: Final = 1e-30  # what reaches a node and is less has lost its digits


@dataclass(frozen=True, slots=True)
class KnownLabels:
    """What is known of some nodes: the class of each, or 0 and 1 of each of several labels."""

    nodes: NDArray[np.int64]  # [n], distinct
    labels: NDArray[Any]  # [n], or [n, num_labels]
    num_labels: int  # classes, or labels

    def of(self, chosen: NDArray[np.bool_]) -> "KnownLabels":
        """What is known of some of them; `chosen` [n]."""
        return KnownLabels(self.nodes[chosen], self.labels[chosen], self.num_labels)

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Nodes and columns that are 1 in Y₀ [num_nodes, num_labels + 1], whose last column says which are known."""
        if self.labels.ndim == 1:
            nodes, columns = self.nodes, self.labels.astype(np.int64)
        else:
            rows, columns = np.nonzero(self.labels)
            nodes = self.nodes[rows]
        known = np.full(len(self.nodes), self.num_labels, dtype=np.int64)
        return np.concatenate([nodes, self.nodes]), np.concatenate([columns, known])


def label_shares(topology: Topology, known: KnownLabels) -> NDArray[np.float32]:
    """Share of each label in what reaches each node.

    Returns:
        [num_nodes, num_labels + 1], float32; the last column is 1, and where nothing reaches a node its row is 0.
    """
    return _shares(_reaching(topology, known))


def label_shares_of_others(topology: Topology, known: KnownLabels, rng_seed: int) -> NDArray[np.float32]:
    """Share of each label in what reaches each node, of nodes with a known label by those of the other folds alone.

    So none reads its own. A function of the data and `rng_seed` alone. Besides the result twice its size is in memory.

    Returns:
        [num_nodes, num_labels], float32; where nothing reaches a node its row is 0.
    """
    folds = _folds_of(known.nodes, rng_seed)
    found = np.zeros((topology.num_nodes, known.num_labels + 1), dtype=np.float32)
    for fold in range(FOLDS):
        own = known.of(folds == fold)
        of_fold = _reaching(topology, own)
        of_fold[own.nodes] = 0  # added up without them, and not taken off again, which rounding would give away
        found += of_fold
    return _shares(found)[:, :-1]


def _folds_of(nodes: NDArray[np.int64], rng_seed: int) -> NDArray[np.int64]:
    """Which fold each node is in [n], as many in one as in another."""
    keys = keys_below(key_of(rng_seed, Purpose.LABEL_FOLDS), nodes)
    folds = np.empty(len(nodes), dtype=np.int64)
    folds[np.argsort(keys, kind="stable")] = np.arange(len(nodes)) % FOLDS
    return folds


def _reaching(topology: Topology, known: KnownLabels) -> NDArray[np.float32]:
    """D^-1/2 Y after all rounds [num_nodes, num_labels + 1]."""
    nodes, columns = known.entries()
    begun = (np.maximum(np.diff(topology.indptr)[nodes], 1) ** -0.5).astype(np.float32)
    found = np.zeros((topology.num_nodes, known.num_labels + 1), dtype=np.float32)
    found[nodes, columns] = begun
    following = np.empty_like(found)
    for _ in range(ROUNDS):
        _native.segment_mean(found, topology.indptr, topology.indices, following, torch.get_num_threads())
        following *= _ALPHA
        following[nodes, columns] += np.float32(1 - _ALPHA) * begun
        found, following = following, found
    return found


def _shares(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """Divide rows by their last column, in place."""
    whole = sums[:, -1:].copy()
    np.divide(sums, whole, out=sums, where=whole > _LEAST)
    sums *= whole > _LEAST
    return sums
