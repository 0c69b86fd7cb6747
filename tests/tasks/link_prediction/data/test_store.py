"""Links that are written come back; links that cannot be learned from are refused with their place and a remedy."""

import dataclasses
import json

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.graph.features import dense, no_features, sparse
from graphmill.graph.typed import RawTypes, Relation
from graphmill.spec.experiment import DatasetSpec
from graphmill.tasks.link_prediction.data.links import GivenCandidates, LinkGraph, Links, SharedCandidates
from graphmill.tasks.link_prediction.data.store import LinkStore, write_links
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store


def links(*pairs):
    return Links.of(np.array(pairs).T)


def small(**changes):
    """Six nodes; message edges 0→1→2→3; links as the edges, and two held out."""
    raw = LinkGraph(
        edge_index=np.array([[0, 1, 2], [1, 2, 3]]),
        features=dense(np.arange(12, dtype=np.float32).reshape(6, 2)),
        name="small",
        source="written by hand",
        synthetic=True,
        links={"train": links((0, 1), (1, 2), (2, 3)), "val": links((3, 4)), "test": links((4, 5), (5, 0))},
        links_have_direction=True,
        split_note="by hand",
    )
    return dataclasses.replace(raw, **changes)


def typed(**changes):
    """The same with two relations and no features; 0→1 of both is there, once in training and once in test."""
    relation = {"train": [0, 1, 0], "val": [1], "test": [1, 1]}
    held = {**small().links, "test": links((0, 1), (5, 0))}
    return small(
        features=no_features(6),
        types=RawTypes(
            node_type=np.zeros(6, np.int8),
            node_names=("node",),
            edge_type=np.array(relation["train"]),
            relations=(Relation("node", "likes", "node"), Relation("node", "knows", "node")),
        ),
        links={
            split: dataclasses.replace(held[split], relations=np.array(numbers, dtype=np.int64))
            for split, numbers in relation.items()
        },
        num_relations=2,
        node_names=("a", "b", "ç", "", "e e", "f\n"),
        **changes,
    )


def test_round_trip(tmp_path):
    store = write_links(small(), tmp_path / "small")
    store.verify()
    assert store == LinkStore.open(tmp_path / "small")
    assert store.topology(undirected=False).indices.tolist() == [0, 1, 2]
    for split, given in small().links.items():
        found = store.links(split)
        assert found.ends.tolist() == given.ends.tolist()
        assert found.relations is None
        assert found.sources.dtype == np.int64
    assert store.candidates("val") is None
    assert store.nodes_in("val").tolist() == list(range(6))
    assert store.metadata.links == {"train": 3, "val": 1, "test": 2}
    assert store.metadata.links_have_direction
    assert store.names_of([2]) == ["2"]
    info = store.info(DatasetSpec(name="small"))
    assert (info.num_train, info.num_edges, info.num_relations, info.candidates) == (3, 3, 0, "all")
    assert dict(store.described())["ranked among"].startswith("all nodes")


def test_relations_names_and_no_features(tmp_path):
    store = write_links(typed(), tmp_path / "typed")
    store.verify()
    opened = LinkStore.open(tmp_path / "typed")
    assert opened.links("test").columns.tolist() == [[0, 5], [1, 0], [1, 1]]
    assert opened.relation_names == ("likes", "knows")
    assert opened.names_of(range(6)) == list(typed().node_names)
    assert opened.metadata.num_features == 0
    assert opened.features.x.shape == (6, 0)
    assert opened.info(DatasetSpec(name="typed")).edge_types == ("node:likes:node", "node:knows:node")
    assert dict(opened.described())["features"] == "none"


def test_sparse_features(tmp_path):
    features = sparse(np.array([0, 1, 1, 3, 3, 3, 4]), np.array([6, 0, 2, 1]), np.array([1, 2, 3, 4]), 7)
    store = write_links(small(features=features), tmp_path / "s")
    store.verify()
    assert store.info(DatasetSpec(name="s")).has_sparse_features


def test_candidates(tmp_path):
    given = {
        "val": GivenCandidates(np.array([[0, 1, 2]]), np.array([[1, 5]])),
        "test": GivenCandidates(np.zeros((2, 3), int), np.ones((2, 2), int)),
    }
    store = write_links(small(candidates=given), tmp_path / "given")
    store.verify()
    assert store.metadata.candidates == "given"
    assert store.candidates("val").targets.tolist() == [[0, 1, 2]]
    assert store.candidates("test").sources.tolist() == [[1, 1], [1, 1]]
    assert store.candidates("train") is None
    pool = {split: SharedCandidates(np.array([[0, 1, 2], [3, 4, 5]])) for split in ("val", "test")}
    store = write_links(small(candidates=pool), tmp_path / "pool")
    store.verify()
    assert LinkStore.open(tmp_path / "pool").candidates("test").pairs.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert "pool of pairs" in dict(store.described())["ranked among"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"links": {**small().links, "val": links((3, 6))}}, "3 → 6"),
        ({"links": {**small().links, "val": links((1, 2))}}, "an edge of the message graph"),
        ({"links": {"train": links((0, 1))}}, "no val links"),
        ({"links": {**small().links, "test": Links.of(np.empty((2, 0), int))}}, "no test links"),
        ({"links": {**small().links, "test": Links.of(np.array([[4], [5], [0]]))}}, "relation"),
        ({"candidates": {"val": SharedCandidates(np.zeros((2, 2), int))}}, "candidates"),
        ({"candidates": dict.fromkeys(("val", "test"), GivenCandidates(np.zeros((2, 2), int)))}, "should have 1 rows"),
        ({"candidates": dict.fromkeys(("val", "test"), SharedCandidates(np.array([[0, 9], [1, 1]])))}, "is 9"),
        ({"node_names": ("a",)}, "1 names"),
        ({"features": dense(np.full((6, 1), np.nan))}, "row 0"),
        ({"edge_index": np.array([[0], [9]])}, "0 → 9"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(tmp_path, changes, found):
    with pytest.raises(UserError, match=found):
        write_links(small(**changes), tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_link_without_direction_is_no_edge_either_way(tmp_path):
    held = {**small().links, "val": links((2, 1))}
    write_links(small(links=held), tmp_path / "directed").verify()
    with pytest.raises(UserError, match="an edge of the message graph"):
        write_links(small(links=held, links_have_direction=False), tmp_path / "no")


def test_of_two_relations_between_two_nodes_one_may_be_held_out(tmp_path):
    held = {**typed().links, "test": Links(np.array([0]), np.array([1]), np.array([0]))}
    with pytest.raises(UserError, match="an edge of the message graph"):
        write_links(dataclasses.replace(typed(), links=held), tmp_path / "no")


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("val_links", lambda a: a.__setitem__((0, 0), 6), "node 6"),
        ("val_links", lambda a: (a.__setitem__((0, 0), 1), a.__setitem__((1, 0), 2)), "edge of the message graph"),
    ],
)
def test_contents_that_checksums_do_not_cover(tmp_path, name, change, found):
    """As a hand that also writes checksums would leave them."""
    store = write_links(small(), tmp_path / "s")
    array = np.load(tmp_path / "s" / f"{name}.npy")
    change(array)
    arrays = {each: np.load(tmp_path / "s" / f"{each}.npy") for each in store.metadata.arrays} | {name: array}
    forged = LinkStore.write(tmp_path / "s", arrays, store.metadata)
    with pytest.raises(UserError, match=found):
        forged.verify()


def test_a_flipped_bit_is_found(tmp_path):
    store = write_links(typed(), tmp_path / "s")
    for name in store.metadata.arrays:
        path = tmp_path / "s" / f"{name}.npy"
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(UserError):
            store.verify()
        path.write_bytes(whole)


@pytest.mark.parametrize("change", [{"num_relations": 3}, {"links": {"train": 3, "val": 1}}, {"candidates": "shared"}])
def test_metadata_that_contradict_themselves(tmp_path, change):
    store = write_links(small(), tmp_path / "s")
    forged = store.metadata.model_copy(update=change)
    forged = forged.model_copy(update={"checksum": forged.content_checksum()})
    (tmp_path / "s" / "metadata.json").write_text(json.dumps(forged.model_dump(mode="json")))
    with pytest.raises(UserError):
        LinkStore.open(tmp_path / "s")


def test_each_task_refuses_the_others_data(tmp_path):
    write_links(small(), tmp_path / "links")
    with pytest.raises(UserError, match="task link_prediction"):
        LabelledGraphStore.open(tmp_path / "links")


def test_node_classification_needs_features(tmp_path):
    raw = LabelledGraph(
        edge_index=np.array([[0], [1]]),
        features=no_features(2),
        labels=np.array([0, 1]),
        split=np.array([0, 0], np.int8),
        name="bare",
        source="written by hand",
        synthetic=True,
    )
    with pytest.raises(UserError, match="there are no features"):
        write_store(raw, tmp_path / "bare")
