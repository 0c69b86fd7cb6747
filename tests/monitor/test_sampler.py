"""The monitor beside real processes: what it writes, what it heeds, when it ends."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import HANG_S, wait_until

from graphmill.monitor.columns import COLUMNS
from graphmill.monitor.sampler import CsvLines, Sampler, line, start_monitor
from graphmill.monitor.summary import parse_rows, read_monitor
from graphmill.runtime.machine import host_name

RANK = """
import subprocess, sys, time
from pathlib import Path
from graphmill.record.events import EventWriter
events = EventWriter(Path(sys.argv[1]), rank=0)
held = bytearray(int(sys.argv[2]) << 20)
held[::4096] = b"1" * len(held[::4096])
child = subprocess.Popen([sys.executable, "-c", "import time\\nwhile True: time.sleep(0.001)"])
print("up", flush=True)
while True: sum(range(100000))
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def start_rank(run: Path, processes, source_environ, tmp_path: Path):
    """A process that is a rank of the run by what /proc says of it: it burns a core, holds memory, has a child."""
    program = tmp_path / "rank.py"
    program.write_text(RANK)

    ranks = []

    def start(subject: str, mib: int = 50) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(program), str(run / "events" / f"{subject}.jsonl"), str(mib)],
            env=source_environ, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        processes.append(process)
        ranks.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield start
    for process in ranks:
        with suppress(ProcessLookupError):  # its child may live though the rank itself was killed
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def start_monitoring(run: Path, processes, source_environ):
    def start(parent: int) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "graphmill.monitor.sampler", str(run), "--parent", str(parent)]
        process = subprocess.Popen([*command, "--interval", "0.05"], env=source_environ, text=True)
        processes.append(process)
        return process

    return start


def csv_of(run: Path) -> Path:
    return run / "monitor" / f"{host_name(os.environ)}.csv"


def num_rows(run: Path, subject: str) -> int:
    return sum(row.subject == subject for row in read_monitor(csv_of(run))) if csv_of(run).exists() else 0


def test_ranks_are_found_with_their_children_and_measured(run: Path, start_rank):
    start_rank("rank_3", mib=64), start_rank("rank_5", mib=128)
    sampler = Sampler(run)
    rows: dict = {}

    def both_have_worked() -> bool:
        for row in parse_rows(sampler.sample()):  # what is dear to measure stands in some samples only
            rows.setdefault(row.subject, {}).update(row.cells)
        return all(rows[rank]["cores"] > 0 and rows[rank]["cpu_s"] > 0 for rank in ("rank_3", "rank_5"))

    wait_until(both_have_worked, "both ranks to use a processor", look_every_s=0.1)
    assert set(rows) - {"job"} == {"host", "rank_3", "rank_5"}
    assert 64 < rows["rank_3"]["private_mib"] < rows["rank_3"]["memory_mib"] < 120
    assert 128 < rows["rank_5"]["private_mib"] <= rows["rank_5"]["peak_mib"]
    assert 0 < rows["rank_3"]["proportional_mib"] <= rows["rank_3"]["memory_mib"]
    assert 0 <= rows["host"]["busy_percent"] <= 100
    assert 0 < rows["host"]["memory_mib"] < rows["host"]["memory_total_mib"]


def test_a_rank_that_ends_is_gone_and_others_stay(run: Path, start_rank):
    first, _ = start_rank("rank_0"), start_rank("rank_1")
    sampler = Sampler(run)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert {row.subject for row in parse_rows(sampler.sample())} - {"job"} == {"host", "rank_1"}


@pytest.mark.parametrize(
    ("file", "mode"), [("run/events/rank_0.jsonl", "r"), ("run/metrics.csv", "a"), ("run-2/events/rank_0.jsonl", "a")]
)
def test_processes_that_do_not_write_events_of_the_run_are_no_ranks(run: Path, processes, file: str, mode: str):
    opened = run.parent / file
    opened.parent.mkdir(parents=True, exist_ok=True)
    opened.touch()
    code = "import sys\nheld = open(sys.argv[1], sys.argv[2])\nprint('up', flush=True)\nwhile True: pass"
    program = [sys.executable, "-c", code, str(opened), mode]
    processes.append(subprocess.Popen(program, stdout=subprocess.PIPE, text=True))
    processes[0].stdout.readline()
    assert {row.subject for row in parse_rows(Sampler(run).sample())} - {"job"} == {"host"}


def test_it_heeds_no_signal_of_the_ranks_and_ends_with_its_parent(run: Path, start_rank, start_monitoring):
    rank = start_rank("rank_0")
    monitor = start_monitoring(rank.pid)
    wait_until(lambda: num_rows(run, "rank_0"), "rows of the monitor")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP):
        monitor.send_signal(number)
    seen = num_rows(run, "rank_0")
    wait_until(lambda: num_rows(run, "rank_0") > seen + 2, "rows of the monitor")
    assert monitor.poll() is None
    rank.kill()  # not waited for: a zombie has ended, too
    assert monitor.wait(timeout=HANG_S) == 0


def test_it_ends_when_asked_to_and_when_its_parent_never_was(run: Path, start_monitoring):
    asked = start_monitoring(os.getpid())
    wait_until(lambda: num_rows(run, "host"), "rows of the monitor")
    asked.terminate()
    assert asked.wait(timeout=HANG_S) == 0
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert start_monitoring(gone.pid).wait(timeout=HANG_S) == 0


def test_signals_that_come_while_it_starts_do_not_kill_it(run: Path):
    monitor = start_monitor(run)
    try:
        for _ in range(50):
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
                monitor.send_signal(number)
            time.sleep(0.005)
        wait_until(lambda: num_rows(run, "host"), "rows of the monitor")
        assert monitor.poll() is None
    finally:
        monitor.terminate()
    assert monitor.wait(timeout=HANG_S) == 0


def test_a_later_attempt_appends_after_whole_lines_with_one_header(run: Path, start_monitoring):
    csv_of(run).parent.mkdir()
    csv_of(run).write_text(f"{','.join(COLUMNS)}\n{line('1.000', 'host', {'cores': 1})}\n2.000,ho")
    monitor = start_monitoring(os.getpid())
    wait_until(lambda: num_rows(run, "host") > 3, "rows of the monitor")
    monitor.terminate()
    monitor.wait(timeout=HANG_S)
    table = list(csv.reader(csv_of(run).open()))
    assert table.count(list(COLUMNS)) == 1
    assert [len(row) for row in table if row[1:2] != ["ho"]] == [len(COLUMNS)] * (len(table) - 1)
    assert read_monitor(csv_of(run))[0].time == 1.0


def test_a_second_monitor_of_a_host_waits_for_the_first_one_to_end(run: Path, start_monitoring):
    first = start_monitoring(os.getpid())
    wait_until(lambda: num_rows(run, "host"), "rows of the monitor")
    second = start_monitoring(os.getpid())
    first_until = num_rows(run, "host")
    wait_until(lambda: num_rows(run, "host") > first_until + 3, "rows of the monitor")
    assert second.poll() is None
    first.terminate()
    first.wait(timeout=HANG_S)
    seen = num_rows(run, "host")
    wait_until(lambda: num_rows(run, "host") > seen + 3, "rows of the monitor")
    times = [row.time for row in read_monitor(csv_of(run)) if row.subject == "host"]
    assert times == sorted(set(times))


def test_what_cannot_be_written_now_is_written_later(tmp_path: Path):
    in_the_way = tmp_path / "monitor"
    in_the_way.write_text("a file where the folder should be")
    lines = CsvLines(in_the_way / "host.csv")
    lines.append(["1,host" + "," * (len(COLUMNS) - 2)])
    for number in range(400):  # some MiB: old rows are given up, new ones kept
        lines.append([f"{number + 2},host" + "," * (len(COLUMNS) - 2)] * 100)
    in_the_way.unlink()
    lines.append(["50000,host" + "," * (len(COLUMNS) - 2)])
    lines.close()
    text = (in_the_way / "host.csv").read_text()
    rows = read_monitor(in_the_way / "host.csv")
    assert rows[-1].time == 50000
    assert len(text) < 2 << 20
    assert text.startswith("time,subject")


def test_samplers_are_measured_under_their_names(run: Path, start_rank):
    start_rank("rank_0"), start_rank("sampler_0")
    sampler = Sampler(run)

    def are_seen() -> bool:
        return {row.subject for row in parse_rows(sampler.sample())} - {"job", "host"} == {"rank_0", "sampler_0"}

    wait_until(are_seen, "both processes to be found", look_every_s=0.1)
