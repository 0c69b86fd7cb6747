"""How soon every rank of a run in parts has ended, if one is frozen or its host cut off; hosts are network namespaces.

    python benchmarks/parts_faults.py --dataset NAME --parts parts/NAME/4-kaminpar --dataset-root FOLDER [--rounds 2]

Four ranks train as in parts_training.py, with the default of train.hang_timeout_s. After some syncs rank 0 or rank 2 is
stopped (SIGSTOP), or the interface of its host is taken down. Seconds count until the last of the other ranks has ended
(cut off, until that rank has ended, too), and what each said is kept. Needs root.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from rich.markup import escape

from entries import write_entries
from graphmill.record.events import Failure, Sync, events_in
from graphmill.record.run_folder import RunFolder
from harness import console, print_table
from origin import Origin
from parts_training import RANKS, namespaces, started_ranks

WAY = "owner, vip"
_GIVE_UP_S = 120.0
_SYNCS_BEFORE = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--parts", required=True)
    parser.add_argument("--dataset-root", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    options.epochs, options.train_limit = 10_000, 65_536
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    origin, found = Origin.now(), dict[str, Any]()
    faults = [(fault, victim) for fault in ("frozen", "cut off") for victim in (0, 2)]
    with namespaces() as names, tempfile.TemporaryDirectory(prefix="graphmill-faults-") as folder:
        for number, (fault, victim) in product(range(options.rounds), faults):
            its = one_fault(options, names, Path(folder) / f"{number}-{fault}-{victim}", fault, victim)
            found.setdefault(f"rank {victim} {fault}", []).append(its)
            console.print(f"rank {victim} {fault}: {its}", markup=False)
    rows = [
        [
            fault,
            *(f"{its['others_s']:.1f}" for its in runs),
            escape("; ".join(sorted({s for its in runs for s in its["said"]}))),
        ]
        for fault, runs in found.items()
    ]
    heading = ["", *(f"s, round {number + 1}" for number in range(options.rounds)), "what the others said"]
    print_table("until every rank has ended", heading, rows)
    console.print(f"[dim]{write_entries('parts_faults', {'four hosts': (origin, found)})}[/dim]")


def one_fault(options: argparse.Namespace, names: list[str], folder: Path, fault: str, victim: int) -> dict[str, Any]:
    """Seconds from the fault until the others have ended, and the rank that was cut off; what they recorded."""
    with started_ranks(options, names, folder, WAY) as ranks:
        run = RunFolder(folder / "logs" / "run")
        wait_for_syncs(run, ranks)
        at = time.monotonic()
        if fault == "frozen":
            ranks[victim].send_signal(signal.SIGSTOP)
        else:
            subprocess.run(["ip", "-n", names[victim], "link", "set", "eth0", "down"], check=True)
        others = [rank for number, rank in enumerate(ranks) if number != victim]
        others_s = max(ended_s(rank, at) for rank in others)
        victim_s = None
        if fault == "cut off":
            victim_s = ended_s(ranks[victim], at)
            subprocess.run(["ip", "-n", names[victim], "link", "set", "eth0", "up"], check=True)
        said = sorted(
            {
                event.message[:90]
                for r in range(RANKS)
                if r != victim
                for event in events_in(run.events_path(r), Failure)
            }
        )
        return {
            "others_s": others_s,
            "victim_s": victim_s,
            "statuses": [rank.poll() for rank in ranks],
            "said": said,
        }


def wait_for_syncs(run: RunFolder, ranks: list[subprocess.Popen[bytes]]) -> None:
    give_up = time.monotonic() + _GIVE_UP_S
    while not run.events_path(0).exists() or len(events_in(run.events_path(0), Sync)) < _SYNCS_BEFORE:
        if time.monotonic() > give_up or any(rank.poll() is not None for rank in ranks):
            raise SystemExit("the run did not begin")
        time.sleep(0.2)


def ended_s(rank: subprocess.Popen[bytes], at: float) -> float:
    rank.wait(timeout=_GIVE_UP_S)
    return time.monotonic() - at


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
