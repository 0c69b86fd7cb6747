"""One side of before_after.py: WORKLOAD GRAPH.npz|- THREADS, run by the Python of one of the two installations.

It answers each line `FIRST CALLS` on standard input by that many timed calls (one untimed call before them) and one
line of JSON: their seconds of wall clock and of CPU time. Nothing but the graphmill of this Python is imported, and the
benchmarks of its own checkout, which know how its classes are called. These names must stay: `sampler.contenders`,
`step.Problem`, `step.Ours(problem, dtype)` with `sample(i)` and `step(i)`, `traffic_step.our_model` and `Step`,
`attention.Graph`, `OURS` and `Step`.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import graphmill

ROOT = Path(graphmill.__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
NUM_SEEDS, BATCH = 24, 1024


def main() -> None:
    workload, graph, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    run = WORKLOADS[workload](graph, threads)
    from graphmill import _native

    answer({"package": str(Path(graphmill.__file__).parent), "isa": str(_native.isa())})
    for line in sys.stdin:
        first, calls = (int(word) for word in line.split())
        run(first % NUM_SEEDS)
        cpu, begin = time.process_time(), time.perf_counter()
        for call in range(first + 1, first + 1 + calls):
            run(call % NUM_SEEDS)
        answer({"wall_s": (time.perf_counter() - begin) / calls, "cpu_s": (time.process_time() - cpu) / calls})


def answer(value: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def load_graph(path: str) -> tuple[object, list]:
    """The graph, and seeds that have in-edges: NUM_SEEDS × BATCH."""
    import numpy as np

    from graphs import Graph

    with np.load(path) as stored:
        graph = Graph(Path(path).stem, stored["indptr"], stored["indices"])
    rng, candidates = np.random.default_rng(0), np.flatnonzero(np.diff(graph.indptr) > 0)
    batch = min(BATCH, len(candidates) // 2)
    return graph, [rng.choice(candidates, batch, replace=False) for _ in range(NUM_SEEDS)]


def sampler(path: str, threads: int) -> Callable[[int], object]:
    """The raw sampler, one thread."""
    import sampler as benchmark

    graph, seeds = load_graph(path)
    return benchmark.contenders(graph, seeds, threads)["graphmill 1 thread"]


def blocks(path: str, threads: int) -> Callable[[int], object]:
    """As training samples: every node draws anew at each hop; one thread."""
    del threads
    import numpy as np

    from step import Ours

    graph, seeds = load_graph(path)
    ours = Ours(_problem(graph, seeds, 1, np.zeros((graph.num_nodes, 602), dtype=np.float32)), _float32())
    return ours.sample


def sage_step(path: str, threads: int) -> Callable[[int], object]:
    """Sample, gather, forward, backward, Adam; 602 features."""
    import numpy as np

    from graphmill import _native
    from step import Ours

    _prepare_torch(threads)
    _native.keep_freed_memory()
    graph, seeds = load_graph(path)
    x = np.random.default_rng(1).standard_normal((graph.num_nodes, 602), dtype=np.float32)
    return Ours(_problem(graph, seeds, threads, x), _float32()).step


def dcrnn_step(path: str, threads: int) -> Callable[[int], object]:
    """DCRNN on a made-up road graph of 207 sensors, 3 steps in and 3 out.

    Every step in time does the same work, and turns a quarter as long stand closer together in the machine's time.
    """
    import torch

    import traffic_step as benchmark
    from graphmill import _native

    _prepare_torch(threads)
    _native.keep_freed_memory()
    torch.manual_seed(0)
    benchmark.INPUTS = benchmark.HORIZON = 3
    adjacency, _ = benchmark.load_adjacency(Path("no such file"))  # the made-up one, also where METR-LA's is there
    inputs = torch.randn(benchmark.BATCH, benchmark.INPUTS, benchmark.NODES, benchmark.CHANNELS)
    targets = torch.randn(benchmark.BATCH, benchmark.HORIZON, benchmark.NODES)
    return benchmark.Step(benchmark.our_model(adjacency), (inputs, targets))


def attention_step(path: str, threads: int) -> Callable[[int], object]:
    """GATv2 over 200,000 edges with 11 features each, forward and backward."""
    del path
    import attention as benchmark

    _prepare_torch(threads)
    return benchmark.Step("gatv2", benchmark.OURS, benchmark.Graph.of(200_000))


def _problem(graph: object, seeds: list, threads: int, x: object) -> object:
    import numpy as np

    from step import CLASSES, Problem

    y = np.random.default_rng(2).integers(CLASSES, size=graph.num_nodes)
    return Problem(graph, x, y, seeds, threads)


def _prepare_torch(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _float32() -> object:
    import torch

    return torch.float32


WORKLOADS = {
    "sampler": sampler,
    "blocks": blocks,
    "sage_step": sage_step,
    "dcrnn_step": dcrnn_step,
    "attention_step": attention_step,
}


if __name__ == "__main__":
    main()
