"""Where parts lie: every part is on some rank, everyone finds it, and each node is one rank's to answer for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphmill.partition.placement import Placement


@st.composite
def placements(draw) -> Placement:
    """Any parts on any places: after a host was lost they seldom divide."""
    return Placement(draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(1, 4)))


@given(placements())
def test_every_part_is_read_where_it_lies_and_asked_for_there(placement):
    holders = {part: set(placement.ranks_with(part)) for part in range(placement.num_parts)}
    for rank in range(placement.world_size):
        own = set(placement.parts_of(rank))
        assert own == {part for part, ranks in holders.items() if rank in ranks}
        for part, server in enumerate(placement.servers_for(rank)):
            assert server in holders[part]
            assert (server == rank) == (part in own), "nobody asks for what it reads itself"


@given(placements(), st.data())
def test_each_node_is_answered_for_by_one_rank_that_has_it(placement, data):
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=placement.num_parts, max_size=placement.num_parts))
    offsets = np.cumsum([0, *sizes])
    ranges = [placement.own_range(rank, offsets) for rank in range(placement.world_size)]
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == offsets[-1]
    for rank, (first, last) in enumerate(ranges):
        parts = placement.parts_of(rank)
        assert offsets[parts.start] <= first <= last <= offsets[parts.stop]


@given(placements())
def test_requests_are_spread_evenly(placement):
    """Of the ranks that share a part, none is asked by more than one more of the others than another is."""
    asked = np.zeros((placement.num_parts, placement.world_size), dtype=int)
    for rank in range(placement.world_size):
        for part, server in enumerate(placement.servers_for(rank)):
            asked[part, server] += server != rank
    for part in range(placement.num_parts):
        those = asked[part, list(placement.ranks_with(part))]
        assert those.max() - those.min() <= 1 or len(those) == 1


@given(placements())
def test_shares_are_contiguous_and_even_but_for_one(placement):
    shares = [placement.parts_on(place) for place in range(placement.num_places)]
    assert [part for share in shares for part in share if len(share)] == sorted(
        part for share in shares for part in share
    )
    assert {part for share in shares for part in share} == set(range(placement.num_parts))
    sizes = [len(share) for share in shares]
    assert min(sizes) > 0
    assert max(sizes) - min(sizes) <= 1


def test_400_parts_of_100_hosts_go_on_with_99():
    sizes = [len(Placement(400, 99, 4).parts_on(place)) for place in range(99)]
    assert (sum(sizes), min(sizes), max(sizes)) == (400, 4, 5)
