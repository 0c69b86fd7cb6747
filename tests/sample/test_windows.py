"""Windows cover an epoch, and what follows an item is made no earlier than it must be."""

from hypothesis import given
from hypothesis import strategies as st

from graphmill.sample.schedule import in_windows, with_following


@given(number=st.integers(0, 25), count=st.integers(0, 6))
def test_what_follows_is_taken_no_earlier_than_it_must(number, count):
    """Sampling ahead costs memory and time."""
    taken = 0

    def taking():
        nonlocal taken
        for item in range(number):
            taken += 1
            yield item

    found = []
    for item, following in with_following(taking(), count):
        assert taken == min(number, item + 1 + count)
        assert following == tuple(range(item + 1, taken))
        found.append(item)
    assert found == list(range(number))


@given(steps=st.integers(0, 60), size=st.integers(1, 20), first=st.integers(1, 20))
def test_windows_cover_all_steps_and_are_no_larger_than_asked(steps, size, first):
    found = in_windows(range(3, 3 + steps), size, first)
    assert [step for window in found for step in window] == list(range(3, 3 + steps))
    assert all(1 <= len(window) <= size for window in found)
