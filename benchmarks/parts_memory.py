"""What a rank of a graph in parts takes of memory: no more than its part, its cache and what an interpreter takes.

    python benchmarks/parts_memory.py --dataset NAME --parts parts/NAME/4-kaminpar --dataset-root FOLDER [--rounds 3]

Prepare a graph whose parts outweigh a batch, and partition it with the fan-outs below:

    graphmill prepare synthetic/rmat --as NAME -o num_nodes=1000000 -o num_edges=5000000 -o features=256
    graphmill partition NAME --num-parts 4 --fanouts 10 --fanouts 5

The topology is in parts, too. Every file of a rank's part counts as the part, mapped or read, and what it holds of
other parts as the cache. The interpreter: ranks that train the same model on 100 nodes. Of the largest rank, evaluation
at the end included: the peak of what is its own (anonymous and shared pages), and of all that is mapped (`ru_maxrss`),
where pages of files count which the kernel may drop: those of libraries, of the part, of hidden rows during evaluation.
`training`: the same of rank 0 before the evaluation.

With control groups (version 1) the ranks run once more under a limit, each in a group of its own, without swap: what
the interpreter's groups were charged at their peaks, the least of them, and 1.15 times part and cache. Pages of the
part are dropped from the page cache before, so that they are charged to who reads them. They must finish. Medians over
rounds. Needs root.
"""

import argparse
import csv
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entries import write_entries
from graphmill.partition.metadata import part_folder, read_parts_metadata
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.data.prepare import prepare
from harness import console, print_table
from memory_groups import MemoryGroup, groups, supported
from origin import Origin
from parts_training import RANKS, namespaces, started_ranks

WAY, RATIO, BAR = "partitioned, owner, vip", 0.1, 1.15
SETTINGS = ["train.batch_size=256", "train.num_neighbors=[10, 5]", "train.prefetch=1", f"partition.cache.ratio={RATIO}"]


@dataclass(frozen=True, slots=True)
class Peaks:
    """MiB of the largest rank; `training_mib`: of rank 0 before the evaluation at the end."""

    mapped_mib: float
    own_mib: float
    training_mib: float
    wall_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--parts", required=True)
    parser.add_argument("--dataset-root", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.epochs, options.train_limit = 3, 65_536
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    origin = Origin.now()
    with namespaces() as names, tempfile.TemporaryDirectory(prefix="graphmill-memory-") as folder:
        prepare(
            "synthetic/sbm", root=Path(folder) / "data", options={"num_nodes": 100, "num_edges": 400, "features": 4}
        )
        rounds = []
        for number in range(options.rounds):
            rounds.append(measured(options, names, Path(folder) / str(number)))
            console.print(f"[dim]round {number + 1}: {rounds[-1]}[/dim]")
    found = {key: statistics.median(of[key] for of in rounds) for key in rounds[0]} | {"rounds": len(rounds)}
    print_table("memory of a rank, MiB", list(found), [[f"{value:,.2f}" for value in found.values()]])
    entry = f"{options.dataset}, {options.parts.rsplit('/', 1)[-1]}"
    console.print(f"[dim]{write_entries('parts_memory', {entry: (origin, found)})}[/dim]")


def measured(options: argparse.Namespace, names: list[str], folder: Path) -> dict[str, Any]:
    folder.mkdir()
    path = options.dataset_root / options.parts
    metadata = read_parts_metadata(path)
    files = [list((path / part_folder(number)).rglob("*.npy")) for number in range(metadata.num_parts)]
    part_mib = max(sum(file.stat().st_size for file in of) / 2**20 for of in files)
    cache_mib = RATIO * metadata.num_nodes * metadata.num_features * 4 / 2**20
    small = argparse.Namespace(**vars(options))
    small.dataset, small.dataset_root, small.train_limit = "synthetic/sbm", folder.parent / "data", "null"
    interpreter, charged_mib = grouped(small, names, folder / "interpreter", "whole", SETTINGS[:-1])
    peaks = peaks_of(options, names, folder / "run", WAY, SETTINGS)
    held_mib = part_mib + cache_mib
    found = {
        "part_mib": part_mib,
        "cache_mib": cache_mib,
        "interpreter_mib": interpreter.mapped_mib,
        "interpreter_own_mib": interpreter.own_mib,
        "peak_mib": peaks.mapped_mib,
        "peak_own_mib": peaks.own_mib,
        "training_mib": peaks.training_mib,
        "ratio": (peaks.training_mib - interpreter.mapped_mib) / held_mib,
        "ratio_with_evaluation": (peaks.mapped_mib - interpreter.mapped_mib) / held_mib,
        "own_over_cache_mib": peaks.own_mib - interpreter.own_mib - cache_mib,
    }
    if charged_mib is None:
        return found
    for file in (file for of in files for file in of):
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    limit_mib = charged_mib + BAR * held_mib
    limited, most_mib = grouped(options, names, folder / "limited", WAY, SETTINGS, limit_mib)
    return found | {
        "interpreter_charged_mib": charged_mib,
        "limit_mib": limit_mib,
        "limited_peak_mib": most_mib,
        "limited_over_free_s": limited.wall_s / peaks.wall_s,
    }


def grouped(
    options: argparse.Namespace,
    names: list[str],
    folder: Path,
    way: str,
    settings: list[str],
    limit_mib: float | None = None,
) -> tuple[Peaks, float | None]:
    """The same, each rank in a group of its own, and the least that one was charged; None: no groups here.

    The least: who is first to read a library is charged for it, and the others are not.
    """
    if not supported():
        return peaks_of(options, names, folder, way, settings), None
    with groups([f"graphmill-{name}" for name in names], limit_mib) as made:
        peaks = peaks_of(options, names, folder, way, settings, made)
        return peaks, min(group.peak_mib for group in made)


def peaks_of(
    options: argparse.Namespace,
    names: list[str],
    folder: Path,
    way: str,
    settings: list[str],
    made: Sequence[MemoryGroup] = (),
) -> Peaks:
    begin, mapped, own, ended = time.monotonic(), [], [0.0] * RANKS, threading.Event()
    with ExitStack() as stack:
        enter = [group.enter for group in made]
        ranks = stack.enter_context(started_ranks(options, names, folder, way, settings, enter))
        watcher = threading.Thread(target=watch, args=([rank.pid for rank in ranks], own, ended))
        watcher.start()
        stack.callback(watcher.join)
        stack.callback(ended.set)
        for rank in ranks:
            _, status, usage = os.wait4(rank.pid, 0)
            rank.returncode = os.waitstatus_to_exitcode(status)
            mapped.append(usage.ru_maxrss / 1024)
    if [rank.returncode for rank in ranks] != [0] * RANKS:
        raise SystemExit(f"{way} failed\n{(folder / '0.log').read_text()[-3000:]}")
    wall_s = time.monotonic() - begin
    with RunFolder(folder / "logs" / "run").metrics_path.open() as file:
        return Peaks(max(mapped), max(own), max(float(row["peak_rss_mib"]) for row in csv.DictReader(file)), wall_s)


def watch(pids: Sequence[int], own: list[float], ended: threading.Event) -> None:
    """The most anonymous and shared memory of each process, MiB; looked at 20 times a second."""
    while not ended.wait(0.05):
        for place, pid in enumerate(pids):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue  # it has ended
            fields = dict(line.split(":", 1) for line in status.splitlines())
            if "RssAnon" in fields:
                kib = sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))
                own[place] = max(own[place], kib / 1024)


if __name__ == "__main__":
    main()
