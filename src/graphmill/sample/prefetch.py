"""Make the next items on a background thread while the caller works on this one.

A thread, not a process: sampling and gathering release the GIL, and nothing is copied between processes.
"""

import atexit
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

_LONGEST_CLOSE: Final = 30.0  # seconds: collectives wait for ranks that may have ended already

Item = TypeVar("Item")
_open: Final[dict[threading.Thread, tuple[threading.Event, bool]]] = {}  # that have not ended


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class _Finished:
    pass


def prefetch(make: Callable[[], Iterator[Item]], depth: int, *, collective: bool = False) -> Generator[Item]:
    """Yield what `make()` yields, in order, with up to `depth` items made ahead; 0 makes each when it is asked for.

    An error in the background is raised here, at the item where it arose. Closing the iterator ends the thread. An item
    is held by the caller alone once it is yielded, and by nobody while the next is waited for. `collective`: making an
    item takes collectives, which all ranks must call equally often. So when ranks that took as many items close, each
    makes as many more as any of them may have made: `depth`, and the one that waits for room.
    """
    if depth == 0:
        yield from make()
        return
    waiting: queue.Queue[Item | _Failed | type[_Finished]] = queue.Queue(maxsize=depth)
    closed, num_taken, is_failing = threading.Event(), 0, False

    def put(entry: Item | _Failed | type[_Finished]) -> bool:
        while not closed.is_set():
            try:
                waiting.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def fill() -> None:
        try:
            items, number = make(), -1
            for item in items:
                number += 1  # enumerate would hold the item while the next is made
                if not put(item):
                    if collective and not is_failing:
                        last = num_taken + depth  # items from 0; no rank can have made a later one
                        for _ in islice(items, last - number):
                            pass
                    return
                del item
            put(_Finished)
        except BaseException as error:  # noqa: BLE001  # handed to the consumer, who raises it
            put(_Failed(error))
        finally:
            _open.pop(thread, None)

    thread = threading.Thread(target=fill, name="graphmill-prefetch", daemon=True)
    _open[thread] = (closed, collective)
    try:
        thread.start()
    except BaseException:
        del _open[thread]
        raise
    try:
        while True:
            entry = waiting.get()
            if entry is _Finished:
                return
            if isinstance(entry, _Failed):
                raise entry.error
            num_taken += 1
            yield entry  # type: ignore[misc]  # neither _Finished nor _Failed
            del entry
    finally:
        is_failing = has_failed(sys.exception())
        closed.set()
        if collective and is_failing:  # the thread may wait for ranks that have stopped; it ends with the process
            _open.pop(thread, None)
        elif thread is not threading.current_thread():  # it may collect this iterator as garbage
            thread.join()


@atexit.register
def _close_all() -> None:
    """End the threads of iterators that a script still holds: Python ending one in native code aborts the process."""
    has_raised = getattr(sys, "last_value", None) is not None
    still_open = list(_open.items())
    for _, (closed, _) in still_open:
        closed.set()
    for thread, (_, together) in still_open:
        if not (together and has_raised):  # as above
            thread.join(_LONGEST_CLOSE)


def has_failed(error: BaseException | None) -> bool:
    """Whether an iterator is left because of an error, its own or one that its user is about to raise."""
    while isinstance(error, GeneratorExit):  # closed, perhaps on the way out of a block that failed
        error = error.__context__
    return error is not None
