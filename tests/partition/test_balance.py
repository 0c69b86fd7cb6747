"""Parts are even in everything that is balanced, whatever a partitioner with one weight has left."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_stores import made_store

from graphmill.graph.topology import Topology
from graphmill.partition.balance import (
    amounts_of,
    even_out,
    imbalance,
    in_edges,
    limits_of,
    single_weight,
    warn_if_uneven,
)
from graphmill.partition.problem import BALANCES, PartitionProblem


def problem_of(graph, is_train, num_parts, balance="all"):
    amounts = amounts_of(balance, in_edges(graph), is_train)
    return PartitionProblem(
        graph=graph,
        amounts=amounts,
        limits=limits_of(amounts, num_parts),
        weights=single_weight(balance, in_edges(graph), graph, is_train),
        train=np.flatnonzero(is_train).astype(np.int64),
        num_parts=num_parts,
        rng_seed=0,
    )


def ring(num_nodes, num_alone):
    """A ring of nodes, and some without edges."""
    ids = np.arange(num_nodes)
    pairs = np.sort(np.stack([(ids - 1) % num_nodes, (ids + 1) % num_nodes]), axis=0)
    indptr = np.concatenate([np.arange(num_nodes + 1) * 2, np.full(num_alone, 2 * num_nodes)])
    return Topology(indptr, pairs.T.ravel().astype(np.int32))


@pytest.mark.parametrize("num_parts", [2, 4, 8])
def test_a_lopsided_start_ends_even_in_nodes_edges_and_training_nodes(num_parts):
    graph = ring(2000, num_alone=1500)
    is_train = np.arange(graph.num_nodes) % 3 == 0
    problem = problem_of(graph, is_train, num_parts)
    parts = np.where(np.arange(graph.num_nodes) < 2000, 0, -1).astype(np.int32)  # all that has edges in one part
    even_out(problem, parts, refine=True)
    loads = [np.bincount(parts, weights=column, minlength=num_parts) for column in problem.amounts.T]
    assert max(imbalance(each.astype(np.int64)) for each in loads) <= 0.05
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    assert (parts[rows] != parts[graph.indices]).sum() // 2 < 1000  # half the edges of the ring: no random parts


@given(st.integers(1, 6), st.integers(0, 3), st.sampled_from(BALANCES))
def test_every_node_is_in_a_part_and_the_same_one_again(num_parts, seed, balance):
    rng = np.random.default_rng(seed)
    graph = ring(30, num_alone=10)
    problem = problem_of(graph, rng.random(40) < 0.3, num_parts, balance)
    start = rng.integers(-1, num_parts, 40).astype(np.int32)
    found = []
    for _ in range(2):
        parts = start.copy()
        even_out(problem, parts, refine=True)
        found.append(parts)
    np.testing.assert_array_equal(*found)
    assert found[0].min() >= 0
    assert found[0].max() < num_parts


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 9))
def test_a_limit_is_five_percent_over_the_mean_or_what_whole_nodes_need(weights, num_parts):
    amounts = np.array(weights, np.uint32)[:, None]
    limit, total = int(limits_of(amounts, num_parts)[0]), sum(weights)
    assert limit * num_parts >= total
    assert limit <= max(1.05 * total / num_parts, total / num_parts + 1, 1)


@pytest.mark.parametrize("balance", BALANCES)
def test_a_partitioner_sees_weights_above_zero_with_the_shares_that_are_balanced(tmp_path, balance):
    store = made_store(tmp_path / "s")
    edges, is_train = in_edges(store.topology(undirected=False)), store.array("split") == 0
    weights = single_weight(balance, edges, store.topology(undirected=True), is_train)
    assert weights.min() > 0
    if balance == "train":
        assert weights[is_train].sum() > 0.98 * weights.sum()


def test_weighted_adds_up_equal_shares_of_nodes_edges_and_training_nodes():
    edges, is_train = np.array([6, 0, 0, 0]), np.array([False, True, False, False])
    units = amounts_of("weighted", edges, is_train)[:, 0]
    np.testing.assert_array_equal(units / 16, [1 + 4, 1 + 4, 1, 1])


def test_what_was_asked_for_and_not_reached_is_said(caplog):
    warn_if_uneven({"nodes": 0.2, "edges": 0.05, "train": 0.0}, ("nodes", "edges"))
    assert "nodes by 20.0%" in caplog.text
    assert "edges" not in caplog.text
    caplog.clear()
    warn_if_uneven({"nodes": 0.2, "edges": 0.04, "train": 0.0}, ("edges",))
    assert not caplog.text


def test_imbalance_is_of_the_fullest_over_the_mean():
    assert imbalance(np.array([21, 20, 19])) == 0.05
    assert imbalance(np.array([0, 0])) == 0.0
