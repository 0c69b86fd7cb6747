"""A rank that uses what it is told to: `use.py RUN_FOLDER --mib M --cores N --seconds S`. Its host is monitored."""

import argparse
import multiprocessing
import time
from pathlib import Path

from graphmill.monitor.sampler import start_monitor
from graphmill.record.documents import Outcome
from graphmill.record.run_folder import RunFolder


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10_000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--mib", type=int, default=0)
    parser.add_argument("--cores", type=int, default=0)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    folder = RunFolder(options.run)
    folder.events_dir.mkdir(exist_ok=True)
    events = folder.events_path(0).open("w")  # by which a rank is known
    start_monitor(options.run)
    held = bytearray(options.mib << 20)
    held[::4096] = b"\1" * len(held[::4096])  # touch every page
    busy = [multiprocessing.Process(target=burn, args=(options.seconds,)) for _ in range(options.cores)]
    for process in busy:
        process.start()
    if not busy:
        time.sleep(options.seconds)
    for process in busy:
        process.join()
    done = Outcome(status="done", exit_code=0, epochs=1, steps_per_rank=1, wall_s=options.seconds)
    folder.write_outcome(done)
    events.close()


if __name__ == "__main__":
    main()
