"""Graphs without labels: prepared from each source, inspected, partitioned, sampled; training says what is missing."""

from pathlib import Path

import numpy as np
import polars
import pytest
import torch
from labelled_stores import split_made
from torch_geometric.data import Data

import graphmill as package
from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.data.describe import describe
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.sources.pyg import from_data
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store

EDGES = np.random.default_rng(0).integers(0, 40, (2, 160))
X = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)


def of_archive(folder: Path) -> LabelledGraphStore:
    np.savez(folder / "g.npz", edge_index=EDGES, x=X)
    return prepare("u", root=folder, from_path=folder / "g.npz")


def of_tables(folder: Path) -> LabelledGraphStore:
    (folder / "g").mkdir()
    polars.DataFrame({"src": EDGES[0], "dst": EDGES[1]}).write_csv(folder / "g/edges.csv")
    polars.DataFrame({"id": np.arange(40), "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}).write_csv(folder / "g/nodes.csv")
    return prepare("u", root=folder, from_path=folder / "g")


def of_data(folder: Path) -> LabelledGraphStore:
    data = Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(EDGES))
    return write_store(from_data(data, name="u"), folder / "u")


@pytest.mark.parametrize("source", [of_archive, of_tables, of_data])
def test_it_is_stored_whole_and_every_node_can_be_sampled(source, tmp_path):
    store = source(tmp_path)
    store.verify()
    store = LabelledGraphStore.open(tmp_path / "u")
    assert dict(store.described())["labels"] == "none"
    assert describe(store)["num_classes"] == 0
    assert (np.asarray(store.labels) == -1).all()
    split_made(store, tmp_path / "parts", num_parts=2, method="ldg")
    parts = package.open_partitioned(tmp_path / "parts")
    batches = list(package.NeighborLoader(parts, [-1, -1], batch_size=16))
    assert torch.equal(torch.cat([batch.input_id for batch in batches]), torch.arange(40))
    for batch in batches:
        assert "y" not in batch
        np.testing.assert_allclose(batch.x, X[batch.n_id], rtol=1e-6)


def test_commands_say_that_there_are_no_labels_and_what_can_be_done(graphmill, tmp_path):
    np.savez("g.npz", edge_index=EDGES, x=X)
    made = graphmill("prepare", "u", "--from", "g.npz")
    assert "has no labels" in made.err
    assert graphmill("partition", "u", "--num-parts", "1").code == 0
    for name in ("u", "parts/u/1-kaminpar"):
        for command in ("train", "plan"):
            refused = graphmill(command, "-O", f"dataset.name={name}")
            assert refused.code == 2
            assert "u has no labels" in refused.err
            assert "graphmill partition u" in refused.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"train_mask": np.arange(40) < 20}, "train split and has no label"),
        ({"split": np.zeros(40, np.int64)}, "train split and has no label"),
        ({"y": np.full(40, -1)}, "no split"),
    ],
)
def test_a_split_of_nodes_without_labels_is_refused(more, says, tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=EDGES, x=X, **more)
    with pytest.raises(UserError, match=says):
        prepare("u", root=tmp_path, from_path=tmp_path / "g.npz")


def test_a_random_split_needs_labels(tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=EDGES, x=X)
    with pytest.raises(UserError, match="no node has a label"):
        prepare("u", root=tmp_path, from_path=tmp_path / "g.npz", random_split=True)


def test_a_column_that_may_be_meant_as_the_label_is_asked_for(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "nodes.csv").write_text("id,labels,a\n0,0,1\n1,1,2\n")
    with pytest.raises(UserError, match="did you mean 'labels'"):
        prepare("u", root=tmp_path, from_path=tmp_path)


def test_class_names_of_a_graph_without_labels_are_said_not_to_be_used(tmp_path, caplog):
    np.savez(tmp_path / "g.npz", edge_index=EDGES, x=X, class_names=np.array(["a", "b"]))
    store = prepare("u", root=tmp_path, from_path=tmp_path / "g.npz")
    assert store.metadata.class_names == ()
    assert "not used: class_names" in caplog.text
