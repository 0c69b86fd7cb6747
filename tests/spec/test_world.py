"""How many processes carry out a plan, and which of them did which steps."""

import doctest
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.spec import world
from graphmill.spec.batch import BatchBudget
from graphmill.spec.node_models import NodeAttentionSpec
from graphmill.spec.plan import MachineInfo
from graphmill.spec.roles import RolesSpec
from graphmill.spec.world import World, effect_of, ranks_at, spans_of, spans_text, world_of

starts = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), min_size=1, max_size=8)


def test_the_examples():
    assert doctest.testmod(world).failed == 0


@pytest.mark.parametrize(
    ("ranks", "hosts", "threads"), [(4, 1, 3), (4, 2, 3), (2, 1, 6), (3, 1, 4), (1, 1, 12), (8, 1, 1), (2, 2, 12)]
)
def test_a_host_has_as_many_threads_as_planned(make_plan, ranks, hosts, threads):
    plan = make_plan(ranks=4, threads=3)
    assert world_of(plan, ranks=ranks, hosts=hosts) == World(hosts=hosts, ranks=ranks, threads=threads)


def test_as_many_ranks_are_the_world_of_the_plan(make_plan):
    plan = make_plan(ranks=4)
    assert world_of(plan, ranks=4, hosts=1) == plan.world


@pytest.mark.parametrize(
    ("ranks", "hosts", "said"),
    [(0, 1, "0 ranks cannot train"), (3, 2, "3 ranks do not divide among 2 hosts"), (41, 1, "more than the 40 seeds")],
)
def test_what_cannot_train_is_refused(make_plan, ranks, hosts, said):
    with pytest.raises(UserError, match=said):
        world_of(make_plan(ranks=4, batch_size=10), ranks=ranks, hosts=hosts)


def test_a_machine_without_room_is_refused(make_plan):
    small = MachineInfo(num_cores=2, num_gpus=1, memory_mib=400)
    plan = make_plan(ranks=2)
    with pytest.raises(UserError, match="3 ranks on one machine need"):
        world_of(plan, ranks=3, hosts=1, machine=small)
    on_gpus = plan.model_copy(update={"device": "cuda"})
    with pytest.raises(UserError, match="2 ranks want a GPU each, but this machine has 1"):
        world_of(on_gpus, ranks=2, hosts=1, machine=small)


def test_a_budget_allows_for_more_ranks_and_not_for_fewer(make_plan):
    plan = make_plan(ranks=4).model_copy(update={"budget": BatchBudget(max_nodes=100, max_edges=300, num_batches=8)})
    assert world_of(plan, ranks=6, hosts=1).ranks == 6
    with pytest.raises(UserError, match=r"max_nodes 100, max_edges 300 .* 3 ranks would hold more"):
        world_of(plan, ranks=3, hosts=1)


def test_what_was_made_for_the_planned_ranks_ties_a_run_to_them(make_plan):
    plan = make_plan(ranks=4)
    read = plan.model_copy(update={"task": plan.task.model_copy(update={"presampled": "epochs"})})
    assert world_of(read, ranks=2, hosts=1).ranks == 2, "batches of graphsage can be cut for other ranks"
    gat = {"model": NodeAttentionSpec(kind="gat"), "presampled": "epochs"}
    tied = plan.model_copy(update={"task": plan.task.model_copy(update=gat)})
    assert world_of(tied, ranks=4, hosts=1) == plan.world
    with pytest.raises(UserError, match=r"4 ranks, and 2 cannot resume it: train\.presampled"):
        world_of(tied, ranks=2, hosts=1)


@pytest.mark.parametrize("scheme", ["local_sgd", "diloco"])
def test_only_sums_of_gradients_are_equal_to_rounding(make_plan, scheme):
    assert "rounding" in effect_of(make_plan(ranks=2))
    assert "losses are others" in effect_of(make_plan(ranks=2, sync={"scheme": scheme, "every": 2}))


@given(starts)
def test_every_step_was_done_by_the_last_start_before_it(began):
    """A start does again whatever was done after its step."""
    spans = spans_of(began)
    firsts = [each.first_step for each in spans]
    assert firsts == sorted(set(firsts))
    assert all(one.ranks != other.ranks for one, other in pairwise(spans))
    for steps in range(1, 50):
        assert ranks_at(spans, steps) == next((ranks for first, ranks in reversed(began) if first < steps), 0)


def test_words():
    assert spans_text(spans_of([(0, 4), (10, 2), (14, 3)])) == "ranks: 4 to step 10, then 2 to step 14, then 3"


def served(make_plan, samplers: int, trainers: int, hosts: int = 1, **train):
    roles = RolesSpec(samplers=samplers, trainers=trainers)
    return make_plan(ranks=trainers, **train).model_copy(update={"roles": roles, "hosts": hosts})


@pytest.mark.parametrize(
    ("ranks", "hosts", "threads"), [(4, 1, 4), (4, 3, 6), (2, 1, 6), (6, 1, 3), (2, 2, 12), (8, 5, 12)]
)
def test_samplers_stay_when_other_ranks_go_on(make_plan, ranks, hosts, threads):
    plan = served(make_plan, 2, 4, threads=4)
    found = world_of(plan, ranks=ranks, hosts=hosts)
    wanted = 4 if ranks == 4 else threads
    assert found == World(hosts=hosts, ranks=ranks, threads=wanted, samplers=2)


@pytest.mark.parametrize(
    ("ranks", "hosts", "said", "fix"),
    [
        (3, 1, "run has 2 samplers: roles: 3 trainers cannot be shared out", "give --ranks 2 or --ranks 4"),
        (5, 1, "5 trainers cannot be shared out equally among 2 samplers", "give --ranks 4 or --ranks 6"),
        (4, 4, "4 trainers and 2 samplers do not fit 4 hosts", "give --ranks 2 or --ranks 6"),
    ],
)
def test_ranks_that_samplers_cannot_serve_are_refused_with_those_they_can(make_plan, ranks, hosts, said, fix):
    with pytest.raises(UserError, match=said) as refused:
        world_of(served(make_plan, 2, 4), ranks=ranks, hosts=hosts)
    assert refused.value.fix == fix
    for number in (int(word) for word in fix.split() if word.isdecimal()):
        assert world_of(served(make_plan, 2, 4), ranks=number, hosts=hosts).ranks == number
