"""Messages for the user: every module writes to its own logger, and the entry point of a process shows them.

A module has `_log = logging.getLogger(__name__)`: `info` for remarks and progress, `warning` and `error` without these
words in the text. As a library, Python's default holds: remarks are not shown, warnings are, on standard error.
"""

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from graphmill.base.foreign import printable

_about: ContextVar[str] = ContextVar("about", default="")
_OURS: Final = ("graphmill", "__main__")  # a module of ours that is run with `python -m` is called __main__


class _StderrHandler(logging.Handler):
    """Writes to what is standard error at that moment, for a live display, and a test, put another stream there."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  # as in every handler of logging: a message never ends the program
            self.handleError(record)


class _Formatter(logging.Formatter):
    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{self._prefix}{_about.get()}{level}{printable(super().format(record))}"


@contextmanager
def about(name: str) -> Iterator[None]:
    """Begin messages of this thread with `name` while it lasts: one of several that a process looks after."""
    token = _about.set(f"{name}: ")
    try:
        yield
    finally:
        _about.reset(token)


def show_messages(prefix: str = "") -> None:
    """Show the messages of this process on standard error, each after `prefix`. Called again, only the last counts."""
    handler = _handler(prefix)
    for log in map(logging.getLogger, _OURS):
        for earlier in [earlier for earlier in log.handlers if isinstance(earlier, _StderrHandler)]:
            log.removeHandler(earlier)
        log.addHandler(handler)
        log.setLevel(logging.INFO)


@contextmanager
def messages_shown() -> Iterator[None]:
    """Show messages on standard error while a call from Python lasts, unless the caller has set up logging."""
    log = logging.getLogger(_OURS[0])
    if log.hasHandlers():
        yield
        return
    handler, level = _handler(""), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _handler(prefix: str) -> logging.Handler:
    handler = _StderrHandler()
    handler.setFormatter(_Formatter(prefix))
    return handler


def hush_torch(environ: MutableMapping[str, str]) -> None:
    """Let torch's C++ write errors alone, unless a person asks for more. To be called before torch is imported.

    It warns, with a page of its frames, of a store that does not answer: of whoever ends a moment after rank 0, or is
    left by it. What a rank says last is shown to a person, and it says itself whom it has lost.
    """
    environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


@contextmanager
def each_text_once(module: str) -> Iterator[None]:
    """Let each text of the logger of `module` pass only the first time while this lasts."""
    log, texts = logging.getLogger(module), set[str]()

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_known = text in texts
        texts.add(text)
        return not is_known

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)
