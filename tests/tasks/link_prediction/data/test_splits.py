"""Splits: keyed, stable, and without a link of val or test among what is learned from or read."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.graph.features import no_features
from graphmill.graph.splits import SPLITS
from graphmill.graph.typed import RawTypes, Relation
from graphmill.tasks.link_prediction.data.leaks import notes_on, without_leaks
from graphmill.tasks.link_prediction.data.links import (
    GivenCandidates,
    LinkGraph,
    Links,
    check_links,
    first_of_each,
    is_among,
    message_links,
)
from graphmill.tasks.link_prediction.data.splits import JoinedGraph, split_as_requested
from graphmill.tasks.link_prediction.data.store import write_links
from graphmill.tasks.link_prediction.page.data import LinkPrepareOptions


def joined(edges, **changes):
    edge_index = np.array(edges).T
    raw = JoinedGraph(
        edge_index=edge_index,
        features=no_features(int(edge_index.max()) + 1),
        name="joined",
        source="written by hand",
        synthetic=True,
    )
    return dataclasses.replace(raw, **changes)


def drawn(num_nodes, num_edges, seed, *, num_relations=0):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (num_edges, 2))
    types = None
    if num_relations:
        types = RawTypes(
            node_type=np.zeros(num_nodes, np.int8),
            node_names=("n",),
            edge_type=rng.integers(0, num_relations, num_edges),
            relations=tuple(Relation("n", f"r{i}", "n") for i in range(num_relations)),
        )
    return joined(edges, features=no_features(num_nodes), types=types, times=rng.integers(0, 50, num_edges))


def pairs_of(links):
    return set(map(tuple, links.ends.T.tolist()))


def triples_of(links):
    return set(map(tuple, links.columns.T.tolist()))


def brute_leaks(raw: LinkGraph) -> int:
    """Links of val and test that are message edges or training links, by sets of tuples."""
    seen = triples_of(message_links(raw)) | triples_of(raw.links["train"])
    if not raw.links_have_direction:
        seen |= {(v, u) for u, v in seen}
    return len(seen & (triples_of(raw.links["val"]) | triples_of(raw.links["test"])))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    relations=st.sampled_from([0, 3]),
    undirected=st.sampled_from([None, True, False]),
    by_time=st.booleans(),
)
def test_val_and_test_links_are_never_message_edges(seed, relations, undirected, by_time):
    undirected = None if relations else undirected
    options = LinkPrepareOptions(
        random_split=not by_time, time_split=by_time, val_fraction=0.2, test_fraction=0.2, undirected=undirected
    )
    raw, _ = without_leaks(split_as_requested(drawn(25, 120, seed, num_relations=relations), options))
    check_links(raw)
    assert brute_leaks(raw) == 0
    for split in SPLITS:
        assert len(triples_of(raw.links[split])) == len(raw.links[split]), "each link once"
    if not raw.links_have_direction:
        message = pairs_of(message_links(raw))
        assert message == {(v, u) for u, v in message}


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), relations=st.sampled_from([0, 3]))
def test_a_random_split_keeps_all_links_of_two_nodes_together(seed, relations):
    raw = split_as_requested(drawn(15, 150, seed, num_relations=relations), LinkPrepareOptions(random_split=True))
    of = {split: {frozenset(pair) for pair in pairs_of(raw.links[split])} for split in SPLITS}
    assert not of["train"] & of["val"]
    assert not of["train"] & of["test"]
    assert not of["val"] & of["test"]
    assert not any(len(pair) == 1 for pair in of["val"] | of["test"]), "a self-loop is learned from"
    num_pairs = sum(map(len, of.values()))
    assert (len(of["val"]), len(of["test"])) == (round(0.05 * num_pairs), round(0.1 * num_pairs))


def test_a_random_split_hangs_on_its_seed_and_on_no_order():
    raw = drawn(40, 300, 1)
    first = split_as_requested(raw, LinkPrepareOptions(random_split=True))
    order = np.random.default_rng(0).permutation(300)
    again = split_as_requested(
        dataclasses.replace(raw, edge_index=raw.edge_index[:, order], features=no_features(60)),
        LinkPrepareOptions(random_split=True),
    )
    other = split_as_requested(raw, LinkPrepareOptions(random_split=True, split_seed=1))
    for split in SPLITS:
        assert pairs_of(first.links[split]) == pairs_of(again.links[split])
    assert pairs_of(first.links["test"]) != pairs_of(other.links["test"])
    assert sorted(pairs_of(first.links["test"]))[:3] == sorted(pairs_of(again.links["test"]))[:3]


def test_a_split_by_time_takes_quantiles_or_borders():
    raw = joined([(i, i + 1) for i in range(20)], times=np.arange(20) / 2)
    options = LinkPrepareOptions(time_split=True, val_fraction=0.2, test_fraction=0.1)
    by_share = split_as_requested(raw, options)
    assert [len(by_share.links[split]) for split in SPLITS] == [14, 4, 2]
    assert by_share.links["test"].sources.tolist() == [18, 19]
    borders = split_as_requested(raw, LinkPrepareOptions(time_split=True, val_from=2.0, test_from=3.0))
    assert borders.links["val"].sources.tolist() == [4, 5]
    assert borders.split_note == "by time: val from 2, test from 3"


def test_a_link_counts_from_its_first_time():
    """(0, 1) is there at 0 and at 9: it is learned from, once, and not judged."""
    raw = joined([(0, 1), (1, 2), (2, 3), (0, 1), (3, 4)], times=np.array([0, 1, 5, 9, 9]))
    split = split_as_requested(raw, LinkPrepareOptions(time_split=True, val_from=5, test_from=9))
    assert {name: sorted(pairs_of(split.links[name])) for name in SPLITS} == {
        "train": [(0, 1), (1, 2)],
        "val": [(2, 3)],
        "test": [(3, 4)],
    }
    either = dataclasses.replace(raw, edge_index=np.array([[0, 1, 2, 1, 3], [1, 2, 3, 0, 4]]))
    split = split_as_requested(either, LinkPrepareOptions(time_split=True, val_from=5, test_from=9, undirected=True))
    assert pairs_of(split.links["test"]) == {(3, 4)}
    split = split_as_requested(either, LinkPrepareOptions(time_split=True, val_from=5, test_from=9))
    assert pairs_of(split.links["test"]) == {(1, 0), (3, 4)}


def test_edges_in_both_directions_are_links_without_direction():
    ring = [(i, (i + 1) % 30) for i in range(30)]
    both = joined(ring + [(v, u) for u, v in ring])
    raw = split_as_requested(both, LinkPrepareOptions(random_split=True))
    assert not raw.links_have_direction
    assert sum(len(raw.links[split]) for split in SPLITS) == 30
    assert raw.edge_index.shape[1] == 2 * len(raw.links["train"])
    assert without_leaks(raw)[1] == []
    assert split_as_requested(both, LinkPrepareOptions(random_split=True, undirected=False)).links_have_direction
    assert split_as_requested(joined(ring), LinkPrepareOptions(random_split=True)).links_have_direction


def test_of_a_link_listed_both_ways_test_wins():
    raw = joined([(0, 1), (1, 2), (1, 0), (2, 3)], split=np.array([0, 0, 2, 1], np.int8), have_direction=False)
    found, remarks = without_leaks(split_as_requested(raw, LinkPrepareOptions()))
    assert pairs_of(found.links["train"]) == {(1, 2)}
    assert pairs_of(found.links["test"]) == {(1, 0)}
    assert any("1 of 2 training links" in remark for remark in remarks)


@pytest.mark.parametrize(
    ("options", "changes", "found"),
    [
        ({}, {}, "there is no split"),
        ({"time_split": True}, {}, "no time"),
        ({"time_split": True}, {"times": np.array([1.0, np.nan, 2.0])}, "link 1 has the time nan"),
        ({"time_split": True}, {"times": np.array([1, 2])}, "there are 3 links"),
        ({"time_split": True}, {"times": np.array([1, 1, 1])}, "leave no train links"),
        ({"time_split": True, "val_from": 1}, {"times": np.arange(3)}, "one of val_from and test_from"),
        ({"time_split": True, "val_from": 2, "test_from": 1}, {"times": np.arange(3)}, "no later"),
        ({"random_split": True}, {}, "of 3 joined pairs 0 would be val"),
        ({}, {"split": np.array([0, 1, 3], np.int8)}, "codes for 3 links"),
        ({"random_split": True}, {"edge_index": np.array([[0, 9], [1, 1]])}, "9 → 1"),
    ],
)
def test_what_cannot_be_split(options, changes, found):
    with pytest.raises(UserError, match="(?s)" + found.replace("[", "\\[")):
        split_as_requested(joined([(0, 1), (1, 2), (2, 3)], **changes), LinkPrepareOptions(**options))


def test_links_with_relations_have_direction():
    with pytest.raises(UserError, match="undirected is true"):
        split_as_requested(drawn(9, 60, 0, num_relations=2), LinkPrepareOptions(random_split=True, undirected=True))


def test_leaks_are_left_out_and_said():
    raw = LinkGraph(
        edge_index=np.array([[0, 1, 3, 4], [1, 2, 4, 5]]),
        features=no_features(8),
        name="leaky",
        source="written by hand",
        synthetic=True,
        links={
            "train": Links.of(np.array([[0, 0, 1, 3], [1, 1, 2, 4]])),
            "val": Links.of(np.array([[3, 6], [4, 7]])),
            "test": Links.of(np.array([[5, 3, 5], [6, 4, 6]])),
        },
        links_have_direction=True,
        split_note="by hand",
        candidates={
            "val": GivenCandidates(np.array([[0], [1]])),
            "test": GivenCandidates(np.array([[2], [3], [4]]), np.array([[5], [6], [7]])),
        },
    )
    found, remarks = without_leaks(raw)
    check_links(found)
    assert brute_leaks(found) == 0
    assert found.links["test"].ends.tolist() == [[5, 3], [6, 4]]
    assert found.candidates["test"].targets.tolist() == [[2], [3]]
    assert found.candidates["test"].sources.tolist() == [[5], [6]]
    assert found.edge_index.tolist() == [[0, 1, 4], [1, 2, 5]]
    told = " | ".join(remarks)
    assert "repeated links were merged: train 1, test 1" in told
    assert "1 of 3 training links" in told
    assert "1 of 4 message edges" in told
    assert "1 of 2 test links are val links" in told
    assert any("nodes without message edges: 3 of 8; 4 links" in each for each in notes_on(found))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_links_are_told_apart_as_tuples_are(seed, directed, has_relations):
    rng = np.random.default_rng(seed)

    def some(count):
        relations = rng.integers(0, 3, count) if has_relations else None
        return Links(rng.integers(0, 6, count), rng.integers(0, 6, count), relations)

    def as_tuples(links):
        ends = links.ends if directed else np.sort(links.ends, axis=0)
        rows = ends if links.relations is None else np.concatenate([ends, links.relations[None]])
        return list(map(tuple, rows.T.tolist()))

    one, two = some(20), some(15)
    among = is_among(one, two, 6, have_direction=directed)
    assert among.tolist() == [each in set(as_tuples(two)) for each in as_tuples(one)]
    rows = first_of_each(one, 6, have_direction=directed)
    seen = as_tuples(one)
    assert rows.tolist() == [row for row, each in enumerate(seen) if seen.index(each) == row]


def test_what_is_split_can_be_stored(tmp_path):
    for number, relations in enumerate((0, 4)):
        raw = split_as_requested(drawn(40, 300, 3, num_relations=relations), LinkPrepareOptions(random_split=True))
        store = write_links(without_leaks(raw)[0], tmp_path / str(number))
        store.verify()
        assert store.metadata.num_relations == relations
