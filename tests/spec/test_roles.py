"""Every process of a run has one rank of a role, and every such rank one process."""

import doctest

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.spec import roles as module
from graphmill.spec.load import load_experiment
from graphmill.spec.roles import (
    RolesSpec,
    first_host_that_samples,
    fits,
    hosts_that_train,
    process_of,
    refuse_other_ranks,
    refuse_unfit_roles,
    role_rank_of,
)
from graphmill.spec.world import World


@given(samplers=st.integers(1, 6), each=st.integers(1, 4), hosts=st.integers(1, 6))
def test_every_process_has_a_seat_and_every_seat_a_process(samplers, each, hosts):
    roles = RolesSpec(samplers=samplers, trainers=samplers * each)
    try:
        refuse_unfit_roles(roles, hosts)
    except UserError:
        assume(False)
    role_ranks = [role_rank_of(process, roles, hosts) for process in range(roles.num_processes)]
    assert [process_of(role_rank.role, role_rank.rank, roles, hosts) for role_rank in role_ranks] == list(
        range(roles.num_processes)
    )
    assert sum(role_rank.role == "sampler" for role_rank in role_ranks) == samplers
    assert all(
        role_rank.rank < role_rank.num_ranks == (samplers if role_rank.role == "sampler" else roles.trainers)
        for role_rank in role_ranks
    )
    per_host = roles.num_processes // hosts
    for process, role_rank in enumerate(role_ranks):
        here = role_ranks[process // per_host * per_host :][:per_host]
        assert sum(other.role == role_rank.role for other in here) == role_rank.ranks_here
        assert role_rank.local_rank == [other for other in here if other.role == role_rank.role].index(role_rank)


@given(samplers=st.integers(1, 6), each=st.integers(1, 4))
def test_every_trainer_is_served_by_one_sampler(samplers, each):
    roles = RolesSpec(samplers=samplers, trainers=samplers * each)
    assert [trainer for sampler in range(samplers) for trainer in roles.trainers_of(sampler)] == list(
        range(roles.trainers)
    )
    assert all(trainer in roles.trainers_of(roles.sampler_of(trainer)) for trainer in range(roles.trainers))


@pytest.mark.parametrize(
    ("samplers", "trainers", "hosts", "words"),
    [
        (2, 3, 1, r"3 trainers cannot be shared out equally among 2 samplers"),
        (1, 2, 2, r"2 trainers and 1 samplers do not fit 2 hosts"),
    ],
)
def test_roles_that_do_not_fit_are_refused(samplers, trainers, hosts, words):
    with pytest.raises(UserError, match=words) as refused:
        refuse_unfit_roles(RolesSpec(samplers=samplers, trainers=trainers), hosts)
    assert "roles." in str(refused.value.fix)


def test_the_examples():
    assert doctest.testmod(module).failed == 0


@given(samplers=st.integers(1, 6), each=st.integers(1, 4), hosts=st.integers(1, 6))
def test_hosts_that_train_and_hosts_that_sample_are_all_hosts(samplers, each, hosts):
    roles = RolesSpec(samplers=samplers, trainers=samplers * each)
    assume(fits(samplers, samplers * each, hosts))
    world = World(hosts=hosts, ranks=roles.trainers, threads=1, samplers=samplers)
    here = [
        {
            world.role_rank(process).role
            for process in range(host * world.processes_per_host, (host + 1) * world.processes_per_host)
        }
        for host in range(hosts)
    ]
    assert [host for host in range(hosts) if "trainer" in here[host]] == list(range(hosts_that_train(roles, hosts)))
    assert [host for host in range(hosts) if "sampler" in here[host]] == list(
        range(first_host_that_samples(roles, hosts), hosts)
    )
    assert (world.processes, world.hosts_with_ranks) == (roles.num_processes, hosts_that_train(roles, hosts))


def test_seats_name_their_files():
    world = World(hosts=2, ranks=2, threads=1, samplers=2)
    assert [world.role_rank(process).stem for process in range(4)] == ["rank_0", "sampler_0", "rank_1", "sampler_1"]
    assert world.role_rank(3).name == "sampler 1"
    assert [World(hosts=1, ranks=2, threads=1).role_rank(process).stem for process in range(2)] == ["rank_0", "rank_1"]


def test_trainers_are_the_ranks():
    refuse_other_ranks(RolesSpec(samplers=1, trainers=2), "auto")
    refuse_other_ranks(RolesSpec(samplers=1, trainers=2), 2)
    with pytest.raises(UserError, match=r"train\.ranks is 4, but roles\.trainers is 2") as refused:
        refuse_other_ranks(RolesSpec(samplers=1, trainers=2), 4)
    assert refused.value.fix == "set roles.trainers=4, or leave train.ranks out"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["roles.sampler=1", "roles.trainers=2"], "write roles.samplers"),
        (["roles.samplers=1", "roles.trainer=2"], "write roles.trainers"),
        (["roles.servers=1", "roles.trainers=2"], "roles.servers is called roles.samplers"),
        (["roles.samplers=1", "roles.clients=2"], "roles.clients is called roles.trainers"),
        (["roles.samplers=1", "roles.ranks=2"], "write roles.trainers"),
        (["role.samplers=1"], "did you mean 'roles'"),
        (["roles.samplers=1"], "roles.trainers is missing"),
        (["roles.samplers=0", "roles.trainers=2"], "it takes a whole number > 0"),
        (["roles=2"], "set its keys, for example roles.samplers, which takes a whole number > 0"),
    ],
)
def test_a_wrong_key_is_told_with_the_right_one(overrides, says):
    with pytest.raises(UserError) as refused:
        load_experiment("debian-packages-sage", overrides)
    assert says in str(refused.value)
