"""Items made ahead by a thread: in order, with errors where they belong, and no thread left behind."""

import threading
import time
import weakref
from contextlib import closing

import pytest
from waiting import HANG_S, wait_until

from graphmill.sample.prefetch import prefetch

DEPTHS = (0, 1, 2, 5)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "graphmill-prefetch"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_order(depth):
    assert list(prefetch(lambda: iter(range(100)), depth)) == list(range(100))
    assert not workers()


@pytest.mark.parametrize("depth", DEPTHS)
def test_nothing_at_all(depth):
    assert list(prefetch(lambda: iter(()), depth)) == []


@pytest.mark.parametrize("depth", DEPTHS)
def test_an_error_is_raised_at_its_item(depth):
    def make():
        yield 1
        yield 2
        raise ZeroDivisionError("the third")

    items = []
    with pytest.raises(ZeroDivisionError, match="the third"):
        items.extend(prefetch(make, depth))  # extend keeps what came before the error
    assert items == [1, 2]
    assert not workers()


@pytest.mark.parametrize("depth", DEPTHS)
def test_an_error_before_the_first_item(depth):
    def fail():
        raise OSError("no graph")

    with pytest.raises(OSError, match="no graph"):
        next(prefetch(fail, depth))
    assert not workers()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_leaving_early_ends_the_thread(depth):
    closed = threading.Event()

    def make():
        try:
            yield from range(10**9)
        finally:
            closed.set()

    with closing(prefetch(make, depth)) as items:
        assert [next(items) for _ in range(3)] == [0, 1, 2]
        assert workers()
    assert not workers()
    assert closed.is_set(), "the maker's own clean-up ran"


def test_no_more_than_depth_are_made_ahead():
    made = []

    def make():
        for number in range(100):
            made.append(number)
            yield number

    with closing(prefetch(make, 3)) as items:
        for taken in range(1, 6):
            next(items)
            most = taken + 3 + 1  # three waiting, one in hand
            wait_until(lambda most=most: len(made) >= most, f"{most} items")
            time.sleep(0.02)  # for one too many to show
            assert len(made) == most


def test_items_are_made_while_the_caller_works():
    begun = [threading.Event() for _ in range(5)]

    def make():
        for number in range(5):
            begun[number].set()
            yield number

    for number in prefetch(make, 2):  # the caller has an item in hand, and asks for no other yet
        assert all(event.wait(HANG_S) for event in begun[: number + 3])


def test_it_is_lazy():
    started = []
    items = prefetch(lambda: iter([started.append(1)]), 2)
    assert not started
    assert list(items) == [None]


@pytest.mark.parametrize("depth", DEPTHS)
def test_nobody_holds_an_item_while_the_next_is_waited_for(depth):
    released, was_released = threading.Event(), []

    class Large:
        pass

    def make():
        first = Large()
        weakref.finalize(first, released.set)
        yield first
        del first
        was_released.append(released.wait(HANG_S))
        yield Large()

    items = prefetch(make, depth)
    next(items)
    assert isinstance(next(items), Large)
    items.close()
    assert was_released == [True]
