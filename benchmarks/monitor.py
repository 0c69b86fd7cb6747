"""What the monitor costs beside the ranks it watches: share of a core at 1 Hz, its start, its memory.

python benchmarks/monitor.py [--seconds 60]

The ranks are processes that hold memory and are found as ranks are; most of them sleep, to leave the cores alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from graphmill.monitor.sampler import start_monitor
from graphmill.monitor.summary import read_monitors, summarise
from harness import ForeignLoad, print_table, write_result
from origin import Origin

RANK = (
    "import sys, time; held = bytearray(int(sys.argv[2]) << 20); held[::4096] = b'1' * len(held[::4096])\n"
    "print('up', flush=True); time.sleep(3600)"
)
CASES = {"no rank": (0, 0), "2 ranks": (2, 100), "8 ranks": (8, 100), "2 ranks of 2 GiB": (2, 2048)}


def measure(num_ranks: int, mib: int, seconds: float) -> dict[str, float]:
    """The monitor's own CPU time over `seconds`, its start (interpreter, imports, first search) apart."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        program = run / "rank.py"
        program.write_text(RANK)
        ranks = [_start_rank(program, run, rank, mib) for rank in range(num_ranks)]
        monitor = start_monitor(run)
        try:
            process = psutil.Process(monitor.pid)
            while not list(run.glob("monitor/*.csv")):
                time.sleep(0.05)
            start_s = _cpu_s(process)
            began, before = time.perf_counter(), start_s
            time.sleep(seconds)
            used, passed = _cpu_s(process) - before, time.perf_counter() - began
            rss = process.memory_info().rss
        finally:
            monitor.terminate()
            monitor.wait()
            for rank in ranks:
                rank.kill()
                rank.wait()
        (host,) = summarise(read_monitors(run / "monitor")).hosts
        assert len(host.ranks) == num_ranks
        size = sum(path.stat().st_size for path in run.glob("monitor/*.csv"))
        return {
            "core_share": used / passed,
            "start_cpu_s": start_s,
            "rss_mib": rss / 2**20,
            "bytes_per_s": size / passed,
        }


def _start_rank(program: Path, run: Path, rank: int, mib: int) -> "subprocess.Popen[str]":
    command = [sys.executable, str(program), str(run), str(mib)]
    process = subprocess.Popen(command, env={**os.environ, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _cpu_s(process: psutil.Process) -> float:
    times = Path(f"/proc/{process.pid}/schedstat").read_text().split()  # finer than clock ticks of 10 ms
    return int(times[0]) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options = parser.parse_args()
    origin, watch = Origin.now(), ForeignLoad()
    cases = {name: measure(*case, options.seconds) for name, case in CASES.items() if name in options.cases}
    cores = watch.cores()
    print_table(
        f"the monitor at 1 Hz ({options.seconds:.0f} s each); others used {cores:.2f} cores; the bar is 1 % of a core",
        ["beside", "% of a core", "CPU s to start", "RSS MiB", "B/s written"],
        [
            [name, *(f"{value:.3g}" for value in (100 * case["core_share"], *list(case.values())[1:]))]
            for name, case in cases.items()
        ],
    )
    write_result("monitor", {"seconds": options.seconds, "foreign_cores": cores, "cases": cases}, origin)


if __name__ == "__main__":
    main()
