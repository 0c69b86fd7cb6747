"""Raw block sampling against DGL's NeighborSampler and GraphBolt, which need a Python of their own.

    python benchmarks/sampler_dgl.py --dgl-python PATH [--rounds 25] [--threads 2]

DGL 2.1.0 does not run beside a current torch, so the turns are taken in a child process of the Python that has it
(benchmarks/README.md); that child loads Graphmill's native module, which needs numpy alone. Block semantics for
all: every node known so far draws anew at each hop. Batch 1024, fan-outs [25, 10]."""

import argparse
import json
import subprocess
from pathlib import Path

from graphmill import _native
from graphs import load
from harness import CACHE, Rounds, print_table, write_result

CHILD = Path(__file__).parent / "peers" / "dgl_rounds.py"
BATCH = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dgl-python", required=True, help="a Python in which `import dgl` works")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--graphs", nargs="+", default=["sbm", "rmat", "ba"])
    options = parser.parse_args()
    result: dict[str, object] = {"rounds": options.rounds, "batch": BATCH, "fanouts": [25, 10]}
    for name in options.graphs:
        graph = load(name)
        command = [options.dgl_python, str(CHILD), str(CACHE / f"{name}.npz"), _native.__file__]
        done = subprocess.run(
            [*command, str(options.rounds), str(options.threads)], check=True, capture_output=True, text=True
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        rounds = Rounds(answer["seconds"], answer["foreign_cores"])
        ours = next(iter(rounds.seconds))
        rows, measured = [], {}
        for peer in rounds.seconds:
            spread, ratio = rounds.spread(peer), rounds.ratio(peer, ours)
            rows.append([peer, f"{spread.median * 1e3:.2f}", f"{BATCH / spread.median:,.0f}", str(ratio)])
            measured[peer] = {"seconds": spread, "ratio_to_graphmill": ratio}
        print_table(
            f"{name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges; others: {rounds.foreign_cores:.2f} cores",
            ["sampler", "ms", "seeds/s", "time ÷ ours (quartiles)"],
            rows,
        )
        result[name] = {"foreign_cores": rounds.foreign_cores, "contenders": measured, "versions": answer["versions"]}
    write_result("sampler_dgl", result)


if __name__ == "__main__":
    main()
