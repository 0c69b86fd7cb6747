"""Items made ahead by a thread: in order, with errors where they belong, and no thread left behind."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from contextlib import closing

import pytest
from waiting import HANG_S, wait_until

from graphmill.sample import prefetch as module
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


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("num_taken", [0, 1, 4, 19])
def test_ranks_that_close_together_have_made_equally_many(depth, num_taken):
    """However far each has got: as many as any may have made, and no more than there are."""
    made = []
    for delay_s in (0.0, 0.002):
        numbers = iter(range(20))
        mine: list[int] = []

        def make(numbers=numbers, mine=mine, delay_s=delay_s):
            for number in numbers:
                time.sleep(delay_s)
                mine.append(number)
                yield number

        with closing(prefetch(make, depth, collective=True)) as items:
            for _ in range(num_taken):
                next(items)
        made.append(len(mine))
    assert made == [min(20, num_taken + depth + 1) if num_taken else 0] * 2
    assert not workers()


def test_a_failure_does_not_wait_for_what_other_ranks_would_make():
    never = threading.Event()

    def make():
        yield 1
        never.wait()  # a collective whose other ranks have gone
        yield 2

    with pytest.raises(ZeroDivisionError), closing(prefetch(make, 2, collective=True)) as items:  # noqa: PT012
        next(items)
        raise ZeroDivisionError
    never.set()
    for thread in workers():
        thread.join()


def test_the_thread_itself_may_collect_the_iterator(monkeypatch):
    """As garbage in a cycle, which any thread may look for."""
    collects, unraisable = threading.Event(), []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def make():
        yield 1
        collects.wait(HANG_S)
        gc.collect()
        yield 2

    cycle = [prefetch(make, 1)]
    cycle.append(cycle)
    gc.disable()
    try:
        next(cycle[0])
        del cycle
        collects.set()
        wait_until(lambda: not workers(), "the end of the thread")
    finally:
        gc.enable()
    assert not unraisable


def test_all_iterators_that_are_held_at_the_end_are_told_before_one_is_waited_for(monkeypatch):
    """Else each would be waited for up to 0.1 s, one after the other."""
    held = [prefetch(lambda: iter(range(100)), 1) for _ in range(20)]
    assert [next(each) for each in held] == [0] * 20
    events = [closed for closed, _ in module._open.values()]
    told, join = [], threading.Thread.join
    monkeypatch.setattr(
        threading.Thread,
        "join",
        lambda thread, *limit: (told.append(all(event.is_set() for event in events)), join(thread, *limit))[1],
    )
    module._close_all()
    assert len(told) == len(events) == 20
    assert all(told)
    assert not workers()


HELD_AT_THE_END = """
import sys
import torch
from graphmill import _native
from graphmill.sample import prefetch as module
from graphmill.sample.prefetch import prefetch

def make():
    values, rows = torch.ones(100_000, 16), torch.arange(100_000)
    while True:
        _native.gather_rows(values, rows, torch.empty(100_000, 16), 1)
        yield 1

held = prefetch(make, 100_000)
next(held)
{last}
"""


@pytest.mark.parametrize(("last", "status"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError(held)", 1)])
def test_a_script_that_holds_an_iterator_ends_as_it_would(last, status):
    """The thread is in native code, which Python must not end: it would abort the process."""
    script = HELD_AT_THE_END.format(last=last)
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, "terminate" in done.stderr) == (status, False), done.stderr
