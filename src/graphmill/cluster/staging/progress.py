"""How far the copying is: a bar on a terminal, a message now and then in a log."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_log = logging.getLogger(__name__)

_LINE_EVERY_S: Final = 5.0


@contextmanager
def shown_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with numbers of bytes as they are done, from any thread."""
    if sys.stderr.isatty():
        with _bar(what, total) as advance:
            yield advance
    else:
        yield _Lines(what, total).advance


class _Lines:
    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._done = 0
        self._began = self._said = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, num_bytes: int) -> None:
        with self._lock:
            self._done += num_bytes
            now = time.monotonic()
            if now - self._said < _LINE_EVERY_S:
                return
            self._said = now
            percent, speed = 100 * self._done / max(1, self._total), self._done / 2**20 / (now - self._began)
            _log.info(f"{self._what}: {percent:.0f} % of {self._total / 2**20:,.0f} MiB, {speed:,.0f} MiB/s")


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        *(TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn()),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda num_bytes: progress.advance(bar, num_bytes)
