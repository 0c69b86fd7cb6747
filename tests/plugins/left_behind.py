"""No test leaves a process behind.

Processes are known by their environment: this session's mark, and the test that started them, which pytest puts there
itself (PYTEST_CURRENT_TEST). Those of a test must be gone when its module ends; those of a fixture, which may be of the
whole session, when the session ends. What is meant to end by itself soon after is waited for.

Workers of loaders, which are forks of this process, end with their loaders' iterators, at a collection of garbage at
the latest. Until then they hold files that were open when they were forked.

Programs that the fork server of this process forked off have its environment: that none of them runs is asked of it.

What tests of a dev cluster start (daemons, hosts) belongs to the cluster, which takes them down as a whole.
"""

import gc
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from graphmill.runtime import fork_server

MARK = "GRAPHMILL_TEST_SESSION"
OF_A_CLUSTER = ("tests/cluster/jobs/", "tests/tools/devcluster/")  # their hosts and daemons end with their cluster
SESSION = uuid.uuid4().hex
ENDS_SOON_S = 30.0


def pytest_configure() -> None:
    os.environ[MARK] = SESSION  # each xdist worker is a session of its own
    # Read by nothing that ranks import: else each test that sets one to a value of its own would have a fork server.
    fork_server.OF_EACH_START.update(("PYTEST_CURRENT_TEST", "GRAPHMILL_DATA_ROOT", "GRAPHMILL_STAGED_ROOT", "COLUMNS"))


def left_behind(*, of_tests: bool) -> dict[int, str]:
    """What still lives of this session's processes; with `of_tests` only what a test itself started, not a fixture."""
    found = {}
    mark = f"{MARK}={SESSION}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or it is another user's
            entries = (folder / "environ").read_bytes().split(b"\0")
            if mark not in entries or int(folder.name) == os.getpid():
                continue
            test = next((e.partition(b"=")[2].decode() for e in entries if e.startswith(b"PYTEST_CURRENT_TEST=")), "")
            if test.startswith(OF_A_CLUSTER):
                continue
            if test.endswith("(call)") or not of_tests:
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = f"{test or 'no test'}: {words[:300]}"
    return found


def see_that_they_end(*, of_tests: bool) -> None:
    give_up = time.monotonic() + ENDS_SOON_S
    if multiprocessing.active_children():
        gc.collect()
    while (workers := multiprocessing.active_children()) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not workers, f"left behind: {workers}"
    while (found := left_behind(of_tests=of_tests)) and time.monotonic() < give_up:
        time.sleep(0.05)
    while (forked := fork_server.running()) and time.monotonic() < give_up:
        time.sleep(0.05)
    if forked:
        fork_server.close_fork_servers()
    assert not forked, f"left behind: {forked}"
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not found, "processes left behind:\n" + "\n".join(f"{pid}  {what}" for pid, what in found.items())


@pytest.fixture(autouse=True, scope="session")
def _no_process_of_this_session_is_left() -> Iterator[None]:
    yield
    fork_server.close_fork_servers()
    see_that_they_end(of_tests=False)


@pytest.fixture(autouse=True, scope="module")
def _no_process_of_a_test_is_left() -> Iterator[None]:
    yield
    see_that_they_end(of_tests=True)
