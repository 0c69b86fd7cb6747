import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.runtime import machine
from graphmill.runtime.machine import free_disk_bytes, machine_info, num_cores
from graphmill.runtime.nvml import Gpu, select_visible, visible_gpus

GPUS = tuple(Gpu("H100", f"GPU-{letter * 4}", 81559, "570.1") for letter in "abc")


def test_facts_of_this_machine():
    facts = machine_info()
    assert 1 <= facts.num_cores <= facts.num_machine_cores
    assert 0 < facts.available_bytes <= facts.memory_bytes
    assert facts.cpu_model
    assert facts.num_gpus == len(facts.gpus)


def test_no_gpu_is_seen_where_none_is_allowed():
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_affinity_limits_the_cores():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert num_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, "abc"),
        ("", ""),
        ("2,0", "ca"),
        (" 1 ", "b"),
        ("0,9,1", "a"),
        ("-1", ""),
        ("GPU-bb", "b"),
        ("GPU-", ""),
        ("0,GPU-cccc", "ac"),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(visible, names):
    assert [gpu.uuid[4] for gpu in select_visible(GPUS, visible)] == list(names)


def test_slices_count_one_each():
    assert len(select_visible(GPUS, "MIG-1234,MIG-5678")) == 2
    assert select_visible((), "MIG-1234") == ()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_quota_of_version_2_is_the_tightest_of_all_groups_above(tmp_path):
    write(tmp_path / "cpu.max", "max 100000\n")
    write(tmp_path / "job" / "cpu.max", "250000 100000\n")
    write(tmp_path / "job" / "step" / "cpu.max", "max 100000\n")
    assert machine._cpu_quota({"": "/job/step"}, tmp_path) == 2.5


def test_quota_of_version_1(tmp_path):
    write(tmp_path / "cpu" / "job" / "cpu.cfs_quota_us", "50000\n")
    write(tmp_path / "cpu" / "job" / "cpu.cfs_period_us", "100000\n")
    assert machine._cpu_quota({"cpu": "/job"}, tmp_path) == 0.5
    write(tmp_path / "cpu" / "job" / "cpu.cfs_quota_us", "-1\n")
    assert machine._cpu_quota({"cpu": "/job"}, tmp_path) is None


def test_less_than_a_core_is_a_core(monkeypatch):
    monkeypatch.setattr(machine, "_cpu_quota", lambda *_: 0.5)
    assert num_cores() == 1


def test_free_disk_of_a_folder_that_is_not_there_yet(tmp_path):
    assert free_disk_bytes(tmp_path / "a" / "b") > 0
    assert free_disk_bytes(Path("relative/and/new")) > 0


def test_memory_that_was_freed_goes_back_to_the_kernel():
    """Also where the last of what was allocated is still used, which keeps the end of the heap where it is."""
    program = """
import ctypes
from graphmill.runtime.machine import return_free_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
blocks = [libc.malloc(1 << 16) for _ in range(800)]
for block in blocks:
    ctypes.memset(block, 1, 1 << 16)
for block in blocks[:-1]:
    libc.free(ctypes.c_void_p(block))

def resident():
    return int(open("/proc/self/statm").read().split()[1])

before = resident()
return_free_memory()
assert (before - resident()) * 4096 > 40 << 20, (before, resident())
"""
    subprocess.run([sys.executable, "-c", program], check=True)
