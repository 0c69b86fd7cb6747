"""Windows of batches: what is needed is there, nothing is fetched in vain or twice, and the budget holds."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.sample.hot.lookahead import Lookahead

NUM_NODES = 40
batches = st.lists(
    st.sets(st.integers(0, NUM_NODES - 1), max_size=20).map(lambda ids: np.array(sorted(ids), dtype=np.int32)),
    max_size=25,
)
anyhow = {"needs": batches, "window": st.integers(1, 6), "further": st.integers(0, 6), "max_rows": st.integers(0, 45)}


def plan(needs, window, further, max_rows):
    return list(Lookahead(NUM_NODES, window, max_rows, window + further).windows(needs))


def rows_of(needs, window) -> set[int]:
    of_window = needs[window.first_batch : window.first_batch + window.num_batches]
    return set().union(*(rows.tolist() for rows in of_window))


def num_fetched(windows) -> int:
    return sum(len(window.fetch) for window in windows)


@given(**anyhow)
def test_every_batch_finds_its_rows(needs, window, further, max_rows):
    held: set[int] = set()
    first = 0
    for each in plan(needs, window, further, max_rows):
        assert each.first_batch == first
        assert each.num_batches == min(window, len(needs) - first)
        fetched, needed = set(each.fetch.tolist()), rows_of(needs, each)
        assert len(fetched) == len(each.fetch)
        assert fetched == needed - held, "neither a row in vain nor one that is held"
        kept = set(each.keep.tolist())
        assert kept <= held | fetched
        assert len(each.keep) <= max_rows
        assert (np.diff(each.keep) > 0).all()
        held, first = kept, first + each.num_batches
    assert first == len(needs)


@given(**anyhow)
def test_what_the_next_window_needs_stays(needs, window, further, max_rows):
    held: set[int] = set()
    for each, following in pairwise(plan(needs, window, further, max_rows)):
        held |= set(each.fetch.tolist())
        kept = set(each.keep.tolist())
        assert kept >= held & rows_of(needs, following) or (len(kept) == max_rows and kept <= rows_of(needs, following))
        held = kept


@given(**anyhow)
def test_no_window_fetches_more_than_its_rows_once(needs, window, further, max_rows):
    for each in plan(needs, window, further, max_rows):
        assert len(each.fetch) <= len(rows_of(needs, each))


@given(needs=batches, window=st.integers(1, 5), further=st.integers(0, 25))
def test_with_room_for_all_a_row_is_fetched_again_only_after_it_was_out_of_sight(needs, window, further):
    found = plan(needs, window, further, NUM_NODES)
    fetched = np.concatenate([np.empty(0, np.int32), *(each.fetch for each in found)])
    for node in range(NUM_NODES):
        uses = [number for number, rows in enumerate(needs) if node in rows]
        seen_until = [(use // window + 1) * window + window + further for use in uses]
        gaps = sum(later >= until for later, until in zip(uses[1:], seen_until, strict=False))
        assert np.count_nonzero(fetched == node) <= (gaps + 1 if uses else 0)


@given(needs=batches, max_rows=st.integers(0, 45))
def test_no_rule_that_keeps_as_many_rows_fetches_fewer(needs, max_rows):
    """Batch by batch and with all batches known: Belady's rule, against dropping the least recently used."""
    held: list[int] = []
    of_lru = 0
    for rows in needs:
        of_lru += len(set(rows.tolist()) - set(held))
        held = [*(node for node in held if node not in rows), *rows.tolist()]
        held = held[len(held) - min(max_rows, len(held)) :]
    assert num_fetched(plan(needs, 1, len(needs), max_rows)) <= of_lru


@given(**anyhow)
def test_a_plan_asks_for_no_batch_before_its_time(needs, window, further, max_rows):
    """Sampling ahead costs memory and time."""
    drawn = 0

    def drawing():
        nonlocal drawn
        for rows in needs:
            drawn += 1
            yield rows

    for each in Lookahead(NUM_NODES, window, max_rows, window + further).windows(drawing()):
        assert drawn <= each.first_batch + 2 * window + further


@given(**anyhow)
def test_a_planner_is_used_again(needs, window, further, max_rows):
    planner = Lookahead(NUM_NODES, window, max_rows, window + further)
    for one, other in zip(planner.windows(needs), list(planner.windows(needs)), strict=True):
        assert np.array_equal(one.fetch, other.fetch)
        assert np.array_equal(one.keep, other.keep)


@pytest.mark.parametrize(("window", "max_rows", "horizon"), [(0, 1, 1), (2, 1, 1), (1, -1, 1)])
def test_what_is_no_window(window, max_rows, horizon):
    with pytest.raises(ValueError, match="windows of"):
        Lookahead(NUM_NODES, window, max_rows, horizon)
