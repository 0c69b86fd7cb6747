"""Graphs whose nodes and edges have types: each (source, target, type) is one edge, wherever it is kept or drawn."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.graph.features import dense
from graphmill.graph.header import seal, write_metadata
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import edge_keys, topology_from_keys, undirected_keys
from graphmill.graph.typed import ANY, RawTypes, Relation, named_relations, typed_topology, with_reverse
from graphmill.graph.write import write_all
from graphmill.sample.neighbor import WholeSampler
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store


@st.composite
def typed_edges(draw):
    """num_nodes, edges [2, n], types [n], with many that are repeated or parallel."""
    num_nodes = draw(st.integers(1, 6))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node, st.integers(0, 2)), min_size=1, max_size=60))
    sources, targets, types = np.array(edges).T
    return num_nodes, np.stack([sources, targets]), types


def a_graph(num_nodes, edge_index, edge_type, **changes) -> LabelledGraph:
    node_type = np.arange(num_nodes) % 2
    relations = named_relations(("a", "b", "c"), edge_type, node_type[edge_index], ("even", "odd"))
    types = RawTypes(node_type=node_type, node_names=("even", "odd"), edge_type=edge_type, relations=relations)
    graph = LabelledGraph(
        edge_index=edge_index,
        features=dense(np.ones((num_nodes, 2))),
        labels=np.zeros(num_nodes, np.int64),
        split=np.zeros(num_nodes, np.int8),
        name="typed",
        source="drawn",
        synthetic=True,
        types=types,
    )
    return replace(graph, **changes)


@given(typed_edges())
def test_each_edge_of_each_type_is_there_once(drawn):
    num_nodes, edges, types = drawn
    topology, edge_ids = typed_topology(edges, types, num_nodes)
    targets = np.repeat(np.arange(num_nodes), np.diff(topology.indptr))
    found = list(zip(targets, topology.indices, types[edge_ids], strict=True))
    assert found == sorted({(t, s, e) for s, t, e in zip(*edges, types, strict=True)})
    assert np.array_equal(edges[:, edge_ids], [topology.indices, targets])
    first = {}
    for number, edge in enumerate(zip(*edges, types, strict=True)):
        first.setdefault(edge, number)
    assert set(edge_ids.tolist()) == set(first.values()), "of repeated ones the first is kept"


@given(typed_edges(), st.integers(0, 3))
def test_sampling_all_neighbours_gives_each_edge_once(drawn, rng_seed):
    """Parallel edges of different types are drawn as edges of different nodes are."""
    num_nodes, edges, types = drawn
    topology, _ = typed_topology(edges, types, num_nodes)
    seeds = Seeds(0, 0, SeedIds(np.arange(num_nodes, dtype=np.int64)))
    every = WholeSampler(topology, (-1,), rng_seed, num_threads=1, resample=False, with_edge_ids=True).sample(seeds)
    assert sorted(every.edge_ids.tolist()) == list(range(topology.num_edges))
    some = [
        WholeSampler(topology, (2, 2), rng_seed, num_threads=n, resample=True, with_edge_ids=True).sample(seeds)
        for n in (1, 3)
    ]
    assert np.array_equal(some[0].edge_ids, some[1].edge_ids)
    assert np.array_equal(some[0].node_ids, some[1].node_ids)
    first_hop = some[0].edge_ids[: some[0].num_edges_per_hop[0]]
    assert len(np.unique(first_hop)) == len(first_hop), "without replacement"
    assert len(first_hop) == np.minimum(np.diff(topology.indptr), 2).sum()


@settings(max_examples=30)
@given(typed_edges(), st.booleans())
def test_a_store_says_what_was_given(tmp_path_factory, drawn, with_features):
    num_nodes, edges, types = drawn
    values = np.arange(len(types), dtype=np.float32).reshape(-1, 1) if with_features else None
    raw = a_graph(num_nodes, edges, types, edge_features=values, edge_feature_names=("w",) if with_features else ())
    folder = tmp_path_factory.mktemp("store") / "typed"
    write_store(raw, folder)
    store = LabelledGraphStore.open(folder)
    store.verify()
    known, (topology, edge_ids) = store.metadata, typed_topology(edges, types, num_nodes)
    found = store.edge_features(undirected=False).values
    assert np.array_equal(found[:, -1], types[edge_ids])
    assert known.edge_features == (("w",) if with_features else ()) + ("edge_type",)
    assert not with_features or np.array_equal(found[:, 0], values[edge_ids, 0])
    assert [each.num_edges for each in known.edge_types] == np.bincount(types[edge_ids], minlength=3).tolist()
    assert np.array_equal(store.node_type, np.arange(num_nodes) % 2)
    keys = edge_keys(edges, num_nodes)
    union = undirected_keys(keys, num_nodes)
    wanted = topology_from_keys(keys if union is None else union, num_nodes)
    both = store.topology(undirected=True)
    assert np.array_equal(both.indices, wanted.indices), "models without types see what they saw"
    assert np.array_equal(both.indptr, wanted.indptr)
    assert known.num_duplicate_edges == len(types) - topology.num_edges


def test_the_other_direction_is_a_relation_of_its_own(tmp_path):
    raw = a_graph(4, np.array([[0, 2, 1], [1, 1, 3]]), np.array([0, 0, 1]))
    assert raw.types.relations == (("even", "a", "odd"), ("odd", "b", "odd"), (ANY, "c", ANY))
    both = with_reverse(raw)
    store = write_store(both, tmp_path / "both")
    names = ["even:a:odd", "odd:b:odd", "*:c:*", "odd:rev_a:even", "odd:rev_b:odd", "*:rev_c:*"]
    assert list(store.metadata.relation_names) == names
    assert [each.num_edges for each in store.metadata.edge_types] == [2, 1, 0, 2, 1, 0]
    store.verify()
    assert store.metadata.is_symmetric
    with pytest.raises(UserError, match="has the relation"):
        with_reverse(
            replace(
                both,
                types=replace(
                    both.types,
                    relations=(*raw.types.relations, Relation("odd", "rev_a", "even"), *both.types.relations[4:]),
                ),
            )
        )
    with pytest.raises(UserError, match="no edge types"):
        with_reverse(replace(raw, types=None))


def test_both_directions_have_no_types(tmp_path):
    store = write_store(a_graph(4, np.array([[0, 2], [1, 1]]), np.array([0, 0])), tmp_path / "one")
    with pytest.raises(UserError, match="would have none") as refused:
        store.edge_features(undirected=True)
    assert "reverse_relations=true" in refused.value.fix


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"node_type": np.array([0, 1, 2])}, "node 2 is of type 2, and there are 2 node types"),
        ({"edge_type": np.array([0])}, "there are 2 edges"),
        ({"edge_type": np.array([0.0, 1.0])}, "edge_type is float64"),
        ({"relations": (Relation("x", "a", "y"),)}, "1 edge types|edge 1 is of type 1"),
        ({"relations": (Relation("odd", "a", ANY), Relation(ANY, "b", ANY))}, "its source is of type even"),
        ({"relations": (Relation("none", "a", ANY), Relation(ANY, "b", ANY))}, "none:a:.* is between types"),
        ({"node_names": ("even", "even")}, "of which 1 differ"),
    ],
)
def test_types_that_do_not_fit_are_refused(tmp_path, changes, says):
    raw = a_graph(3, np.array([[0, 1], [1, 2]]), np.array([0, 1]))
    with pytest.raises(UserError, match=says):
        write_store(replace(raw, types=replace(raw.types, **changes)), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_feature_called_as_the_types_is_refused(tmp_path):
    raw = a_graph(3, np.array([[0, 1], [1, 2]]), np.array([0, 1]))
    raw = replace(raw, edge_features=np.ones((2, 1), np.float32), edge_feature_names=("edge_type",))
    with pytest.raises(UserError, match="called edge_type"):
        write_store(raw, tmp_path / "store")


@pytest.mark.parametrize(("array", "says"), [("edge_attr", "edge_attr"), ("node_type", "node_type")])
def test_verify_finds_types_that_are_not_those_of_the_metadata(tmp_path, array, says):
    """The files' checksums are made right again: structure is what is looked at."""
    store = write_store(a_graph(4, np.array([[0, 2, 1], [1, 1, 3]]), np.array([0, 0, 1])), tmp_path / "store")
    changed = store.metadata.model_copy(update={"arrays": dict(store.metadata.arrays)})
    values = np.array(store.array(array))
    values.flat[0] = 1 - values.flat[0]
    changed.arrays.update(write_all(store.path, {array: values}))
    write_metadata(store.path, seal(changed))
    with pytest.raises(UserError, match=says):
        LabelledGraphStore.open(store.path).verify()


def test_metadata_that_contradict_themselves_are_refused(tmp_path):
    store = write_store(a_graph(4, np.array([[0, 2, 1], [1, 1, 3]]), np.array([0, 0, 1])), tmp_path / "store")
    said = json.loads((store.path / "metadata.json").read_text())
    assert said["edge_types"][0] == {"source": "even", "name": "a", "target": "odd", "num_edges": 2}
    for update in ({"node_types": ()}, {"edge_types": store.metadata.edge_types[:1]}, {"edge_features": ("a",)}):
        write_metadata(store.path, seal(store.metadata.model_copy(update=update)))
        with pytest.raises(UserError):
            LabelledGraphStore.open(store.path)
