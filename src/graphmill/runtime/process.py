"""How this process began, what it imports, how many files it may have open, and how it ends."""

import ctypes
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Final, NoReturn

PYG: Final = "torch_geometric"
_COMPILER: Final = "torch._dynamo"
_PR_SET_PDEATHSIG: Final = 1
_imports_s = 0.0
UNLIMITED_FILES = resource.RLIM_INFINITY


def die_with_parent(parent: int) -> None:
    """Let this process be killed when the thread of `parent` that started it ends, however that comes."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died between fork and prctl
        os._exit(1)


@contextmanager
def sched_batch_threads() -> Iterator[None]:
    """Threads that begin within the block take no core from another thread when they wake (SCHED_BATCH).

    For gloo's. The one that reads from its sockets asks again and again for a lock that another holds: where it has
    taken that one's core, both wait for the end of a time slice, at nearly every collective of as many ranks as cores.
    """
    if os.sched_getscheduler(0) != os.SCHED_OTHER:  # somebody chose another
        yield
        return
    with suppress(OSError):  # a sandbox may forbid it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # Linux: of this thread, and of those it begins
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def import_pyg() -> None:
    """Import PyG, and torch's compiler not with it, which takes twice as long as all else of PyG.

    PyG imports `torch._dynamo` only to ask whether a module is a compiled one, and needs no more than the line: torch
    imports its compiler by itself when somebody asks for it.
    """
    importlib.import_module("torch")
    if PYG in sys.modules or _COMPILER in sys.modules:
        importlib.import_module(PYG)
        return
    sys.modules[_COMPILER] = ModuleType(_COMPILER)
    try:
        importlib.import_module(PYG)
    finally:
        del sys.modules[_COMPILER]


def count_imports(seconds: float) -> None:
    """Note what this process imported for those that are forked from it."""
    global _imports_s  # noqa: PLW0603  # of the process, as its id is
    _imports_s += seconds


def seconds_since_start() -> float:
    """How long ago this process began; one that was forked off, what imports took that it found done."""
    import psutil

    created: float = psutil.Process().create_time()  # type: ignore[no-untyped-call]  # psutil ships no types
    return _imports_s + max(0.0, time.time() - created)


def leave(status: int) -> NoReturn:
    """End this process without ending its threads first: python's own exit would unwind them.

    After a network failure the watchdog may wait seconds for an answer of the store, and torch's C++ cannot be unwound
    there: the process would abort, and a rank that is done would count as failed.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the disk of the log is full: the exit status still says what it is
            stream.flush()
    os._exit(status)


def allow_open_files() -> int:
    """Raise this process's soft limit to the hard one. Returns that; `UNLIMITED_FILES` if there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
