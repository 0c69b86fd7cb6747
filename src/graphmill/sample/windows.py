"""Batches in windows, and what follows each of them: the schedule is known, so some may be made before their time."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def in_windows(steps: range, size: int, first: int = 1) -> Sequence[range]:
    """Consecutive steps, up to `size` at a time: at first `first`, which are waited for, then twice as many each time.

    >>> in_windows(range(10), 4)
    [range(0, 1), range(1, 3), range(3, 7), range(7, 10)]
    """
    found, begin, now = [], 0, min(first, size)
    while begin < len(steps):
        found.append(steps[begin : begin + now])
        begin, now = begin + now, min(2 * now, size)
    return found


def with_following(items: Iterable[Item], count: int) -> Iterator[tuple[Item, tuple[Item, ...]]]:
    """Each item, and up to `count` that follow it: these are taken that much earlier, and none before its time.

    >>> list(with_following("abc", 1))
    [('a', ('b',)), ('b', ('c',)), ('c', ())]
    """
    coming, ahead = iter(items), deque[Item]()
    while True:
        ahead.extend(islice(coming, 1 + count - len(ahead)))
        if not ahead:
            return
        item = ahead.popleft()
        following = tuple(ahead)
        yield item, following
        del item, following  # held by whoever took them alone
