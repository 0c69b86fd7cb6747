"""Windows of batches: what is needed is there, nothing is fetched in vain or twice, and the budget holds."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.sample.hot.lookahead import Lookahead
from graphmill.sample.schedule import in_windows

NUM_NODES = 40
batches = st.lists(
    st.sets(st.integers(0, NUM_NODES - 1), max_size=20).map(lambda ids: np.array(sorted(ids), dtype=np.int32)),
    max_size=25,
)
rows_kept = st.none() | st.integers(0, 45)
anyhow = {"needs": batches, "window": st.integers(1, 6), "horizon": st.integers(1, 4), "max_rows": rows_kept}


def plan(needs, window, horizon, max_rows):
    windows = in_windows(range(len(needs)), window, first=window)
    return list(Lookahead(max_rows, horizon).windows(needs, [windows]))


def rows_of(needs, window) -> set[int]:
    return set().union(*(needs[batch].tolist() for batch in window.batches))


def num_fetched(windows) -> int:
    return sum(len(window.fetch) for window in windows)


@given(**anyhow)
def test_every_batch_finds_its_rows(needs, window, horizon, max_rows):
    had: set[int] = set()
    first = 0
    for each in plan(needs, window, horizon, max_rows):
        assert each.batches.start == first
        assert len(each.batches) == min(window, len(needs) - first)
        held, fetched, needed = set(each.held.tolist()), set(each.fetch.tolist()), rows_of(needs, each)
        assert len(fetched) == len(each.fetch)
        assert fetched == needed - held, "neither a row in vain nor one that is held"
        assert held <= had
        assert max_rows is None or len(each.held) <= max_rows
        assert (np.diff(each.held) > 0).all()
        had, first = held | fetched, each.batches.stop
    assert first == len(needs)


@given(**anyhow)
def test_what_the_next_window_needs_stays(needs, window, horizon, max_rows):
    had: set[int] = set()
    for each in plan(needs, window, horizon, max_rows):
        held, needed = set(each.held.tolist()), rows_of(needs, each)
        assert held >= had & needed or (len(held) == max_rows and held <= needed)
        had = held | set(each.fetch.tolist())


@given(**anyhow)
def test_a_budget_is_used_and_nothing_but_what_is_in_sight_stays_without_one(needs, window, horizon, max_rows):
    found, had = plan(needs, window, horizon, max_rows), set()
    for number, each in enumerate(found):
        in_sight = set().union(*(rows_of(needs, one) for one in found[number : number + horizon]))
        wanted = len(had & in_sight) if max_rows is None else min(max_rows, len(had))
        assert len(each.held) == wanted
        assert max_rows is not None or set(each.held.tolist()) <= in_sight
        had = set(each.held.tolist()) | set(each.fetch.tolist())


@given(**anyhow)
def test_no_window_fetches_more_than_its_rows_once(needs, window, horizon, max_rows):
    for each in plan(needs, window, horizon, max_rows):
        assert len(each.fetch) <= len(rows_of(needs, each))


@given(needs=batches, window=st.integers(1, 5), horizon=st.integers(1, 6))
def test_with_room_for_all_a_row_is_fetched_again_only_after_it_was_out_of_sight(needs, window, horizon):
    found = plan(needs, window, horizon, None)
    fetched = np.concatenate([np.empty(0, np.int32), *(each.fetch for each in found)])
    for node in range(NUM_NODES):
        uses = [number for number, rows in enumerate(needs) if node in rows]
        seen_until = [(use // window + 1 + horizon) * window for use in uses]
        gaps = sum(later >= until for later, until in zip(uses[1:], seen_until, strict=False))
        assert np.count_nonzero(fetched == node) == (gaps + 1 if uses else 0)


few_batches = st.lists(st.sets(st.integers(0, 5), max_size=4).map(sorted), max_size=7)


@given(needs=few_batches, window=st.integers(1, 2), max_rows=st.integers(0, 4))
def test_with_all_in_sight_nothing_fetches_fewer(needs, window, max_rows):
    """Against every way there is to choose what stays."""
    needs = [np.array(rows, dtype=np.int32) for rows in needs]
    fewest = {frozenset[int](): 0}  # of each set of rows that may be there: how many were fetched until then
    for each in in_windows(range(len(needs)), window, first=window):
        needed = frozenset().union(*(needs[batch].tolist() for batch in each))
        then: dict[frozenset[int], int] = {}
        for had, fetched in fewest.items():
            for stays in combinations(sorted(had), min(max_rows, len(had))):
                has, more = needed.union(stays), len(needed.difference(stays))
                then[has] = min(fetched + more, then.get(has, fetched + more))
        fewest = then
    assert num_fetched(plan(needs, window, len(needs) + 1, max_rows)) == min(fewest.values())


@given(needs=batches, max_rows=st.integers(0, 45))
def test_no_rule_that_keeps_as_many_rows_fetches_fewer(needs, max_rows):
    """Batch by batch and with all batches known: Belady's rule, against dropping the least recently used."""
    held: list[int] = []
    of_lru = 0
    for rows in needs:
        of_lru += len(set(rows.tolist()) - set(held))
        held = [*(node for node in held if node not in rows), *rows.tolist()]
        held = held[len(held) - min(max_rows, len(held)) :]
    assert num_fetched(plan(needs, 1, len(needs) + 1, max_rows)) <= of_lru


def test_of_rows_out_of_sight_those_stay_that_most_windows_needed():
    """Node 9 was needed by two windows, node 1 by one: its lower number does not save it."""
    needs = [np.array(rows, dtype=np.int32) for rows in ([1, 9], [9], [])]
    assert plan(needs, 1, 1, 1)[2].held.tolist() == [9]
    needs = [np.array(rows, dtype=np.int32) for rows in ([9], [9], [1], [2])]
    assert [each.held.tolist() for each in plan(needs, 1, 1, 2)][3] == [1, 9]
    assert [each.held.tolist() for each in plan([*needs, needs[0][:0]], 1, 1, 1)][3] == [9]


def test_of_rows_that_the_next_window_needs_those_stay_that_most_of_its_batches_read():
    """Node 1 by both, node 9 by one: that two windows have needed that before does not save it."""
    needs = [np.array(rows, dtype=np.int32) for rows in ([9], [], [1, 9], [], [1, 9], [1])]
    assert plan(needs, 2, 1, 1)[2].held.tolist() == [1]


@given(needs=batches, window=st.integers(1, 6), more=st.integers(1, 6), max_rows=rows_kept)
def test_what_was_held_stays_for_another_epoch(needs, window, more, max_rows):
    """And no window looks beyond the end of its own."""
    windows = in_windows(range(len(needs)), window)
    epochs = [windows, in_windows(range(len(needs)), more)]
    both = list(Lookahead(max_rows, 3).windows(needs, epochs))
    alone = list(Lookahead(max_rows, 3).windows(needs, epochs[:1]))
    assert [one.fetch.tolist() for one in both[: len(windows)]] == [one.fetch.tolist() for one in alone]
    if needs and max_rows is None:
        first = both[len(windows)]
        assert set(first.held.tolist()) >= rows_of(needs, first) & set(both[len(windows) - 1].fetch.tolist())


@pytest.mark.parametrize(("max_rows", "horizon"), [(-1, 1), (1, 0)])
def test_what_is_no_lookahead(max_rows, horizon):
    with pytest.raises(ValueError, match="windows ahead"):
        Lookahead(max_rows, horizon)
