"""Links that are known, looked up by either end: against a set of triples."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import InvalidInputError
from graphmill.tasks.link_prediction.known import KnownLinks, LeftOut


class Columns(NamedTuple):
    sources: np.ndarray
    targets: np.ndarray
    relations: np.ndarray | None = None


def lists_of(left_out: LeftOut) -> list[list[int]]:
    found = [left_out.ids[begin:end].tolist() for begin, end in zip(left_out.starts, left_out.ends, strict=True)]
    queries, ids = left_out.flat()
    assert [ids[queries == query].tolist() for query in range(len(left_out))] == found
    return found


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(0, 200), st.sampled_from([0, 1, 4]), st.booleans())
def test_answers_are_those_of_a_set(seed, num_nodes, num_links, num_relations, have_direction):
    rng = np.random.default_rng(seed)
    sources, targets = rng.integers(0, num_nodes, (2, num_links))
    relations = rng.integers(0, num_relations, num_links) if num_relations else None
    known = KnownLinks.of(Columns(sources, targets, relations), num_nodes, have_direction=have_direction)
    by_source, by_target = defaultdict(set), defaultdict(set)
    of_link = [0] * num_links if relations is None else relations.tolist()
    for source, relation, target in zip(sources.tolist(), of_link, targets.tolist(), strict=True):
        both = [(source, target)] if have_direction else [(source, target), (target, source)]
        for one, other in both:
            by_source[one, relation].add(other)
            by_target[other, relation].add(one)
    anchors = rng.integers(0, num_nodes, 50)
    asked = rng.integers(0, num_relations + 2, 50) if num_relations else None
    for side, table in (("target", by_source), ("source", by_target)):
        found = lists_of(known.answers(anchors, asked, side))
        each = zip(anchors.tolist(), [0] * 50 if asked is None else asked.tolist(), strict=True)
        assert found == [sorted(table[anchor, relation]) for anchor, relation in each]
        some = known.answers(anchors, asked, side).taken(slice(7, 19))
        assert lists_of(some) == found[7:19]


def test_rows_are_shared_by_queries_of_one_hub():
    """What is left out takes no memory for each query."""
    targets = np.arange(1000)
    known = KnownLinks.of(Columns(np.zeros(1000, int), targets), 1000)
    found = known.answers(np.zeros(10_000, int), None, "target")
    assert len(found.ids) == 1000
    assert (found.ends - found.starts == 1000).all()


NODES = np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (lambda: KnownLinks.of(Columns(NODES, NODES), 2), "sources go from 0 to 2"),
        (lambda: KnownLinks.of(Columns(NODES, NODES - 1), 3), "targets go from -1"),
        (lambda: KnownLinks.of(Columns(NODES, NODES[:2]), 3), "several lengths"),
        (lambda: KnownLinks.of(Columns(NODES, NODES, NODES - 5), 3), "relations go from -5"),
        (lambda: KnownLinks.of(Columns(NODES, NODES / 2), 3), "targets are float64"),
        (lambda: KnownLinks.of(Columns(NODES, NODES), 3).answers(NODES, NODES, "target"), "no relations"),
        (lambda: KnownLinks.of(Columns(NODES, NODES, NODES), 3).answers(NODES, None, "target"), "none"),
        (lambda: KnownLinks.of(Columns(NODES, NODES), 3).answers(NODES + 1, None, "target"), "anchors go from 1 to 3"),
        (lambda: KnownLinks.of(Columns(NODES, NODES), 3).answers(NODES, None, "both"), "side is 'both'"),
    ],
)
def test_what_does_not_fit_is_said(run, problem):
    with pytest.raises(InvalidInputError, match=problem):
        run()
