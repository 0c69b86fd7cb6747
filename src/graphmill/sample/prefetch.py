"""Make the next items on a background thread while the caller works on this one.

A thread, not a process: sampling and gathering release the GIL, and nothing is copied between processes.
"""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class _Finished:
    pass


def prefetch(make: Callable[[], Iterator[Item]], depth: int) -> Generator[Item]:
    """Yield what `make()` yields, in order, with up to `depth` items made ahead; 0 makes each when it is asked for.

    An error in the background is raised here, at the item where it arose. Closing the iterator ends the thread. An item
    is held by the caller alone once it is yielded, and by nobody while the next is waited for.
    """
    if depth == 0:
        yield from make()
        return
    waiting: queue.Queue[Item | _Failed | type[_Finished]] = queue.Queue(maxsize=depth)
    closed = threading.Event()

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
            for item in make():
                if not put(item):
                    return
                del item
            put(_Finished)
        except BaseException as error:  # noqa: BLE001  # handed to the consumer, who raises it
            put(_Failed(error))

    thread = threading.Thread(target=fill, name="graphmill-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            entry = waiting.get()
            if entry is _Finished:
                return
            if isinstance(entry, _Failed):
                raise entry.error
            yield entry  # type: ignore[misc]  # neither _Finished nor _Failed
            del entry
    finally:
        closed.set()
        thread.join()
