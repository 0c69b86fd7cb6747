"""One training step on a Reddit-shaped graph: sampling + gathering + forward + backward + Adam, against PyG's three
forms.

    python benchmarks/step.py [--rounds 15] [--threads 2] [--without tutorial trimmed] [--features 100]

F = 602 (with another number the result is printed only), 41 classes, hidden 256, 2 layers, fan-outs [25, 10], batch
1024, dropout 0.5, float32. Contenders, in turns in one process:
  graphmill           native sampler, features averaged straight from the store, native products
  graphmill bf16      the same with features stored in bfloat16, averaged in float32, and train.precision=bf16
  PyG tutorial        NeighborLoader, the whole subgraph through both layers
  PyG trimmed         the same with trim_to_layer
  PyG best (…)        the best PyG can be made: pyg-lib's raw sampler, each layer only for the rows it needs. Edges as
                      an edge_index or as a CSR matrix, with index_select into a reused buffer; or as a CSR matrix whose
                      columns are global ids, so that the first layer multiplies it with all features where they are
                      (the fastest of the three counts)
All use a fused Adam, the same graph, features, batch size and fan-outs. Each makes two steps in a row, and the second
is timed: in training a step follows its own kind, not a peer's that has just walked through gigabytes. Rates are
against this machine's own matrix-product rate, measured here. GFLOP are those that are performed; what graphmill leaves
out (zeros that ReLU and dropout made, in the gradient of a weight) is printed beside, with the rate in dense form.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

import numpy as np
import psutil
import torch
import torch.nn.functional as F

from graphmill import _native
from graphmill.graph.batch import MiniBatch, SelfAndMean
from graphmill.graph.features import DenseFeatures
from graphmill.graph.sampled import Sampled, SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.nn.graphsage import GraphSage, MeanLayer
from graphmill.nn.operators import RELU
from graphmill.sample.collect import Collector, WholeTables
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.prefetch import prefetch
from graphs import load
from harness import Rounds, Spread, interleave, print_table, write_result
from origin import Origin
from problem import CLASSES, FANOUTS, HIDDEN, Problem
from pyg_forms import PygLoaderStep, pyg_best_forms

BATCH, WIDE = 1024, 602  # WIDE: columns of Reddit's features
WARMUP, CALLS = 2, 2  # rounds; steps in a row


@dataclass
class Ours:
    """Graphmill's step; seconds by phase are summed up beside the whole."""

    problem: Problem
    dtype: torch.dtype
    phases: dict[str, list[float]] = field(default_factory=lambda: {"sample": [], "gather": [], "compute": []})
    edges: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        p = self.problem
        self.model = GraphSage(
            in_channels=p.num_features,
            hidden_channels=HIDDEN,
            out_channels=CLASSES,
            num_layers=2,
            dropout=0.5,
            input_dropout=0.0,
            seed=0,
            training_dtype=self.dtype,
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True)
        self.sampler = WholeSampler(Topology(p.graph.indptr, p.graph.indices), FANOUTS, 0, p.threads, resample=True)
        stored = DenseFeatures(p.x, "float32")
        if self.dtype == torch.bfloat16:
            stored = DenseFeatures(torch.from_numpy(p.x).bfloat16().view(torch.uint16).numpy(), "bfloat16")
        self.tables = WholeTables(stored, None)
        self.collector = Collector(p.y, "self_and_mean", self.dtype, p.threads, prefetch=0)

    def step(self, number: int) -> None:
        begin = time.perf_counter()
        sampled = self.sample(number)
        sampled_at = time.perf_counter()
        batch = self.collector.collect(sampled, *self.tables.fetch([sampled]))
        collected_at = time.perf_counter()
        self.compute(batch)
        self.phases["sample"].append(sampled_at - begin)
        self.phases["gather"].append(collected_at - sampled_at)
        self.phases["compute"].append(time.perf_counter() - collected_at)
        self.edges.append((*(block.num_rows for block in batch.blocks), *batch.num_edges_per_hop))

    def sample(self, number: int) -> Sampled:
        return self.sampler.sample(Seeds(0, number, SeedIds(self.problem.seeds[number])))

    def compute(self, batch: MiniBatch) -> None:
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(batch), batch.labels).backward()
        self.optimizer.step()

    def gflop(self) -> float:
        """Products of one step in dense form: forward, weight gradients, the second layer's input gradient; 2 per
        multiply-add."""
        rows1, rows2 = np.mean([edge[:2] for edge in self.edges], axis=0)
        return float(2 * (2 * rows1 * 2 * self.problem.num_features * HIDDEN + 3 * rows2 * 2 * HIDDEN * CLASSES) / 1e9)

    def gflop_left_out(self) -> float:
        """The part of them that is not multiplied: the first layer's weight gradient where ReLU or dropout made it
        zero."""
        sampled = self.sampler.sample(Seeds(0, 0, SeedIds(self.problem.seeds[0])))
        batch = self.collector.collect(sampled, *self.tables.fetch([sampled]))
        layer = self.model.layers[0]
        assert isinstance(layer, MeanLayer)
        assert isinstance(batch.inputs, SelfAndMean)
        with torch.no_grad():
            positive = float((layer.on_self_and_mean(batch.inputs.x, RELU) > 0).float().mean())
        rows1 = float(np.mean([edge[0] for edge in self.edges]))
        return (
            2
            * rows1
            * 2
            * self.problem.num_features
            * HIDDEN
            * (1 - positive * (1 - self.model.dropout.of_hidden))
            / 1e9
        )


def pipelined(problem: Problem) -> dict[str, float]:
    """Graphmill's step as training runs it, batches made ahead on a thread: seconds a step, share spent waiting."""
    ours = Ours(problem, torch.float32)
    sampler, collector = replace(ours.sampler, num_threads=1), replace(ours.collector, prefetch=2)

    def make() -> Iterator[MiniBatch]:
        for number, seeds in enumerate(problem.seeds):
            sampled = sampler.sample(Seeds(0, number, SeedIds(seeds)))
            yield collector.collect(sampled, *ours.tables.fetch([sampled]))

    waited, began, steps = 0.0, 0.0, 0
    waiting_since = time.perf_counter()
    for number, batch in enumerate(prefetch(make, 2)):
        if number == 2:  # warm
            began, waited, steps = time.perf_counter(), 0.0, 0
        else:
            waited += time.perf_counter() - waiting_since
        ours.compute(batch)
        steps += 1
        waiting_since = time.perf_counter()
    total = time.perf_counter() - began
    return {"seconds_per_step": total / steps, "waiting_share": waited / total}


def matrix_rates(threads: int, num_features: int) -> dict[str, float]:
    """GFLOP/s of this machine's own products in the shape of the first layer: torch's, oneDNN's, ours; best of 7."""
    m, k, n = 25_000, 2 * num_features, HIDDEN
    a, w, out = torch.randn(m, k), torch.randn(n, k), torch.empty(m, n)
    a16, w16 = a.bfloat16(), w.bfloat16()
    runs: dict[str, Callable[[], object]] = {
        "torch float32": lambda: a @ w.T,
        "oneDNN float32": lambda: torch.ops.mkldnn._linear_pointwise(a, w, None, "none", [], ""),
        "graphmill float32": lambda: _native.linear(a, w, None, out, False, None, 0.0, threads),
        "torch bfloat16": lambda: a16 @ w16.T,
    }
    rates = {}
    for name, run in runs.items():
        best = min(_seconds(run) for _ in range(7))
        rates[name] = 2 * m * k * n / best / 1e9
    return rates


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


class PeakMemory:
    """Peak resident memory above what was resident at the start, sampled every 2 ms."""

    def __init__(self) -> None:
        self._process, self._stop = psutil.Process(), threading.Event()
        self._start = self.peak = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def mib(self) -> float:
        return (self.peak - self._start) / 2**20

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            self.peak = max(self.peak, self._process.memory_info().rss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without", nargs="*", default=[], help="tutorial, trimmed")
    parser.add_argument("--graph", default="reddit_shaped")
    parser.add_argument("--features", type=int, default=WIDE, help="columns of the nodes' features")
    options = parser.parse_args()
    origin = Origin.now()
    torch.set_num_threads(options.threads)
    _native.keep_freed_memory()  # for all contenders: they share the process
    problem = make_problem(options.graph, (options.rounds + WARMUP) * CALLS, options.threads, options.features)
    ours, ours16 = Ours(problem, torch.float32), Ours(problem, torch.bfloat16)
    runs: dict[str, Callable[[int], object]] = {"graphmill": ours.step, "graphmill bf16": ours16.step}
    runs |= {name: form.step for name, form in pyg_best_forms(problem).items()}
    if "trimmed" not in options.without:
        runs["PyG trimmed"] = PygLoaderStep(problem, trimmed=True).step
    if "tutorial" not in options.without:
        runs["PyG tutorial"] = PygLoaderStep(problem, trimmed=False).step
    rates = matrix_rates(options.threads, options.features)
    rounds = interleave(runs, rounds=options.rounds, warmup=WARMUP, calls=CALLS)
    rates_after = matrix_rates(options.threads, options.features)
    rates = {name: max(rate, rates_after[name]) for name, rate in rates.items()}
    memory = peak_memory(problem)
    overlapped = pipelined(problem)
    result = report(rounds, ours, ours16, rates, memory, overlapped)
    print(
        f"with batches made ahead on a thread: {overlapped['seconds_per_step'] * 1e3:.0f} ms a step,"
        f" {overlapped['waiting_share']:.1%} of it waiting for the loader"
    )
    if options.features == WIDE:
        write_result("step", result, origin)


def make_problem(name: str, num_batches: int, threads: int, num_features: int) -> Problem:
    graph, rng = load(name), np.random.default_rng(1)
    x = rng.standard_normal((graph.num_nodes, num_features), dtype=np.float32)
    y = rng.integers(CLASSES, size=graph.num_nodes)
    batch = min(BATCH, graph.num_nodes // num_batches)
    seeds = list(rng.permutation(graph.num_nodes)[: num_batches * batch].reshape(num_batches, batch))
    return Problem(graph, x, y, seeds, threads)


def peak_memory(problem: Problem) -> dict[str, float]:
    """MiB above the data that two fresh steps of each form need."""
    result = {}
    forms: dict[str, Callable[[], Callable[[int], object]]] = {"graphmill": lambda: Ours(problem, torch.float32).step}
    forms |= {name: partial(attrgetter("step"), form) for name, form in pyg_best_forms(problem).items()}
    for name, make in forms.items():
        step = make()
        with PeakMemory() as peak:
            step(0)
            step(1)
        result[name] = peak.mib
    return result


def report(
    rounds: Rounds,
    ours: Ours,
    ours16: Ours,
    rates: dict[str, float],
    memory: dict[str, float],
    overlapped: dict[str, float],
) -> dict[str, object]:
    rows = [
        [
            name,
            f"{rounds.spread(name).median * 1e3:.0f}",
            str(rounds.ratio(name, "graphmill")),
            f"{memory[name]:.0f}" if name in memory else "",
        ]
        for name in rounds.seconds
    ]
    print_table(
        f"one step, Reddit-shaped (synthetic); others used {rounds.foreign_cores:.2f} cores",
        ["form", "ms", "time ÷ graphmill (quartiles)", "peak MiB of 2 steps"],
        rows,
    )
    seconds, gflop, left_out = rounds.spread("graphmill").median, ours.gflop(), ours.gflop_left_out()
    achieved, performed = gflop / seconds, (gflop - left_out) / seconds
    overlapped_rate = (gflop - left_out) / overlapped["seconds_per_step"]
    phases, phases16 = phases_of(ours), phases_of(ours16)
    share = {name: spread.median / seconds for name, spread in phases.items()}
    print_table(
        f"graphmill: {gflop - left_out:.1f} GFLOP performed a step, {performed:.0f} GFLOP/s over the whole step,"
        f" {overlapped_rate:.0f} with batches made ahead; in dense form {gflop:.1f}, of which {left_out:.1f} are zeros"
        " that are left out",
        ["this machine's own product", "GFLOP/s", "the step performs", "with batches made ahead", "in dense form"],
        [
            [name, f"{rate:.0f}", f"{performed / rate:.0%}", f"{overlapped_rate / rate:.0%}", f"{achieved / rate:.0%}"]
            for name, rate in rates.items()
        ],
    )
    print_table(
        "phases of graphmill's step",
        ["phase", "ms", "share", "ms, bf16"],
        [[n, f"{phases[n].median * 1e3:.1f}", f"{share[n]:.1%}", f"{phases16[n].median * 1e3:.1f}"] for n in phases],
    )
    return {
        "rounds": len(rounds.seconds["graphmill"]),
        "foreign_cores": rounds.foreign_cores,
        "contenders": {
            n: {"seconds": rounds.spread(n), "ratio_to_graphmill": rounds.ratio(n, "graphmill")} for n in rounds.seconds
        },
        "gflop": gflop,
        "gflop_left_out": left_out,
        "gflops_achieved": achieved,
        "gflops_performed": performed,
        "pipelined": overlapped,
        "matrix_rates_gflops": rates,
        "phases_s": phases,
        "phases_share": share,
        "phases_bf16_s": phases16,
        "peak_mib": memory,
    }


def phases_of(ours: Ours) -> dict[str, Spread]:
    """Seconds of each phase of the steps that are timed."""
    return {name: Spread.of(values[(WARMUP + 1) * CALLS - 1 :: CALLS]) for name, values in ours.phases.items()}


if __name__ == "__main__":
    main()
