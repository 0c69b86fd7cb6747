"""A parts folder holds the store's rows, each once, whatever the form of the store and however small the chunks."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled_stores import made_store, split_made
from slow_cases import num_examples

from graphmill.partition import write
from graphmill.partition.metadata import part_folder
from graphmill.partition.verify import verify_parts

FORMS = [
    {"symmetric": symmetric, "is_sparse": is_sparse, "edge_features": edge_features}
    for symmetric, is_sparse, edge_features in itertools.product((False, True), repeat=3)
]


@pytest.fixture(params=FORMS, ids=lambda form: "-".join(name for name, is_so in form.items() if is_so) or "plain")
def parted(request, tmp_path, monkeypatch):
    """The store, and its parts, written in chunks of a few rows."""
    monkeypatch.setattr(write, "CHUNK_BYTES", 128)
    store = made_store(tmp_path / "s", **request.param)
    return store, split_made(store, tmp_path / "p")


def test_what_was_written_verifies(parted):
    verify_parts(parted[1])


def test_every_node_has_the_row_that_it_had(parted):
    store, graph = parted
    for part in range(3):
        own = graph.part(part)
        nodes = own.node_ids
        np.testing.assert_array_equal(own.array("y"), store.array("y")[nodes])
        np.testing.assert_array_equal(own.array("split"), store.array("split")[nodes])
        if store.metadata.has_sparse_features:
            rows = [slice(*store.array("x_indptr")[node : node + 2]) for node in nodes]
            for name in ("x_indices", "x_values"):
                expected = np.concatenate([store.array(name)[row] for row in rows])
                np.testing.assert_array_equal(own.array(name), expected)
            np.testing.assert_array_equal(np.diff(own.array("x_indptr")), [row.stop - row.start for row in rows])
        else:
            np.testing.assert_array_equal(own.array("x"), store.array("x")[nodes])


@pytest.mark.parametrize("undirected", [False, True])
def test_edges_and_their_features_are_those_of_the_whole(parted, undirected):
    store, graph = parted
    whole = store.topology(undirected=undirected)
    for part in range(3):
        own = graph.part(part)
        topology, entries = own.topology(undirected=undirected), own.first_entries(undirected=undirected)
        row_of = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
        edge_ids = entries[row_of] + np.arange(topology.num_edges) - topology.indptr[row_of]
        np.testing.assert_array_equal(topology.indices, whole.indices[edge_ids])
        targets = np.repeat(np.arange(whole.num_nodes), np.diff(whole.indptr))
        np.testing.assert_array_equal(own.node_ids[row_of], targets[edge_ids])
        if store.metadata.edge_features:
            features = store.edge_features(undirected=undirected)
            expected = features.values[features.rows_of(edge_ids)]
            np.testing.assert_array_equal(own.edge_attr(undirected=undirected), expected)


def test_the_metadata_say_what_the_store_said(parted):
    store, graph = parted
    known = graph.metadata
    assert known.kind == store.metadata.kind
    assert known.name == store.metadata.name
    assert known.synthetic
    assert known.store_checksum == store.metadata.checksum
    assert known.store["class_names"] == ["a", "b", "c"]
    assert known.store["splits"] == store.metadata.splits
    assert set(known.store).isdisjoint({"arrays", "checksum", "kind", "name", "created_by"})
    assert sum(known.quality["nodes"]) == store.metadata.num_nodes
    assert sum(known.quality["edges"]) == store.metadata.num_edges
    assert sum(known.quality["train"]) == store.metadata.splits["train"]


@settings(max_examples=num_examples(30))
@given(num_nodes=st.integers(3, 40), num_edges=st.integers(1, 90), num_parts=st.integers(1, 3), seed=st.integers(0, 99))
def test_any_graph_comes_back_whole(tmp_path_factory, num_nodes, num_edges, num_parts, seed):
    folder = tmp_path_factory.mktemp("any")
    store = made_store(folder / "s", num_nodes=num_nodes, num_edges=num_edges, symmetric=seed % 2 == 0, seed=seed)
    graph = split_made(store, folder / "p", num_parts=num_parts, rng_seed=seed)
    verify_parts(graph)
    nodes = np.concatenate([graph.part(part).node_ids for part in range(num_parts)])
    assert sorted(nodes) == list(range(num_nodes))
    np.testing.assert_array_equal(graph.book.storage_of(nodes), np.arange(num_nodes))


def test_the_same_bytes_whatever_the_chunks(tmp_path, monkeypatch):
    store = made_store(tmp_path / "s", edge_features=True)
    large = split_made(store, tmp_path / "large").metadata
    monkeypatch.setattr(write, "CHUNK_BYTES", 64)
    assert split_made(store, tmp_path / "small").metadata.checksum == large.checksum


def test_rankings_stand_beside_the_rows(tmp_path):
    def rank(topology, parts, seeds_by_part, fanouts):
        assert fanouts == (4, 2)
        assert [parts[seeds].tolist() for seeds in seeds_by_part] == [
            [part] * len(s) for part, s in enumerate(seeds_by_part)
        ]
        return {"degree": [np.flatnonzero(parts != part).astype(np.int32) for part in range(3)]}

    graph = split_made(made_store(tmp_path / "s"), tmp_path / "p", rank, fanouts=(4, 2))
    assert graph.metadata.fanouts == (4, 2)
    for part in range(3):
        assert not np.isin(graph.part(part).array("hot/degree"), graph.part(part).node_ids).any()
        assert (graph.path / part_folder(part) / "hot" / "degree.npy").is_file()
