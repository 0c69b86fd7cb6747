"""Windows of batches: what is needed is there, nothing is fetched in vain or twice, and the budget holds."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphmill.sample.hot.lookahead import Lookahead

NUM_NODES = 40
batches = st.lists(
    st.sets(st.integers(0, NUM_NODES - 1), max_size=20).map(lambda ids: np.array(sorted(ids), dtype=np.int32)),
    max_size=25,
)
anyhow = {"needs": batches, "max_batches": st.integers(1, 6), "max_rows": st.integers(0, 45)}


def plan(needs, max_batches, max_rows):
    return list(Lookahead(NUM_NODES, max_batches, max_rows).windows(needs))


@given(**anyhow)
def test_every_batch_finds_its_rows(needs, max_batches, max_rows):
    held, first = set(), 0
    for window in plan(needs, max_batches, max_rows):
        assert window.first_batch == first
        assert 1 <= window.num_batches <= max_batches
        of_window = [set(rows.tolist()) for rows in needs[first : first + window.num_batches]]
        needed, fetched = set().union(*of_window), set(window.fetch.tolist())
        assert len(fetched) == len(window.fetch)
        assert fetched == needed - held, "neither a row in vain nor one that is held"
        held |= fetched
        assert len(held) <= max(max_rows, len(of_window[0]) if window.num_batches == 1 else 0)
        kept = set(window.keep.tolist())
        assert kept <= held
        assert len(window.keep) <= max_rows
        held, first = kept, first + window.num_batches
    assert first == len(needs)


@given(**anyhow)
def test_what_the_next_window_needs_stays(needs, max_batches, max_rows):
    found, held = plan(needs, max_batches, max_rows), set()
    for window, following in pairwise(found):
        held |= set(window.fetch.tolist())
        next_needed = set().union(*(rows.tolist() for rows in needs[following.first_batch :][: following.num_batches]))
        kept = set(window.keep.tolist())
        assert kept >= held & next_needed or len(kept) == max_rows
        held = kept


@given(needs=batches, max_batches=st.integers(1, 30))
def test_with_room_for_all_each_row_is_fetched_once(needs, max_batches):
    """As long as its uses are no further apart than the plan looks."""
    found = plan(needs, max_batches, NUM_NODES)
    fetched = np.concatenate([window.fetch for window in found]) if found else np.empty(0, np.int32)
    if max_batches >= len(needs):
        assert len(np.unique(fetched)) == len(fetched)
    for node in range(NUM_NODES):
        uses = [number for number, rows in enumerate(needs) if node in rows]
        gaps = sum(later - earlier > max_batches for earlier, later in pairwise(uses))
        assert np.count_nonzero(fetched == node) <= (gaps + 1 if uses else 0)


@given(**anyhow)
def test_more_room_never_costs_a_row(needs, max_batches, max_rows):
    """Windows of one batch: the nearest use first is the best that can be done for what is known."""
    rows = [sum(len(w.fetch) for w in plan(needs, len(needs) + 1, room)) for room in (0, NUM_NODES)]
    assert rows[1] <= rows[0] == sum(map(len, needs))
    del max_batches, max_rows


@given(**anyhow)
def test_a_plan_reads_no_further_than_it_says(needs, max_batches, max_rows):
    """Sampling ahead costs memory and time: the batches are drawn when they are wanted."""
    drawn = 0

    def drawing():
        nonlocal drawn
        for rows in needs:
            drawn += 1
            yield rows

    for window in Lookahead(NUM_NODES, max_batches, max_rows).windows(drawing()):
        assert drawn <= window.first_batch + window.num_batches + max_batches


@given(**anyhow)
def test_the_scratch_is_left_clean(needs, max_batches, max_rows):
    """A planner is used for many epochs."""
    planner = Lookahead(NUM_NODES, max_batches, max_rows)
    first = list(planner.windows(needs))
    again = list(planner.windows(needs))
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.fetch, other.fetch)
        assert np.array_equal(one.keep, other.keep)
