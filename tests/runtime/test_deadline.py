"""How much of a job's time is kept back."""

from hypothesis import given
from hypothesis import strategies as st

from graphmill.runtime.deadline import Reserve


@given(st.lists(st.floats(0, 1e4)), st.lists(st.floats(0, 1e4)), st.floats(0, 1e3))
def test_the_reserve_covers_the_longest_round_the_longest_save_and_one_more_process(rounds, saves, start_s):
    reserve = Reserve(start_s=start_s)
    for seconds in rounds:
        reserve.saw_round(seconds)
    for seconds in saves:
        reserve.saw_save(seconds)
    assert reserve.needed_s >= max(rounds, default=0) + max(saves, default=0) + start_s
