"""Batches of whole graphs by budget: nothing dropped, nothing too large, all ranks busy alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.sample.budget import Budget, pack
from graphmill.sample.schedule import BudgetSchedule


@st.composite
def problems(draw):
    """Graphs, some of them large, a budget that each fits into, and ranks."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 300)), min_size=1, max_size=200))
    sizes += draw(st.lists(st.tuples(st.integers(1, 900), st.integers(0, 4000)), max_size=6))
    nodes, edges = (np.array(each, dtype=np.int64) for each in zip(*sizes, strict=True))
    budget = Budget(draw(st.integers(nodes.max(), 3000)), draw(st.integers(max(1, edges.max()), 15000)))
    return nodes, edges, budget, draw(st.integers(1, 5)), draw(st.integers(0, 2**63 - 1))


def schedule(nodes, edges, budget, ranks, seed) -> BudgetSchedule:
    ids = 7 * np.arange(len(nodes), dtype=np.int64)
    return BudgetSchedule.of(ids, budget.costs(nodes, edges), rng_seed=seed, ranks=ranks)


@given(problems())
def test_every_graph_is_in_one_batch_and_no_batch_exceeds_the_budget(problem):
    nodes, edges, budget, ranks, _ = problem
    made = schedule(*problem)
    assert made.packing.num_batches % ranks == 0
    for epoch in range(3):
        seen = [share for step in range(made.steps_per_epoch) for share in made.shares(epoch, step)]
        assert sorted(np.concatenate(seen) // 7) == list(range(len(nodes)))
        for share in seen:
            assert nodes[share // 7].sum() <= budget.num_nodes
            assert edges[share // 7].sum() <= budget.num_edges
        counted = [count for step in range(made.steps_per_epoch) for count in made.counts(epoch, step)]
        assert counted == [len(share) for share in seen]


@given(problems(), st.integers(1, 12))
def test_other_ranks_take_the_same_graphs_and_more_ranks_stay_within_the_budget(problem, others):
    nodes, edges, budget, ranks, _ = problem
    planned = schedule(*problem)
    resumed = planned.among(others)
    for step in range(planned.steps_per_epoch):
        shares = resumed.shares(1, step)
        assert resumed.counts(1, step) == tuple(len(share) for share in shares)
        assert len(shares) == others
        assert sorted(np.concatenate(shares)) == sorted(np.concatenate(planned.shares(1, step)))
        for rank, share in enumerate(shares):
            assert np.array_equal(resumed.seeds(1, step, rank).ids, share)
            if others >= ranks:
                assert nodes[share // 7].sum() <= budget.num_nodes
                assert edges[share // 7].sum() <= budget.num_edges


@given(problems())
def test_what_a_rank_gets_depends_on_nothing_that_was_asked_before(problem):
    made, again = schedule(*problem), schedule(*problem)
    last = made.steps_per_epoch - 1
    wanted = [made.seeds(epoch, last, 0).ids.tolist() for epoch in (0, 5, 1)]
    assert [again.seeds(epoch, last, 0).ids.tolist() for epoch in (1, 5, 0)] == wanted[::-1]


@given(st.integers(1, 5), st.integers(0, 2**31))
def test_batches_of_small_graphs_are_alike_and_full(ranks, seed):
    """The level that all are filled to is the mean; what is left of the budget is at most a graph and the rounding."""
    rng = np.random.default_rng(seed)
    nodes, edges = rng.integers(20, 51, 4000), rng.integers(30, 100, 4000)
    budget = Budget(6000, 12000)
    costs = budget.costs(nodes, edges)
    made = BudgetSchedule.of(np.arange(4000), costs, rng_seed=seed, ranks=ranks)
    by_batch = [costs[share].sum() for step in range(made.steps_per_epoch) for share in made.shares(2, step)]
    assert max(by_batch) - min(by_batch) <= 2 * costs.max()
    fewest = int(np.ceil(costs.sum() / (1 - costs.max())))
    assert made.packing.num_batches == -(-fewest // ranks) * ranks


def test_epochs_differ_and_so_do_runs():
    nodes = np.full(100, 10)
    budget = Budget(100, 100)
    made, other = (schedule(nodes, nodes, budget, 2, seed) for seed in (1, 2))
    first = made.shares(0, 0)[0].tolist()
    assert first != made.shares(1, 0)[0].tolist()
    assert first != other.shares(0, 0)[0].tolist()


def test_a_giant_does_not_make_the_others_batches_small():
    nodes = np.concatenate([np.full(1000, 10), [900]])
    made = schedule(nodes, nodes, Budget(1000, 1000), 1, 0)
    assert made.packing.num_batches == 12  # 10,900 nodes; 11 would have to be full to the last node


def test_a_graph_that_cannot_fit_is_named():
    with pytest.raises(UserError, match=r"graph 2 has 501 nodes and 3 edges.*500 and 90.*1 graphs"):
        Budget(500, 90).costs(np.array([1, 2, 501]), np.array([1, 2, 3]))


def test_graphs_as_large_as_the_budget_are_alone():
    packing = pack(np.array([1.0, 1.0, 1.0]), 1)
    assert sorted(packing.batch_of_large.tolist()) == [0, 1, 2]


def test_fewer_graphs_than_ranks_leave_some_without():
    made = schedule(np.array([5, 5]), np.array([5, 5]), Budget(10, 10), 4, 0)
    assert sorted(made.counts(0, 0)) == [0, 0, 1, 1]
