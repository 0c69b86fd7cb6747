"""Reading presampled batches against sampling them: time of a batch, bytes of a batch.

    python benchmarks/presampled.py [--graphs debian-packages rmat-1m] [--fanouts 15 10 5] [--rounds 30]
        --dataset-root FOLDER

Each graph, prepared in FOLDER, has an epoch sampled and written. Then a batch is sampled and read in turns, one thread,
the file in the page cache: what a rank saves that would else wait for its sampler. Seconds are those that the thread
computed, as the kernel counts them: other processes that take the cores meanwhile are not in them.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from entries import write_entries
from graphmill.graph.sampled import Sampled
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.presampled.packing import Form
from graphmill.sample.presampled.schedule import EpochSource, PresampledSampler, ScheduleIdentity
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.calendar import EqualBatches
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from harness import Rounds, console, print_table
from origin import Origin

BATCH_SIZE, SEED = 1024, 0
MOST_STEPS = 40  # of the epoch that is written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=["debian-packages", "rmat-1m"])
    parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--dataset-root", type=Path, required=True)
    options = parser.parse_args()
    origin = Origin.now()
    rows = []
    for name in options.graphs:
        store = LabelledGraphStore.open(options.dataset_root / name)
        with tempfile.TemporaryDirectory(prefix="graphmill-presampled-") as folder:
            found = measured(store, tuple(options.fanouts), options.rounds, Path(folder) / "sampled")
        rows.append(
            [name, *(f"{found[key]:,.0f}" for key in ("nodes_per_batch", "bytes_per_batch")), f"{found['ratio']}"]
        )
        console.print(f"[dim]{write_entries('presampled', {name: (origin, found)})}[/dim]")
    print_table("sampling ÷ reading a batch", ["", "nodes", "bytes", "ratio"], rows)


def measured(store: LabelledGraphStore, fanouts: tuple[int, ...], rounds: int, path: Path) -> dict[str, object]:
    source = source_of(store, fanouts)
    folder, sampler = source.folder(path), source.sampler()
    folder.begin()
    num_bytes = folder.write(0, source.schedule, sampler, lambda steps, written: None)
    reader = PresampledSampler(folder, 0)

    def by(sample: Callable[..., Sampled]) -> Callable[[int], Sampled]:
        return lambda call: sample(source.schedule.seeds(0, call % source.num_steps, 0))

    nodes = [len(by(sampler.sample)(step).node_ids) for step in range(source.num_steps)]
    contenders = {"sample": by(sampler.sample), "read": by(reader.sample)}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 2):  # two to warm up
        for name, run in contenders.items():
            taken = [cpu_seconds(run, number * 3 + call) for call in range(3)]
            seconds[name] += taken[2:] if number >= 2 else []  # what is in the caches then is its own
    timed = Rounds(seconds, 0.0)
    return {
        "steps": source.num_steps,
        "nodes_per_batch": float(np.mean(nodes)),
        "bytes_per_batch": num_bytes / source.num_steps,
        "sample_s": timed.spread("sample"),
        "read_s": timed.spread("read"),
        "ratio": timed.ratio("sample", "read"),
    }


def cpu_seconds(run: Callable[[int], Sampled], number: int) -> float:
    begin = time.thread_time()
    run(number)
    return time.thread_time() - begin


def source_of(store: LabelledGraphStore, fanouts: tuple[int, ...]) -> EpochSource:
    """An epoch of at most MOST_STEPS steps of one rank."""
    topology = store.topology(undirected=True)
    train = store.nodes_in("train")[: MOST_STEPS * BATCH_SIZE]
    batches = EqualBatches(len(train), BATCH_SIZE, 1)
    identity = ScheduleIdentity(
        data=store.metadata.checksum,
        num_train=len(train),
        undirected=True,
        seed=SEED,
        num_neighbors=fanouts,
        batch_size=BATCH_SIZE,
        ranks=1,
        seeds="equal",
        resample=True,
        edge_ids=False,
    )
    return EpochSource(
        identity,
        Form.of(topology.num_nodes, topology.num_edges, fanouts, resample=True, with_edge_ids=False),
        batches.num_steps,
        SeedSchedule.equal(train, batches, SEED),
        lambda: WholeSampler(topology, fanouts, SEED, 1, resample=True),
    )


if __name__ == "__main__":
    main()
