"""Training on a graph in parts against the graph stored whole: four ranks on four hosts in network namespaces.

    python benchmarks/parts_training.py --dataset NAME --parts parts/NAME/4-kaminpar --dataset-root FOLDER
        [--ways whole "owner, vip" …] [--rounds 3] [--epochs 8] [--train-limit 65536]

Prepare and partition the graph first (`graphmill partition NAME --num-parts 4 --fanouts 25 --fanouts 10`). The ways
take turns, a run each a round: seconds of an epoch (the first is left out: it warms up), processor seconds of all ranks
(to be compared also where other work shares the cores), the share of the epoch that the step waited for its batch, what
loaders fetched, what the interfaces of all namespaces received beside what the run recorded, and the peak of a rank's
memory.
Where seeds are shared out equally, the weights must be the whole graph's. Needs root.
"""

import argparse
import csv
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from entries import write_entries
from graphmill.record.events import Sync, events_in
from graphmill.record.run_folder import RunFolder
from harness import Spread, console, print_table
from origin import Origin

RANKS, PORT, NETWORK = 4, 29611, "10.213.7"
WAYS: Final[Mapping[str, list[str]]] = {
    "whole": [],
    "equal, none": ["partition.seeds=equal", "partition.cache.policy=none"],
    "equal, lookahead": ["partition.seeds=equal", "partition.cache.policy=lookahead"],
    "owner, none": ["partition.seeds=owner", "partition.cache.policy=none"],
    "owner, vip": ["partition.seeds=owner", "partition.cache.policy=vip"],
    "owner, lookahead": ["partition.seeds=owner", "partition.cache.policy=lookahead"],
    "partitioned, owner, vip": [
        "partition.topology=partitioned",
        "partition.seeds=owner",
        "partition.cache.policy=vip",
    ],
    "partitioned, equal, lookahead": [
        "partition.topology=partitioned",
        "partition.seeds=equal",
        "partition.cache.policy=lookahead",
    ],
}
EXPERIMENT = """
name: parts
model: {kind: graphsage, hidden_channels: 256, num_layers: 2}
train:
  batch_size: 1024
  num_neighbors: [25, 10]
  ranks: 4
  device: cpu
  threads: 1
  evaluate_every_epochs: 0
  prefetch: 3
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--parts", required=True)
    parser.add_argument("--dataset-root", type=Path, required=True)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--train-limit", type=int, default=65_536)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # namespaces and ranks do not stay
    origin = Origin.now()
    with namespaces() as names, tempfile.TemporaryDirectory(prefix="graphmill-parts-") as folder:
        found = measured(options, names, Path(folder))
    entry = f"{options.dataset}, {options.parts.rsplit('/', 1)[-1]}"
    show(found)
    console.print(f"[dim]{write_entries('parts_training', {entry: (origin, found)})}[/dim]")


def measured(options: argparse.Namespace, names: list[str], folder: Path) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways}
    hashes = set()
    for number in range(options.rounds):
        for way in options.ways:
            run, its_hashes = one_run(options, names, folder / f"{way.replace(', ', '-')}-{number}", way)
            runs[way].append(run)
            if "owner" not in way:  # then the ranks share batches out as those of the whole graph do
                hashes.add(its_hashes)
            console.print(f"[dim]round {number + 1}, {way}: {run['epoch_s']:.2f} s an epoch[/dim]")
    if len(hashes) != 1:
        raise SystemExit("with equal shares of seeds the ways do not end with the same weights: nothing is written")
    found: dict[str, Any] = {"rounds": options.rounds, "train_limit": options.train_limit, "ways": {}}
    for way, its_runs in runs.items():
        pairs = list(zip(its_runs, runs["whole"], strict=True))
        ratio = [run["epoch_s"] / whole["epoch_s"] for run, whole in pairs]
        work = [run["processor_s"] / whole["processor_s"] for run, whole in pairs]
        medians = {key: statistics.median(run[key] for run in its_runs) for key in its_runs[0]}
        found["ways"][way] = {
            **medians,
            "epoch_over_whole": vars_of(Spread.of(ratio)),
            "processor_over_whole": vars_of(Spread.of(work)),
        }
    return found


def vars_of(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "q25": spread.q25, "q75": spread.q75}


def one_run(
    options: argparse.Namespace, names: list[str], folder: Path, way: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A run of all epochs by four ranks. Returns what it measured, and the hashes of its parameters."""
    with started_ranks(options, names, folder, way) as ranks:
        of_an_epoch = followed(RunFolder(folder / "logs" / "run"), ranks, options.epochs)
        codes = [rank.wait(timeout=900) for rank in ranks]
    if codes != [0] * RANKS:
        raise SystemExit(f"{way}: exit statuses {codes}\n{(folder / '0.log').read_text()[-3000:]}")
    run = RunFolder(folder / "logs" / "run")
    found = {**facts(run), **of_an_epoch}
    return found, tuple(event.parameter_hash for event in events_in(run.events_path(0), Sync))


def followed(run: RunFolder, ranks: Sequence[subprocess.Popen[bytes]], epochs: int) -> dict[str, float]:
    """Processor seconds of an epoch, and what interfaces received in it, of all ranks together.

    Without the first epoch, which warms up, and the last, after which is evaluated.
    """
    seen: list[tuple[float, int]] = []  # when each epoch ended
    while len(seen) < epochs - 1 and all(rank.poll() is None for rank in ranks):
        num_rows = len(run.metrics_path.read_text().splitlines()) - 1 if run.metrics_path.exists() else 0
        if num_rows > len(seen):
            now = sum(used_s(rank.pid) for rank in ranks), sum(received_bytes(rank.pid) for rank in ranks)
            seen += [now] * (num_rows - len(seen))
        time.sleep(0.01)
    usable = seen[: epochs - 1]
    if len(usable) < 2:
        raise SystemExit(f"{run.path}: {len(seen)} epochs were seen to end, and it takes three")
    used, received = ((last - first) / (len(usable) - 1) for first, last in zip(usable[0], usable[-1], strict=True))
    return {"processor_s": used, "received_mib": received / 2**20}


def used_s(pid: int) -> float:
    """Processor seconds that a process, which `ip netns exec` became, has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started_ranks(
    options: argparse.Namespace,
    names: list[str],
    folder: Path,
    way: str,
    settings: Sequence[str] = (),
    before: Sequence[list[str]] = (),
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Four ranks, each in its namespace; ended at the latest when the block is left. `before`: words before each."""
    folder.mkdir()
    (folder / "parts.yaml").write_text(EXPERIMENT)
    overrides = [f"dataset.name={options.dataset if way == 'whole' else options.parts}", *WAYS[way]]
    overrides += [f"dataset.train_limit={options.train_limit}", f"train.epochs={options.epochs}", *settings]
    command = [sys.executable, "-m", "graphmill.train", str(folder / "parts.yaml"), "--run-id", "run"]
    command += ["--logs-root", str(folder / "logs"), "--dataset_root", str(options.dataset_root)]
    command += [word for override in overrides for word in ("-O", override)]
    shared = {"MASTER_ADDR": f"{NETWORK}.1", "MASTER_PORT": str(PORT), "OMP_NUM_THREADS": "1"}
    shared |= {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "OMP_WAIT_POLICY": "PASSIVE"}
    shared |= {"GLOO_SOCKET_IFNAME": "eth0"}  # they have one host name, and would else be taken for one host
    logs = [(folder / f"{rank}.log").open("w") for rank in range(RANKS)]
    ranks = [
        subprocess.Popen(
            [*(before[rank] if before else []), "ip", "netns", "exec", name, *command],
            env={**os.environ, **shared, "RANK": str(rank)},
            stdout=logs[rank],
            stderr=subprocess.STDOUT,
        )
        for rank, name in enumerate(names)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for log in logs:
            log.close()


def facts(run: RunFolder) -> dict[str, Any]:
    """Of all epochs but the first."""
    with run.metrics_path.open() as file:
        rows = list(csv.DictReader(file))
    later = rows[1:]

    def mean(column: str) -> float:
        return statistics.fmean(float(row[column] or 0) for row in later)

    epoch_s = mean("train_s")
    return {
        "epoch_s": epoch_s,
        "waiting": mean("wait_s") / epoch_s,
        "fetch_s": mean("fetch_s"),
        "remote_rows": mean("remote_rows"),
        "fetched_rows": mean("fetched_rows"),
        "loader_mib": mean("loader_mib"),
        "recorded_mib": mean("measured_mib_epoch"),
        "peak_rss_mib": max(float(row["peak_rss_mib"]) for row in rows),
    }


def received_bytes(pid: int) -> int:
    """By the counter of the interface of the process's network namespace."""
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
    (found,) = (row for row in lines if row.strip().startswith("eth0:"))
    return int(found.partition(":")[2].split()[0])


@contextmanager
def namespaces() -> Iterator[list[str]]:
    """Four hosts on a switch; they are gone afterwards."""
    names, switch = [f"gmparts{number}" for number in range(RANKS)], "gmparts"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    ip("link", "add", switch, "type", "bridge")
    ip("link", "set", switch, "up")
    try:
        for number, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", f"{switch}v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{switch}v{number}", "master", switch, "up")
            ip("-n", name, "addr", "add", f"{NETWORK}.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
        yield names
    finally:
        for number, name in enumerate(names):
            subprocess.run(["ip", "link", "del", f"{switch}v{number}"], check=False)  # a namespace goes some time later
            subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", switch], check=False)


def show(found: Mapping[str, Any]) -> None:
    rows = [
        [
            way,
            f"{of['epoch_s']:.2f}",
            str(Spread(**of["epoch_over_whole"])),
            f"{of['processor_s']:.2f}",
            f"{of['waiting']:.0%}",
            f"{of['fetched_rows']:,.0f}",
            f"{of['loader_mib']:,.1f}",
            f"{of['received_mib']:,.1f}",
            f"{of['recorded_mib']:,.1f}",
            f"{of['peak_rss_mib']:,.0f}",
        ]
        for way, of in found["ways"].items()
    ]
    heading = [
        "",
        "s",
        "÷ whole",
        "processor s",
        "waits",
        "rows fetched",
        "loaders MiB",
        "received MiB",
        "syncs MiB",
        "peak MiB",
    ]
    print_table("an epoch of four ranks on four hosts", heading, rows)


if __name__ == "__main__":
    main()
