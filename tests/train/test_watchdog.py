"""A rank that falls silent is missed by every other rank, by its name, and soon. Real processes, a real store."""

import signal
import subprocess
import sys
import time

import pytest
from waiting import HANG_S

from graphmill.base import exits

PROGRAM = """
import os, sys, time
from graphmill.base.messages import hush_torch
hush_torch(os.environ)  # as every rank does
from torch.distributed import TCPStore
from graphmill.runtime.secret import Secret
from graphmill.train import watchdog
from graphmill.train.words import Words
from graphmill.train.watchdog import Watchdog
watchdog._ALONE_S = 1.0

rank, port = int(sys.argv[1]), int(sys.argv[2])
store = TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
print(store.port, flush=True)
store.set(f"{rank} is here", "")
store.wait([f"{number} is here" for number in range(3)])
print("all are here", flush=True)
words = Words(store, Secret(b"of this run"), "all")
with Watchdog(words, rank, ["rank 0 on a", "rank 1 on b", "rank 2 on c"], 5.0, lambda why: print(why, flush=True)):
    time.sleep(600)  # as in a collective that never returns
"""


@pytest.fixture
def ranks():
    """Three ranks that wait for each other."""
    started: list[subprocess.Popen[str]] = []

    def start(rank: int, port: str) -> None:
        command = [sys.executable, "-c", PROGRAM, str(rank), port]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    start(0, "0")
    port = started[0].stdout.readline().strip()
    for rank in (1, 2):
        start(rank, port)
        assert started[rank].stdout.readline()
    assert [rank.stdout.readline().strip() for rank in started] == ["all are here"] * 3
    time.sleep(2)  # until each was heard: they beat every 0.5 s
    yield started
    for rank in started:
        rank.kill()
        rank.communicate()


@pytest.mark.distributed
@pytest.mark.parametrize("victim", [0, 2])
def test_every_rank_names_the_one_that_is_frozen(ranks, victim):
    ranks[victim].send_signal(signal.SIGSTOP)
    for number, rank in enumerate(ranks):
        if number != victim:
            said, _ = rank.communicate(timeout=HANG_S)
            assert rank.returncode == exits.LOST_A_RANK
            assert f"rank {victim} on {'abc'[victim]} sent no heartbeat" in said, f"rank {number}"


@pytest.mark.distributed
def test_ranks_do_not_outlive_the_store(ranks):
    """Rank 0 is killed, and no collective breaks: the others wait for ranks that are there."""
    ranks[0].kill()
    for rank in ranks[1:]:
        said, _ = rank.communicate(timeout=HANG_S)
        assert rank.returncode == exits.LOST_A_RANK
        assert "rank 0 on a" in said


@pytest.mark.distributed
def test_what_a_rank_says_last_are_not_frames_of_torch(ranks):
    """The store goes with rank 0, and the others write to it still."""
    ranks[0].send_signal(signal.SIGKILL)
    for rank in ranks[1:]:
        said, errors = rank.communicate(timeout=HANG_S)
        assert "rank 0 on a ended" in said
        assert errors == ""
