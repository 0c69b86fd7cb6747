"""A rank that falls silent is missed by every other rank, by its name, and soon. Real processes, a real store."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import HANG_S, wait_until

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

def be(rank, port, tell_port):
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{rank}.{name}", os.O_WRONLY), number)
    store = TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    tell_port(store.port)
    store.set(f"{rank} is here", "")
    store.wait([f"{number} is here" for number in range(3)])
    print("all are here", flush=True)
    words = Words(store, Secret(b"of this run"), "all")
    with Watchdog(words, rank, ["rank 0 on a", "rank 1 on b", "rank 2 on c"], 5.0, lambda why: print(why, flush=True)):
        time.sleep(600)  # as in a collective that never returns

hear, say = os.pipe()
numbers, port = {}, 0
for rank in range(3):  # torch is imported once, and each rank is a fork
    pid = os.fork()
    if pid == 0:
        be(rank, port, lambda port: rank or os.write(say, str(port).encode()))
    numbers[pid] = rank
    port = port or int(os.read(hear, 8))
print(*numbers, flush=True)
while numbers:
    pid, status = os.wait()
    with open("ends", "a") as ends:
        ends.write(f"{numbers.pop(pid)} {os.waitstatus_to_exitcode(status)}\\n")
"""


class Ranks:
    """Three processes, and what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ends", *(f"{rank}.{stream}" for rank in range(3) for stream in ("out", "err"))):
            (folder / name).touch()
        command = [sys.executable, "-c", PROGRAM]
        self.parent = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, text=True)
        self.pids = [int(word) for word in self.parent.stdout.readline().split()]

    def said(self, rank: int, stream: str = "out") -> str:
        return (self.folder / f"{rank}.{stream}").read_text()

    def send_signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pids[rank], number)

    def wait(self, rank: int) -> int:
        """Its exit status."""
        wait_until(lambda: str(rank) in self.ends(), f"the end of rank {rank}")
        return int(self.ends()[str(rank)])

    def ends(self) -> dict[str, str]:
        """Exit statuses of those that have ended."""
        return dict(line.split() for line in (self.folder / "ends").read_text().splitlines())

    def close(self) -> None:
        """End those that are left."""
        for rank in {"0", "1", "2"} - self.ends().keys():
            self.send_signal(int(rank), signal.SIGKILL)
        self.parent.communicate(timeout=HANG_S)


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Three ranks that wait for each other."""
    started = Ranks(tmp_path)
    wait_until(lambda: all("all are here" in started.said(rank) for rank in range(3)), "all ranks")
    time.sleep(2)  # until each was heard: they beat every 0.5 s
    yield started
    started.close()


@pytest.mark.distributed
@pytest.mark.parametrize("victim", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_every_rank_names_the_one_that_is_frozen(ranks, victim):
    ranks.send_signal(victim, signal.SIGSTOP)
    for number in {0, 1, 2} - {victim}:
        assert ranks.wait(number) == exits.LOST_A_RANK
        assert f"rank {victim} on {'abc'[victim]} sent no heartbeat" in ranks.said(number), f"rank {number}"


@pytest.mark.distributed
def test_ranks_do_not_outlive_the_store_and_say_no_frames_of_torch(ranks):
    """Rank 0 is killed, and no collective breaks: the others wait for ranks that are there, and write to the store."""
    ranks.send_signal(0, signal.SIGKILL)
    for rank in (1, 2):
        assert ranks.wait(rank) == exits.LOST_A_RANK
        assert "rank 0 on a ended" in ranks.said(rank)
        assert ranks.said(rank, "err") == ""
