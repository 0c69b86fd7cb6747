"""How long commands take to start, the submitting ones without torch; what tiny runs take, and what uses them.

Beside a tiny run of one rank a script with torch alone (peers/plain_torch.py) trains an epoch of the same graph.

python benchmarks/startup.py [--rounds 11] [--runs 5]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from graphmill.graph.features import DenseFeatures
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from harness import ForeignLoad, Spread, print_table, write_result
from origin import Origin

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import graphmill.cli": [sys.executable, "-c", "import graphmill.cli, sys; assert 'torch' not in sys.modules"],
    "graphmill --help": [sys.executable, "-m", "graphmill.cli", "--help"],
    "graphmill train --help": [sys.executable, "-m", "graphmill.cli", "train", "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
}
RANKS = (1, 2, 4)
PLAIN = Path(__file__).with_name("peers") / "plain_torch.py"
OF_A_RUN = {
    "graphmill evaluate": ["evaluate", "1-0"],
    "graphmill predict": ["predict", "1-0", "--output", "predicted.csv"],
}
EXPERIMENT = """
dataset: {name: tiny}
train: {epochs: 1, threads: 1, baselines: false}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--runs", type=int, default=5, help="of each number of ranks, and of what uses a run")
    options = parser.parse_args()
    origin = Origin.now()
    watch = ForeignLoad()
    commands = {name: [timed(command)[0] for _ in range(options.rounds)] for name, command in COMMANDS.items()}
    wall: dict[int, list[float]] = {ranks: [] for ranks in RANKS}
    processor: dict[int, list[float]] = {ranks: [] for ranks in RANKS}
    using: dict[str, list[tuple[float, float]]] = {name: [] for name in OF_A_RUN}
    plain: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tiny.yaml").write_text(EXPERIMENT)
        prepare = ["prepare", "synthetic/sbm", "--as", "tiny", "-o", "num_nodes=400", "-o", "num_edges=3000"]
        timed([sys.executable, "-m", "graphmill.cli", *prepare], folder)
        write_arrays(Path(folder))
        for number in range(options.runs):
            plain.append(timed([sys.executable, str(PLAIN), "tiny.npz", "weights.pt"], folder))
            for ranks in RANKS:
                words = ["train", "tiny.yaml", "--ranks", str(ranks), "--run-id", f"{ranks}-{number}"]
                found = timed([sys.executable, "-m", "graphmill.cli", *words], folder)
                wall[ranks].append(found[0])
                processor[ranks].append(found[1])
            for name, words in OF_A_RUN.items():
                using[name].append(timed([sys.executable, "-m", "graphmill.cli", *words], folder))
    cores = watch.cores()
    seconds = {name: Spread.of(values) for name, values in commands.items()}
    print_table(
        f"seconds from start to end (quartiles); others used {cores:.2f} cores; the bar is 0.5 s",
        ["command", "s"],
        [[name, str(spread)] for name, spread in seconds.items()],
    )
    of_ranks = {ranks: (Spread.of(wall[ranks]), Spread.of(processor[ranks])) for ranks in RANKS}
    print_table(
        "graphmill train of one epoch of 400 nodes, from start to end (quartiles)",
        ["ranks", "s", "processor s"],
        [[str(ranks), *map(str, spreads)] for ranks, spreads in of_ranks.items()],
    )
    script = [Spread.of(list(each)) for each in zip(*plain, strict=True)]
    ratio = Spread.of([script_s / ours_s for (script_s, _), ours_s in zip(plain, wall[1], strict=True)])
    print(f"a script with torch alone: {script[0]} s, {script[1]} processor s; {ratio} times as long as 1 rank\n")
    of_a_run = {name: [Spread.of(list(each)) for each in zip(*found, strict=True)] for name, found in using.items()}
    print_table(
        "of the run with one rank, from start to end (quartiles)",
        ["command", "s", "processor s"],
        [[name, *map(str, spreads)] for name, spreads in of_a_run.items()],
    )
    runs = [
        {"ranks": ranks, "wall_s": wall_s, "processor_s": processor_s}
        for ranks, (wall_s, processor_s) in of_ranks.items()
    ]
    uses = {name: {"wall_s": wall_s, "processor_s": processor_s} for name, (wall_s, processor_s) in of_a_run.items()}
    about = {"rounds": options.rounds, "runs_each": options.runs, "foreign_cores": cores, "seconds": seconds}
    beside = {"wall_s": script[0], "processor_s": script[1], "ratio_to_one_rank": ratio}
    write_result("startup", {**about, "train": runs, "plain_torch": beside, "of_a_run": uses}, origin)


def write_arrays(folder: Path) -> None:
    """The prepared graph as a script reads it: tiny.npz."""
    store = LabelledGraphStore.open(folder / "data" / "tiny")
    topology = store.topology(undirected=False)
    targets = np.repeat(np.arange(store.metadata.num_nodes), np.diff(topology.indptr))
    edges = np.stack([np.asarray(topology.indices, dtype=np.int64), targets])
    features = store.features
    assert isinstance(features, DenseFeatures)
    np.savez(folder / "tiny.npz", edge_index=edges, x=features.x, y=store.labels, split=store.array("split"))


def timed(command: list[str], folder: str | None = None) -> tuple[float, float]:
    """Seconds from start to end of a command, and those of processors that it and its children used."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
