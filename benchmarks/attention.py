"""GAT and GATv2 with features of edges, forward and backward, against PyG's layers, eager and compiled: time, memory.

    python benchmarks/attention.py [--edges 40000 400000 4000000] [--gradients weights nodes edges] [--rounds 7]
                                   [--threads 2] [--no-compile]

Gradients are those of the weights; nodes: of x as well, as in all layers but the first; edges: of x and of the features
of edges, as where these were computed. Every form gets the same weights, nodes and edges (unsorted, 20 to a node), and
makes its own self-loops and order of the edges at each step, as a layer does that is given an edge_index. Extra memory
is the peak of a step above what the process held before it, in a process for each form, after a step to warm up; a form
that does not stay below the memory limit there is left out of the times, and the table says so. The floor: what a step
must read and write once, over the bandwidth of a copy, and its multiply-adds, over the rate of torch's own product,
both measured between the rounds.
"""

import argparse
import ctypes
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from entries import write_entries
from graphmill.nn.attention import GATConv, GATv2Conv
from harness import Rounds, Spread, interleave, print_table
from origin import Origin

FEATURES, HEADS, CHANNELS, EDGE_DIM, DEGREE = 64, 8, 16, 11, 20
WIDTH = HEADS * CHANNELS
OURS, EAGER, COMPILED = "graphmill", "PyG", "PyG compiled"
KINDS = {"gat": GATConv, "gatv2": GATv2Conv}
GRADIENTS = ("weights", "nodes", "edges")


@dataclass(frozen=True)
class Graph:
    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor

    @classmethod
    def of(cls, num_edges: int, gradients: str) -> "Graph":
        generator = torch.Generator().manual_seed(0)
        num_nodes = num_edges // DEGREE
        return cls(
            torch.randn(num_nodes, FEATURES, generator=generator).requires_grad_(gradients != "weights"),
            torch.randint(num_nodes, (2, num_edges), generator=generator),
            torch.randn(num_edges, EDGE_DIM, generator=generator).requires_grad_(gradients == "edges"),
        )


class Step:
    """Forward, and backward from a gradient of the output that is there."""

    def __init__(self, kind: str, form: str, graph: Graph) -> None:
        import torch_geometric.nn as pyg

        torch.manual_seed(0)
        peer = {"gat": pyg.GATConv, "gatv2": pyg.GATv2Conv}[kind](FEATURES, CHANNELS, HEADS, edge_dim=EDGE_DIM)
        self.layer: nn.Module = KINDS[kind](FEATURES, CHANNELS, HEADS, edge_dim=EDGE_DIM) if form == OURS else peer
        self.layer.load_state_dict(peer.state_dict())
        self.forward: Callable[..., Tensor] = torch.compile(self.layer) if form == COMPILED else self.layer
        self.graph = graph
        self.grad = torch.randn(len(graph.x), WIDTH)

    def __call__(self, _: int = 0) -> None:
        self.layer.zero_grad()
        self.graph.x.grad = self.graph.edge_attr.grad = None
        self.forward(self.graph.x, self.graph.edge_index, self.graph.edge_attr).backward(self.grad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, nargs="+", default=[40_000, 400_000, 4_000_000])
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--gradients", nargs="+", choices=GRADIENTS, default=list(GRADIENTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--memory-limit", type=float, metavar="GIB", help="of a process; else 0.6 of what is available")
    parser.add_argument("--memory-of", nargs=4, metavar=("KIND", "FORM", "EDGES", "OF"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    limit = int(options.memory_limit * 2**30) if options.memory_limit else int(psutil.virtual_memory().available * 0.6)
    if options.memory_of:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        kind, form, num_edges, of = options.memory_of
        sys.stdout.write(json.dumps({"extra_mib": extra_memory(kind, form, int(num_edges), of)}) + "\n")
        return
    forms = [OURS, EAGER] if options.no_compile else [OURS, EAGER, COMPILED]
    for kind in options.kinds:
        for num_edges in options.edges:
            for of in options.gradients:
                origin = Origin.now()
                found = measure(kind, num_edges, of, forms, options.rounds, options.threads, limit)
                write_entries("attention", {f"{kind}-{num_edges}-{of}": (origin, found)})


def measure(
    kind: str, num_edges: int, of: str, forms: list[str], rounds: int, threads: int, limit: int
) -> dict[str, object]:
    """A cell of the table. `of`: what has gradients."""
    memory = {form: memory_of(kind, form, num_edges, of, threads, limit) for form in forms}
    graph = Graph.of(num_edges, of)
    contenders: dict[str, Callable[[int], object]] = {
        form: Step(kind, form, graph) for form in forms if memory[form] is not None
    }
    bandwidths: list[float] = []
    rates: list[float] = []

    def measure_rates(_: int) -> None:
        bandwidths.append(copy_bandwidth())
        rates.append(product_rate())

    contenders["floor"] = measure_rates
    timed = interleave(contenders, rounds=rounds, warmup=1)
    floor = {
        "bytes": compulsory_bytes(kind, num_edges, of=of),
        "gathered_bytes": gathered_bytes(kind, num_edges),
        "flop": flop(kind, num_edges, of),
        "copy_bytes_per_s": Spread.of(bandwidths[1:]),
        "product_flop_per_s": Spread.of(rates[1:]),
    }
    title = f"{kind}, gradients of {of}, {num_edges // DEGREE:,} nodes, {num_edges:,} edges, {threads} threads"
    report(title, forms, timed, memory, floor)
    return {
        "kind": kind,
        "gradients": of,
        "num_nodes": num_edges // DEGREE,
        "num_edges": num_edges,
        "threads": threads,
        "rounds": rounds,
        "foreign_cores": timed.foreign_cores,
        "floor": floor,
        "contenders": {
            form: {
                "seconds": timed.spread(form),
                "ratio_to_graphmill": timed.ratio(form, OURS),
                "extra_mib": memory[form],
            }
            if form in timed.seconds
            else {"left_out": f"more than {limit / 2**30:.1f} GiB"}
            for form in forms
        },
    }


def report(title: str, forms: list[str], timed: Rounds, memory: dict[str, float | None], floor: dict[str, Any]) -> None:
    ours = memory[OURS]
    assert ours is not None
    table = []
    for form in forms:
        extra = memory[form]
        if extra is None:
            table.append([form, "over the memory limit", "", "", ""])
            continue
        times = [str(timed.spread(form)), str(timed.ratio(form, OURS))]
        table.append([form, *times, f"{extra:.0f}", f"{extra / ours:.1f}"])
    columns = ["form", "s", "time ÷ graphmill (quartiles)", "extra MiB", "÷ graphmill"]
    print_table(f"{title}; others used {timed.foreign_cores:.2f} cores", columns, table)
    bandwidth, rate = floor["copy_bytes_per_s"], floor["product_flop_per_s"]
    rows = [
        [name, f"{amount / 1e6:,.0f} M", f"{per_s / 1e9:.1f} G/s", f"{1e3 * amount / per_s:.1f}"]
        for name, amount, per_s in (
            ("bytes, each once", floor["bytes"], bandwidth.median),
            ("bytes, rows of neighbours gathered", floor["gathered_bytes"], bandwidth.median),
            ("floating-point operations", floor["flop"], rate.median),
        )
    ]
    print_table("floor", ["what", "amount", "rate measured", "ms"], rows)


# ---- the floor ------------------------------------------------------------------------------------------------------


def compulsory_bytes(kind: str, num_edges: int, value: int = 4, *, of: str = "weights") -> int:
    """Forward and backward: the inputs twice, results, their gradients and those of the projections once.

    `of`: what has gradients; those of x and of the features of edges are written once.

    `value`: bytes of one of the projections, results and gradients; features are float32.
    """
    num_nodes, projections = num_edges // DEGREE, {"gat": 1, "gatv2": 2}[kind]
    of_nodes = num_nodes * (2 * FEATURES * 4 + WIDTH * (3 * projections + 3) * value)
    gradients = num_nodes * FEATURES * 4 * (of != "weights") + num_edges * EDGE_DIM * 4 * (of == "edges")
    return of_nodes + 2 * num_edges * (EDGE_DIM * 4 + 2 * 8) + gradients


def gathered_bytes(kind: str, num_edges: int, value: int = 4) -> int:
    """Rows of x by edge, forward and backward, and rows of the gradient; GATv2 also those of the targets' scores."""
    return {"gat": 3, "gatv2": 4}[kind] * (num_edges + num_edges // DEGREE) * WIDTH * value


def flop(kind: str, num_edges: int, of: str = "weights") -> int:
    """Two for each multiply-add, nothing computed twice. `of`: what has gradients.

    An edge: the weighted sum and its two gradients; the scores of its features and their gradient; for GATv2 the
    products of the scores with the attention vector, and their two gradients. A node: its projections and their
    gradient, twice where x has one.
    """
    num_nodes = num_edges // DEGREE
    scores = {"gat": HEADS, "gatv2": WIDTH}[kind]
    an_edge = 3 * WIDTH + (2 + (of == "edges")) * EDGE_DIM * scores + (3 * WIDTH if kind == "gatv2" else 0)
    a_node = (2 + (of != "weights")) * FEATURES * (WIDTH + 2 * HEADS if kind == "gat" else 2 * WIDTH)
    return 2 * ((num_edges + num_nodes) * an_edge + num_nodes * a_node)


def copy_bandwidth(num_bytes: int = 128 << 20) -> float:
    """Bytes read and written per second by torch's copy, all threads; the best of three."""
    source, target = torch.zeros(num_bytes // 4), torch.zeros(num_bytes // 4)
    return 2 * num_bytes / best_of(lambda: target.copy_(source))


def product_rate(n: int = 1024) -> float:
    """Operations per second of torch's float32 product, all threads; the best of three."""
    a, b, out = torch.ones(n, n), torch.ones(n, n), torch.empty(n, n)
    return 2 * n**3 / best_of(lambda: torch.mm(a, b, out=out))


def best_of(run: Callable[[], object], times: int = 3) -> float:
    seconds = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


# ---- memory ---------------------------------------------------------------------------------------------------------


def memory_of(kind: str, form: str, num_edges: int, of: str, threads: int, limit: int) -> float | None:
    """Extra MiB of a step in a process of its own; None where it wants more than the limit."""
    words = ["--memory-of", kind, form, str(num_edges), of]
    words += ["--threads", str(threads), "--memory-limit", str(limit / 2**30)]
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return float(json.loads(done.stdout)["extra_mib"])
    if "allocate memory" in done.stderr or done.returncode < 0:
        return None
    raise SystemExit(f"{kind}, {form}, {num_edges} edges:\n{done.stderr}")


def extra_memory(kind: str, form: str, num_edges: int, of: str) -> float:
    """Peak of resident memory in a step above what was resident before it, in MiB."""
    step = Step(kind, form, Graph.of(num_edges, of))
    step()  # what is loaded or compiled once
    step.layer.zero_grad()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    step()
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return (peak - before) / 2**20


if __name__ == "__main__":
    main()
