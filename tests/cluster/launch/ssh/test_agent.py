"""The agent alone, over plain pipes: its ranks live no longer than what it hears."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S, is_alive

from graphmill.cluster.launch.ssh.wire import (
    Beat,
    DescribeRequest,
    Ended,
    HostInfo,
    Kill,
    Line,
    Signal,
    Started,
    StartRequest,
    decode_message,
    encode,
)

PROGRAM = Path(__file__).parents[2] / "programs" / "rank.py"


IMPATIENT = """
import sys
from graphmill.cluster.launch.ssh import remote
remote.SILENCE_S = 4.0
sys.exit(remote.main([remote._READY]))
"""


class Agent:
    def __init__(self, environ: dict[str, str], *program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, start_new_session=True,
        )  # fmt: skip
        self.lines: list[Line] = []

    def write(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def hear(self, kind):
        while raw := self.process.stdout.readline():
            message = decode_message(raw)
            if isinstance(message, Line):
                self.lines.append(message)
            if isinstance(message, kind):
                return message
        raise AssertionError(f"the agent ended before it said {kind.__name__}")


@pytest.fixture
def patience() -> str:
    """How long it waits for a word: as long as ever, or "short"."""
    return ""


@pytest.fixture
def agent(source_environ, patience):
    if patience:
        started = Agent(source_environ, "-c", IMPATIENT)
    else:
        started = Agent(source_environ, "-m", "graphmill.cluster.launch.ssh.remote")
        started.write(b'{"GIVEN": "x y"}\n')
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture
def start(agent, new_run):
    folder, plan = new_run(2)

    def begin(*behaviour: str) -> None:
        agent.write(
            encode(
                StartRequest(
                    run=str(folder.path), processes=(0, 1), stems=("rank_0", "rank_1"), num_processes=2,
                    threads=plan.threads, resume=False,
                    master="127.0.0.1", port=1,
                    interface="lo", token="0" * 32, program=(str(PROGRAM), *behaviour, "--"),
                )
            )
        )  # fmt: skip
        agent.hear(Started)

    begin.folder = folder
    return begin


def until_dead(pids: tuple[int, ...], timeout_s: float = HANG_S) -> None:
    end = time.monotonic() + timeout_s
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end, "ranks outlive the agent"
        time.sleep(0.05)


def until_started(folder, ranks: int = 2, timeout_s: float = HANG_S, meanwhile=lambda: None) -> tuple[int, ...]:
    """Returns the ranks' process ids."""
    end = time.monotonic() + timeout_s
    files = [folder.path / f"started_{rank}" for rank in range(ranks)]
    while not all(file.exists() and file.read_text().split() for file in files):  # it is there before its text is
        assert time.monotonic() < end
        meanwhile()
        time.sleep(0.02)
    return tuple(int(file.read_text().split()[0]) for file in files)


def test_it_says_what_the_host_is_and_has_the_environment(agent):
    agent.write(encode(DescribeRequest(resolve="127.0.0.1")))
    facts = agent.hear(HostInfo)
    assert facts.resolved == "127.0.0.1"
    assert facts.num_cores > 0
    assert b"GIVEN=x y" in Path(f"/proc/{agent.process.pid}/environ").read_bytes().split(b"\0")


def test_lines_come_before_the_end_of_their_rank(agent, start):
    start("0:talk", "1:talk")
    ends = {agent.hear(Ended).rank for _ in range(2)}
    assert ends == {0, 1}
    assert {(line.rank, line.text) for line in agent.lines} == {
        (rank, text) for rank in (0, 1) for text in ("a line for the terminal", "a warning")
    }
    assert start.folder.log_path(0).read_text().splitlines() == ["a line for the terminal", "a warning"]
    agent.process.stdin.close()
    assert agent.process.wait(HANG_S) == 0


def test_a_signal_reaches_every_rank(agent, start):
    start("0:sleep", "1:sleep")
    until_started(start.folder)
    agent.write(encode(Signal(number=signal.SIGINT)))
    assert [agent.hear(Ended).code for _ in range(2)] == [75, 75]


def test_kill_ends_them_at_once(agent, start):
    start("0:hang", "1:hang")
    agent.write(encode(Kill()))
    assert [agent.hear(Ended).code for _ in range(2)] == [-9, -9]


def test_the_end_of_standard_input_kills_the_ranks(agent, start):
    start("0:hang", "1:hang")
    pids = until_started(start.folder)
    agent.process.stdin.close()
    assert agent.process.wait(HANG_S) == 1
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGHUP))],
)
def test_the_end_of_the_agent_kills_the_ranks(agent, start, number):
    start("0:hang", "1:hang")
    pids = until_started(start.folder)
    agent.process.send_signal(number)
    agent.process.wait(HANG_S)
    until_dead(pids)


@pytest.mark.parametrize("patience", ["short", pytest.param("", marks=pytest.mark.slow)])
def test_silence_kills_the_ranks_and_beats_keep_them(agent, start):
    start("0:hang", "1:hang")
    pids = until_started(start.folder, meanwhile=lambda: agent.write(encode(Beat())))
    assert agent.process.poll() is None
    assert agent.process.wait(HANG_S) == 1  # nothing was said for SILENCE_S
    until_dead(pids)


def test_a_launcher_that_reads_nothing_does_not_stop_the_ranks(agent, start):
    """The agent's own pipe is full long before the ranks have said everything; they write to their logs."""
    start("0:hang", "1:hang")
    pids = until_started(start.folder)
    log = start.folder.log_path(1)
    with log.open("ab") as file:
        file.write(b"x" * 79 + b"\n")
        for _ in range(100):
            file.write((b"y" * 79 + b"\n") * 1000)
    os.kill(pids[0], signal.SIGKILL)
    assert agent.hear(Ended).rank == 0
