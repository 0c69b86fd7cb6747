"""Readings of /proc against what psutil says; control groups from files such as the kernel has for Slurm."""

import os
import time
from pathlib import Path

import psutil
import pytest

from graphmill.monitor.usage import GroupUsage, HostUsage, ProcessUsage, groups_of


def test_the_hosts_counters_are_those_psutil_reads():
    reading = HostUsage(["lo"]).read()
    loop = psutil.net_io_counters(pernic=True)["lo"]
    assert reading.memory_total_bytes == psutil.virtual_memory().total
    assert reading.memory_used_bytes == pytest.approx(
        psutil.virtual_memory().total - psutil.virtual_memory().available, rel=0.3
    )
    assert 0 < reading.busy_s < reading.total_s
    assert 0 <= reading.received_bytes <= loop.bytes_recv
    assert 0 <= reading.sent_bytes <= loop.bytes_sent


def test_counters_only_grow():
    usage = HostUsage()
    first = usage.read()
    sum(range(10**6))
    second = usage.read()
    for name in ("busy_s", "total_s", "received_bytes", "sent_bytes", "read_bytes", "written_bytes"):
        assert getattr(first, name) <= getattr(second, name)


def test_a_process_is_read_as_it_is():
    usage = ProcessUsage(os.getpid())
    held = bytearray(64 << 20)
    held[::4096] = b"1" * len(held[::4096])
    before = usage.read()
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        sum(range(1000))
    after = usage.read()
    assert before is not None
    assert after is not None
    assert 64 << 20 <= after.private_bytes <= after.resident_bytes <= after.peak_bytes
    assert after.cpu_s - before.cpu_s >= 0.15
    assert 0 < (usage.proportional_bytes() or 0) <= after.resident_bytes * 1.1
    usage.close()


def test_an_ended_process_has_no_reading():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    usage = ProcessUsage(pid)
    assert usage.read() is not None
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert usage.read() is None  # a zombie
    os.waitpid(pid, 0)
    assert usage.read() is None
    assert usage.proportional_bytes() is None
    assert ProcessUsage(pid).read() is None


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_the_group_of_a_job_in_version_2(tmp_path: Path):
    path = "/system.slice/slurmstepd.scope/job_17"
    write(
        tmp_path / path[1:], memory__current="5000", memory__peak="7000", memory__max="max",
        memory__stat="file 10\nanon 4000", cpu__stat="usage_usec 1500000\nuser_usec 1",
    )  # fmt: skip
    group = GroupUsage.of({"": f"{path}/step_0/user/task_0"}, tmp_path)
    assert group is not None
    reading = group.read()
    assert reading is not None
    assert (reading.cpu_s, reading.memory_bytes, reading.private_bytes) == (1.5, 5000, 4000)
    assert (reading.peak_bytes, reading.limit_bytes) == (7000, None)


def test_the_group_of_a_job_in_version_1(tmp_path: Path):
    path = "/slurm_host1/uid_0/job_17"
    write(
        tmp_path / "memory" / path[1:], memory__usage_in_bytes="5000", memory__max_usage_in_bytes="7000",
        memory__limit_in_bytes="9000", memory__stat="total_cache 1\ntotal_rss 4000",
    )  # fmt: skip
    write(tmp_path / "cpuacct" / path[1:], cpuacct__usage="1500000000")
    group = GroupUsage.of({"memory": f"{path}/step_0", "cpuacct": f"{path}/step_0", "": "/"}, tmp_path)
    assert group is not None
    reading = group.read()
    assert reading is not None
    assert (reading.cpu_s, reading.memory_bytes, reading.private_bytes) == (1.5, 5000, 4000)
    assert (reading.peak_bytes, reading.limit_bytes) == (7000, 9000)


def test_without_slurm_there_is_no_group(tmp_path: Path):
    assert GroupUsage.of({"memory": "/user.slice", "": "/"}, tmp_path) is None
    assert groups_of(os.getpid())
