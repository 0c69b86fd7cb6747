"""Prepare a store under the dataset root from graphs as others keep them, or from generated ones."""

import logging

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.graph_set import GraphSet
from graphmill.tasks.graph_classification.data.folds import SPLIT_CODES, at_random
from graphmill.tasks.graph_classification.data.read import Read, read_graphs
from graphmill.tasks.graph_classification.data.store import GraphSetStore, RawGraphs, write_graphs
from graphmill.tasks.graph_classification.page import GraphSetPrepareOptions
from graphmill.tasks.stores import Preparation, store_path

_log = logging.getLogger(__name__)

GENERATED = "synthetic/motifs"
_NUM_GRAPHS = 600


def prepare_requested(preparation: Preparation) -> GraphSetStore:
    """Build the store that is asked for, whole or not at all; an existing one is kept, unless `force`."""
    options = preparation.options
    assert isinstance(options, GraphSetPrepareOptions)
    stored = preparation.save_as or preparation.name
    path = store_path(stored, preparation.root)
    if path.exists() and not preparation.force:
        store = GraphSetStore.open(path)
        if preparation.from_path is not None or options.model_fields_set:
            raise UserError(f"{path} holds a prepared dataset", fix="rebuild it with --force, or choose another name")
        _log.info(f"{stored} is prepared already: {path}")
        return store
    generated = preparation.name == GENERATED
    own = {"num_graphs", "seed"} & options.model_fields_set
    if generated and preparation.from_path is not None:
        raise UserError(
            f"{GENERATED} is generated and reads nothing from {preparation.from_path}", fix="leave --from out"
        )
    if not generated and preparation.from_path is None:
        raise UserError(
            f"{preparation.name} needs --from", fix="give the folder or NAME.zip of TUDataset, or a .npz file"
        )
    if not generated and own:
        raise UserError(
            f"{preparation.name} is not generated and takes no {', '.join(sorted(own))}", fix="leave them out"
        )
    if preparation.from_path is None:
        read = motifs(options.num_graphs or _NUM_GRAPHS, options.seed or 0)
    else:
        read = read_graphs(preparation.from_path.expanduser())
    for note in read.notes:
        _log.info(note)
    return write_graphs(labelled(read, stored, options.split_seed, synthetic=generated), path)


def labelled(read: Read, name: str, split_seed: int, *, synthetic: bool) -> RawGraphs:
    """Classes counted from 0, in the order of the labels; and a split, drawn if there is none."""
    if len(read.labels) != read.graphs.num_graphs or not len(read.labels):
        raise UserError(
            f"{name} has {read.graphs.num_graphs:,} graphs and {len(read.labels):,} labels", fix="give each a label"
        )
    if not np.isfinite(read.graphs.x).all() or not np.isfinite(read.graphs.edge_attr).all():
        raise UserError(f"{name} has features that are not finite numbers", fix="replace them before")
    values, labels = np.unique(read.labels, return_inverse=True)
    split, note = read.split, "as given in the file"
    if split is None:
        split, note = at_random(labels, split_seed), f"drawn, 80/10/10 of each class, seed {split_seed}"
    elif len(split) != len(labels) or not np.isin(split, list(SPLIT_CODES.values())).all():
        raise UserError(
            f"{name}: split must be {SPLIT_CODES} for each graph", fix="write split as such, or leave it out"
        )
    names = () if np.array_equal(values, np.arange(len(values))) else tuple(str(value) for value in values)
    return RawGraphs(name, read.source, synthetic, read.graphs, labels.astype(np.int64), names, split, note)


def motifs(num_graphs: int, seed: int) -> Read:
    """Graphs of one of three motifs on a random tree: a ring of 6, a clique of 4, a star of 7 hung on it.

    Nodes have a constant feature and a random one, so the class is in the structure alone.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(num_graphs) % len(_MOTIFS)
    nodes, edges = [], []
    for label in labels:
        motif = _MOTIFS[label]
        tree = int(rng.integers(8, 30))
        size = tree + int(motif.max()) + 1
        parents = np.array([rng.integers(0, node) for node in range(1, tree)])
        pairs = np.concatenate(
            [np.stack([np.arange(1, tree), parents]), motif + tree, [[int(rng.integers(tree))], [tree]]], axis=1
        )
        nodes.append(size)
        edges.append(np.concatenate([pairs, pairs[::-1]], axis=1))
    x = np.ones((sum(nodes), 2), np.float32)
    x[:, 1] = rng.random(len(x))
    counts = np.array([each.shape[1] for each in edges])
    graphs = GraphSet.of(np.array(nodes), counts, np.concatenate(edges, axis=1), x)
    return Read(f"generated, seed {seed}", graphs, labels, None)


def _ring(size: int) -> NDArray[np.int64]:
    return np.stack([np.arange(size), (np.arange(size) + 1) % size])


_MOTIFS = (_ring(6), np.stack(np.triu_indices(4, 1)), np.stack([np.zeros(6, np.int64), np.arange(1, 7)]))
