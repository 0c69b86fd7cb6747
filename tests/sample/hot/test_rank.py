"""Rankings: whose rows a part should hold, in which order, and how many fit."""

import tracemalloc

import numpy as np
import pytest
from graphs_in_parts import graphs, topology_of
from hypothesis import given
from hypothesis import strategies as st

from graphmill.graph.topology import Topology
from graphmill.sample.hot.rank import STATIC_POLICIES, Draws, HotBudget, rank_all, ranking

DRAWS = Draws(fanouts=(3, 2), batch_size=4, rng_seed=5, epochs=(0, 1))


def own_seeds(part_of, seeds):
    return [seeds[part_of[seeds] == part] for part in range(3)]


@given(graphs())
def test_a_ranking_names_other_parts_nodes_once(graph):
    topology, part_of, seeds = graph
    found = rank_all(topology, part_of, own_seeds(part_of, seeds), DRAWS, STATIC_POLICIES)
    assert tuple(found) == STATIC_POLICIES
    for rankings in found.values():
        assert len(rankings) == 3
        for part, ids in enumerate(rankings):
            assert ids.dtype == np.int32
            assert len(np.unique(ids)) == len(ids)
            assert (part_of[ids] != part).all()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 2))
def test_a_ranking_descends_and_equals_ascend(benefit, part):
    benefit, part_of = np.array(benefit), np.arange(len(benefit)) % 3
    ids = ranking(benefit, part_of, part)
    wanted = sorted((-benefit[i], i) for i in range(len(benefit)) if part_of[i] != part and benefit[i] > 0)
    assert ids.tolist() == [node for _, node in wanted]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 45))
def test_the_first_of_a_ranking_are_those_of_the_whole_one(benefit, most):
    benefit, part_of = np.array(benefit), np.arange(len(benefit)) % 3
    assert ranking(benefit, part_of, 0, most).tolist() == ranking(benefit, part_of, 0)[:most].tolist()


@pytest.mark.parametrize("policy", ["degree", "hotness", "vip"])
def test_ranking_takes_no_more_of_a_node_than_a_plan_says(policy):
    """One rank of each host ranks all nodes at each start; `parted_memory` has 20 bytes of each."""
    num_nodes = 2**21
    ring = Topology(np.arange(num_nodes + 1), ((np.arange(num_nodes) + 1) % num_nodes).astype(np.int32))
    is_remote, seeds = np.arange(num_nodes, dtype=np.int8) % 8, np.arange(0, num_nodes, 50)
    tracemalloc.start()
    rank_all(ring, is_remote, [seeds], DRAWS, [policy], most=num_nodes // 100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 20 * num_nodes + 2**24


@given(graphs())
def test_seeds_of_all_parts_are_ranked_once_and_for_all(graph):
    """With equal shares any rank may have any seed: rankings differ by whose rows are the part's own."""
    topology, part_of, seeds = graph
    shared = rank_all(topology, part_of, [seeds] * 3, DRAWS, STATIC_POLICIES)
    apart = rank_all(topology, part_of, [seeds.copy() for _ in range(3)], DRAWS, STATIC_POLICIES)
    for policy in STATIC_POLICIES:
        for one, other in zip(shared[policy], apart[policy], strict=True):
            assert np.array_equal(one, other)


def test_what_own_seeds_reach_comes_first():
    """Two stars; the seeds of part 0 are around the first hub, which is part 1's."""
    edges = [(node, 0) for node in range(2, 8)] + [(node, 1) for node in range(8, 20)]
    stars = topology_of(20, edges, symmetric=True)
    part_of = np.array([1, 1, *[0] * 6, *[1] * 12])
    found = rank_all(stars, part_of, own_seeds(part_of, np.arange(2, 20)), DRAWS, STATIC_POLICIES)
    for policy in STATIC_POLICIES:
        assert found[policy][0][0] == 0, policy
    assert found["degree"][0].tolist() == [0], "no other node is a neighbour of the part's"
    assert 1 not in found["vip"][0]


def test_a_part_without_seeds_needs_nothing():
    line = topology_of(6, [(node, node + 1) for node in range(5)], symmetric=True)
    part_of = np.array([0, 0, 1, 1, 2, 2])
    found = rank_all(line, part_of, own_seeds(part_of, np.array([0, 1])), DRAWS, ("presample", "vip", "degree"))
    assert [len(ids) for ids in found["vip"]] == [2, 0, 0]
    assert [len(ids) for ids in found["presample"]] == [2, 0, 0]
    assert [len(ids) for ids in found["degree"]] == [1, 0, 0]


@pytest.mark.parametrize(
    ("budget", "wanted"),
    [
        (HotBudget(), 10),
        (HotBudget(ratio=0.0), 0),
        (HotBudget(ratio=0.07), 7),
        (HotBudget(ratio=1.0), 10),
        (HotBudget(num_bytes=95), 4),
        (HotBudget(ratio=0.03, num_bytes=95), 3),
        (HotBudget(ratio=0.07, num_bytes=95), 4),
        (HotBudget(num_rows=2, ratio=0.07, num_bytes=95), 2),
        (HotBudget(num_rows=99), 10),
    ],
)
def test_a_budget_is_the_smallest_of_ratio_bytes_and_rows(budget, wanted):
    assert len(budget.cut(np.arange(10), 100, 20)) == wanted


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(0, 120))
def test_rows_of_any_size_fill_a_budget_and_no_more(sizes, num_bytes):
    sizes = np.array(sizes)
    order = np.argsort(-sizes, kind="stable")
    held = HotBudget(num_bytes=num_bytes).cut(order, len(sizes), sizes)
    assert np.array_equal(held, order[: len(held)])
    assert sizes[held].sum() <= num_bytes
    assert len(held) == len(sizes) or sizes[order[: len(held) + 1]].sum() > num_bytes
