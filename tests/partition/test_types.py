"""Parts of a typed graph: types go with their nodes and edges, are counted, and are looked at by `verify`."""

import numpy as np
import pytest
from labelled_stores import made_store, split_made

from graphmill.base.errors import UserError
from graphmill.graph.header import read_header, seal, write_metadata
from graphmill.graph.write import write_all
from graphmill.partition import write
from graphmill.partition.metadata import PartsMetadata, read_parts_metadata
from graphmill.partition.parts import PartedGraph
from graphmill.partition.verify import verify_parts
from graphmill.spec.partition import METHODS

FORMS = [{"edge_features": True}, {"symmetric": True}, {"is_sparse": True}]


@pytest.fixture(params=FORMS, ids=lambda form: next(iter(form)))
def parted(request, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "CHUNK_BYTES", 128)
    store = made_store(tmp_path / "s", typed=True, **request.param)
    return store, split_made(store, tmp_path / "p")


def test_types_go_with_their_nodes_and_edges(parted):
    store, graph = parted
    verify_parts(graph)
    assert np.array_equal(graph.node_type, store.node_type)
    whole, values = store.topology(undirected=False), store.edge_features(undirected=False).values
    targets = np.repeat(np.arange(whole.num_nodes), np.diff(whole.indptr))
    wanted = set(zip(targets, whole.indices, map(tuple, values), strict=True))
    assert len(wanted) == whole.num_edges, "parallel edges are of different types"
    assert len(set(zip(targets, whole.indices, strict=True))) < whole.num_edges
    found = []
    for number in range(3):
        own = graph.part(number)
        assert np.array_equal(own.node_type, store.node_type[own.node_ids])
        here = own.topology(undirected=False)
        of_rows = np.repeat(own.node_ids, np.diff(here.indptr))
        found += zip(of_rows, here.indices, map(tuple, own.edge_attr(undirected=False)), strict=True)
    assert sorted(found) == sorted(wanted)


def test_types_are_counted(parted):
    store, graph = parted
    by_type, parts = graph.metadata.by_type, graph.book.part_of(graph.book.storage_of(np.arange(60)))
    for number, of_type in enumerate(by_type.nodes):
        assert list(of_type) == np.bincount(parts[store.node_type == number], minlength=3).tolist()
    whole, column = store.topology(undirected=False), store.edge_features(undirected=False).values[:, -1]
    is_cut = parts[whole.indices] != np.repeat(parts, np.diff(whole.indptr))
    assert list(by_type.cut_edges) == [int(np.count_nonzero(is_cut & (column == number))) for number in range(3)]
    ends = np.stack([np.repeat(np.arange(whole.num_nodes), np.diff(whole.indptr)), whole.indices])[:, is_cut]
    assert graph.metadata.quality["cut_edges"] == len(np.unique(np.sort(ends, axis=0), axis=1).T), "each pair once"
    assert graph.metadata.relation_names == store.metadata.relation_names


def test_parts_without_types_say_nothing_of_them(tmp_path):
    graph = split_made(made_store(tmp_path / "s"), tmp_path / "p")
    assert graph.metadata.by_type is None
    assert "by_type" not in read_header(graph.path).kind_fields


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_parallel_edges(tmp_path, method):
    if method in ("kaminpar", "metis"):
        pytest.importorskip({"kaminpar": "kaminpar", "metis": "pymetis"}[method])
    graph = split_made(made_store(tmp_path / "s", typed=True), tmp_path / "p", method=method, num_parts=2)
    verify_parts(graph)
    assert sum(map(sum, graph.metadata.by_type.nodes)) == 60


@pytest.mark.parametrize("name", ["node_book/node_type", "part_00001/edge_attr"])
def test_types_that_were_changed_are_found_whatever_their_checksums(tmp_path, name):
    graph = split_made(made_store(tmp_path / "s", typed=True), tmp_path / "p")
    known = read_parts_metadata(graph.path)
    values = np.array(np.load(graph.path / f"{name}.npy"))
    values.flat[0] = 9 if name.endswith("edge_attr") else 1 - values.flat[0]
    arrays = {**known.arrays, **write_all(graph.path, {name: values})}
    write_metadata(graph.path, seal(known.model_copy(update={"arrays": arrays})))
    with pytest.raises(UserError, match=name):
        verify_parts(PartedGraph.open(graph.path))


def test_counts_that_contradict_the_store_are_refused(tmp_path):
    graph = split_made(made_store(tmp_path / "s", typed=True), tmp_path / "p")
    known: PartsMetadata = graph.metadata
    for by_type in (None, known.by_type.model_copy(update={"nodes": ((1, 1, 1), (0, 0, 57))})):
        assert known.model_copy(update={"by_type": by_type}).disagreement()
