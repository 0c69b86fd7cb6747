"""Spans: named stretches of time of one rank, measured in one way everywhere, and reported to counters and listeners.

`with spans("sample"): …` adds the seconds to the counter of that name; listeners (a profile) are called for every
span when it ends. A span that raises counts, too.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType
from typing import Final, Literal

Name = Literal[
    "sample",
    "fetch",
    "gather",
    "collate",
    "copy",
    "wait",
    "step",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "evaluate",
    "checkpoint",
]
"""Making a batch (perhaps in a thread of its own): sampling, fetching rows of other ranks, gathering, cutting whole
graphs, copying to a GPU; waiting for it; computing on it, and within that forward, backward, the update; collectives;
…"""
Listener = Callable[[Name, float, float], None]
"""Function that hears a span's name, its begin and its end (`time.perf_counter`, s), in the thread that measured it."""


class Span:
    """One stretch of time; `seconds` is there once it has ended."""

    __slots__ = ("_around", "_began", "_name", "_spans", "seconds")

    def __init__(self, spans: "Spans", name: Name) -> None:
        self._spans, self._name = spans, name
        self._around = None if spans.around is None else spans.around(name)

    def __enter__(self) -> "Span":
        if self._around is not None:
            self._around.__enter__()
        self._began = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._around is not None:
            self._around.__exit__(kind, error, trace)
        ended = perf_counter()
        self.seconds = ended - self._began
        self._spans.seconds[self._name] += self.seconds
        for listener in self._spans.listeners:
            listener(self._name, self._began, ended)


class Spans:
    """Seconds spent so far, by name. A name is measured by one thread at a time."""

    __slots__ = ("around", "listeners", "seconds")

    def __init__(self) -> None:
        self.seconds: Final[defaultdict[Name, float]] = defaultdict(float)
        self.listeners: Final[list[Listener]] = []
        self.around: Callable[[Name], AbstractContextManager[object]] | None = None  # entered around each span

    def __call__(self, name: Name) -> Span:
        """A span of that name, to be entered once."""
        return Span(self, name)
