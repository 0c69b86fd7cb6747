"""Raw block sampling against DGL's NeighborSampler and GraphBolt, which need a Python of their own.

    python benchmarks/sampler_dgl.py --dgl-python PATH [--rounds 25] [--threads 2] [--graphs NAME …]

DGL 2.1.0 does not run beside a current torch, so the turns are taken in a child process of the Python that has it
(benchmarks/README.md); that child loads Graphmill's native module, which needs numpy alone. Block semantics for
all: every node known so far draws anew at each hop. Batch 1024, fan-outs [25, 10]. DGL's blocks always hold edge ids,
so ours make them too; GraphBolt is asked for none, and is compared with ours without. All use one thread, then all use
`--threads`: each ratio is between equal numbers of threads.
"""

import argparse
import json
import subprocess
from pathlib import Path

from entries import write_entries
from graphmill import _native
from graphs import load
from harness import CACHE, ForeignLoad, Rounds, print_table
from origin import Origin

CHILD = Path(__file__).parent / "peers" / "dgl_rounds.py"
BATCH = 1024
OURS = {"DGL sample_blocks": "graphmill, edge ids", "GraphBolt": "graphmill"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dgl-python", required=True, help="a Python in which `import dgl` works")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--graphs", nargs="+", default=["sbm", "rmat", "ba"])
    options = parser.parse_args()
    entries = {}
    for name in options.graphs:
        origin, graph = Origin.now(), load(name)
        command = [options.dgl_python, str(CHILD), str(CACHE / f"{name}.npz"), _native.__file__]
        watch = ForeignLoad()
        done = subprocess.run(
            [*command, str(options.rounds), str(options.threads)], check=True, capture_output=True, text=True
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        found = report(Rounds(answer["seconds"], watch.cores()), f"{name}: {graph.num_edges:,} edges")
        entries[name] = (origin, {"batch": BATCH, "fanouts": [25, 10], "versions": answer["versions"], **found})
    write_entries("sampler_dgl", entries)


def report(rounds: Rounds, title: str) -> dict[str, object]:
    """`rounds` has each contender as `NAME, N thread(s)`; a peer is compared with ours of as many threads."""
    measured = {}
    for label in rounds.seconds:
        name, threads = label.rsplit(", ", 1)
        ours = f"{OURS.get(name, name)}, {threads}"
        measured[label] = {
            "seconds": rounds.spread(label),
            "ratio_to_graphmill": rounds.ratio(label, ours),
            "ours": ours,
        }
    rows = [
        [label, f"{rounds.spread(label).median * 1e3:.2f}", str(found["ours"]), str(found["ratio_to_graphmill"])]
        for label, found in measured.items()
    ]
    columns = ["sampler", "ms", "compared with", "time ÷ ours (quartiles)"]
    print_table(f"{title}; others used {rounds.foreign_cores:.2f} cores", columns, rows)
    return {"foreign_cores": rounds.foreign_cores, "contenders": measured}


if __name__ == "__main__":
    main()
