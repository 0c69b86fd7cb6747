"""Every process of a run has one seat, and every seat one process."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.spec.roles import RolesSpec, process_of, refuse_unfit_roles, seat_of


@given(samplers=st.integers(1, 6), each=st.integers(1, 4), hosts=st.integers(1, 6))
def test_every_process_has_a_seat_and_every_seat_a_process(samplers, each, hosts):
    roles = RolesSpec(samplers=samplers, trainers=samplers * each)
    try:
        refuse_unfit_roles(roles, hosts)
    except UserError:
        assume(False)
    seats = [seat_of(process, roles, hosts) for process in range(roles.num_processes)]
    assert [process_of(seat.role, seat.rank, roles, hosts) for seat in seats] == list(range(roles.num_processes))
    assert sum(seat.role == "sampler" for seat in seats) == samplers
    assert all(seat.rank < seat.num_ranks == (samplers if seat.role == "sampler" else roles.trainers) for seat in seats)
    per_host = roles.num_processes // hosts
    for process, seat in enumerate(seats):
        here = seats[process // per_host * per_host :][:per_host]
        assert sum(other.role == seat.role for other in here) == seat.ranks_here
        assert seat.local_rank == [other for other in here if other.role == seat.role].index(seat)


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
