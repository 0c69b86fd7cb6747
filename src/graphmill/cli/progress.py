"""Show on standard error that work is under way, and for how long."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from graphmill.base.messages import show_messages

_log = logging.getLogger(__name__)


@contextmanager
def progress(title: str) -> Iterator[None]:
    """Show on standard error that the work is under way, and for how long; messages below it are indented."""
    with _spinner(title) if sys.stderr.isatty() else _lines(title):
        show_messages("  ")
        try:
            yield
        finally:
            show_messages()


@contextmanager
def _spinner(title: str) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # While it is shown, it takes what is written to sys.stderr, and prints it above itself.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(title)
        yield


@contextmanager
def _lines(title: str) -> Iterator[None]:
    begin = time.monotonic()
    _log.info(f"{title} …")
    yield
    _log.info(f"{title}: {time.monotonic() - begin:.1f} s")
