"""How long each family of native kernels takes under each instruction set, beside the floor; prints, writes no result.

    make bench-native
    python benchmarks/native_kernels.py [--isa generic avx2] [--only products attention] [--threads 1] [--seconds 0.2]

A floor is the time for the bytes that must move at the rate of torch's copy, or for the operations at the rate of its
product, whichever is longer; both rates are measured just before, with as many threads. A draw and a search have no
floor of that kind, but a rate. Of many calls the shortest counts. A process has one instruction set, so each is
measured in a process of its own, one after the other: the load of others on the machine is in the numbers.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from graphmill import _native
from graphmill.assignment import solve
from graphmill.nn.attention import group_edges
from graphmill.nn.attention.operator import Scores, attention
from graphmill.tasks.traffic.nn.dcgru import DcgruCell, RandomWalks
from harness import print_table

ISAS = ("generic", "avx2", "avx512")
WITHOUT_FLOOR = "none"


@dataclass(frozen=True)
class Measured:
    """One kernel on one problem."""

    family: str
    name: str
    call: Callable[[], object]
    num_bytes: float = 0  # that must move, read and written
    operations: float = 0  # a multiply-add is two
    items: float = 0  # where neither is the bound: of what the rate is
    unit: str = ""


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def draws(threads: int) -> Iterator[Measured]:
    """Half of each row's in-neighbours, by Floyd's algorithm."""
    rng = np.random.default_rng(0)
    degree, num_nodes, fanout = 60, 20_000, 30
    indptr = np.arange(num_nodes + 1, dtype=np.int64) * degree
    sampler = _native.NeighborSampler(indptr, rng.integers(0, num_nodes, num_nodes * degree).astype(np.int32))
    nodes = rng.permutation(num_nodes)[:10_000]
    yield Measured(
        "draws", "pick", lambda: sampler.pick(nodes, fanout, 1, num_threads=threads), items=len(nodes) * fanout,
        unit="picks",
    )  # fmt: skip


def rows(threads: int) -> Iterator[Measured]:
    num_rows, taken, width = 200_000, 50_000, 128
    rng = np.random.default_rng(0)
    ids = rng.integers(0, num_rows, taken)
    for dtype in (torch.float32, torch.float16):
        table, out = normal(num_rows, width).to(dtype), torch.empty(taken, width)
        moved = taken * width * (table.element_size() + 4)
        yield Measured(
            "rows", f"gather {dtype}".replace("torch.", ""),
            partial(_native.gather_rows, table, ids, out, threads), num_bytes=moved,
        )  # fmt: skip
    indptr = np.arange(taken // 10 + 1, dtype=np.int64) * 10
    columns, x, means = rng.integers(0, taken, taken).astype(np.int32), normal(taken, width), torch.empty(5_000, width)
    moved = (taken + taken // 10) * width * 4
    yield Measured(
        "rows", "mean of 10", lambda: _native.segment_mean(x, indptr, columns, means, threads), num_bytes=moved
    )
    keys, dropped = np.arange(taken, dtype=np.uint64), torch.empty_like(x)
    yield Measured(
        "rows", "relu, dropout", lambda: _native.relu_dropout(x, keys, 0.5, dropped, threads),
        num_bytes=2 * x.numel() * 4,
    )  # fmt: skip


def products(threads: int) -> Iterator[Measured]:
    m, k, n = 8_192, 256, 256
    a, w, bias, out, grad = normal(m, k), normal(n, k), normal(n), torch.empty(m, n), normal(m, n)
    dw, db = torch.empty(n, k), torch.empty(n)
    yield Measured(
        "products", "linear, relu", lambda: _native.linear(a, w, bias, out, True, None, 0.0, threads),
        operations=2 * m * k * n,
    )  # fmt: skip
    yield Measured(
        "products", "its gradient", lambda: _native.linear_backward(grad, None, 0.0, a, dw, db, threads),
        operations=2 * m * k * n,
    )  # fmt: skip


def sparse(threads: int) -> Iterator[Measured]:
    """Twenty entries a row, as bags of words have."""
    num_rows, num_columns, n, entries = 10_000, 1_500, 256, 20
    rng = np.random.default_rng(0)
    indptr = np.arange(num_rows + 1, dtype=np.int64) * entries
    indices = np.sort(rng.integers(0, num_columns, (num_rows, entries)), axis=1).astype(np.int32).ravel()
    values, w, out = normal(len(indices)), normal(num_columns, n), torch.empty(num_rows, n)
    operations, moved = 2 * len(indices) * n, (num_rows + num_columns) * n * 4
    yield Measured(
        "sparse", "multiply", lambda: _native.sparse_multiply(indptr, indices, values, w, out, threads),
        num_bytes=moved, operations=operations,
    )  # fmt: skip


def recurrent(threads: int) -> Iterator[Measured]:
    """A step of DCRNN on 207 sensors."""
    nodes, samples, units, steps = 207, 64, 64, 2
    rng = np.random.default_rng(0)
    edges = rng.integers(0, nodes, (2, nodes * 8)).astype(np.int32)
    walks = RandomWalks.of(edges, rng.random(nodes * 8, np.float32), nodes, steps)
    cell = DcgruCell(channels=units, units=units, num_slots=walks.num_slots)
    cell.reset_parameters(torch.Generator().manual_seed(0))
    x, h, at = normal(samples, nodes, units), normal(samples, nodes, units, seed=1), cell.at(walks)
    operations = 2 * samples * nodes * walks.num_slots * 2 * units * 3 * units

    def step() -> None:
        with torch.no_grad():
            at(x, h)

    yield Measured("recurrent", "step of a cell", step, operations=operations)


def attentions(_: int) -> Iterator[Measured]:
    """GATv2, forward and with its gradient; as many threads as torch has."""
    num_nodes, num_edges, heads, channels = 10_000, 100_000, 4, 32
    rng = np.random.default_rng(0)
    groups = group_edges(torch.from_numpy(rng.integers(0, num_nodes, (2, num_edges))), num_nodes, num_nodes, 0)
    x = normal(num_nodes, heads * channels).requires_grad_()
    target, att = normal(num_nodes, heads * channels, seed=1).requires_grad_(), normal(heads * channels)
    grad = normal(num_nodes, heads * channels, seed=2)
    scores = Scores(target, None, att, 0.2)
    moved, operations = (num_edges + 2 * num_nodes) * heads * channels * 4, 6 * num_edges * heads * channels

    def forward() -> Tensor:
        return attention(x, heads, scores, None, None, groups)[0]

    yield Measured("attention", "forward", forward, num_bytes=moved, operations=operations)
    yield Measured(
        "attention", "and backward", lambda: torch.autograd.grad(forward(), (x, target), grad), num_bytes=4 * moved,
        operations=20 / 6 * operations,
    )  # fmt: skip


def ranking(threads: int) -> Iterator[Measured]:
    num_queries, num_rows, width = 512, 20_000, 128
    queries, table = normal(num_queries, width), normal(num_rows, width, seed=1)
    answers = np.arange(num_queries, dtype=np.int64)
    counts = {name: np.empty(num_queries, np.int64) for name in ("above", "tied", "candidates")}

    def count() -> int:
        return _native.count_above(
            queries=queries, answers=answers, table=table, starts=None, ends=None, ids=None, **counts,
            num_threads=threads,
        )  # fmt: skip

    yield Measured("ranking", "count above", count, operations=2 * num_queries * num_rows * width)


def assignment(_: int) -> Iterator[Measured]:
    """Dense problems of floats; one thread."""
    n = 1_000
    for dtype in (np.float64, np.float32):
        costs = np.random.default_rng(0).random((n, n)).astype(dtype)
        yield Measured(
            "assignment", f"solve {np.dtype(dtype)}", partial(solve, costs, check=False), items=n * n,
            unit="costs",
        )  # fmt: skip


def assignment_features(threads: int) -> Iterator[Measured]:
    batch, n = 16, 400
    costs, v = normal(batch, n, n).abs(), torch.zeros(batch, n)
    values, columns, of_columns = np.empty((batch, n, 4), np.float32), np.empty((batch, n, 4), np.int32), None
    epsilon, u, sums = torch.full((batch,), 0.1), torch.zeros(batch, n), torch.empty(batch, n)
    moved = costs.numel() * 4
    yield Measured(
        "assignment features", "nearest 4",
        lambda: _native.nearest_costs(costs, v, values, columns, of_columns, None, threads), num_bytes=moved,
    )  # fmt: skip
    yield Measured(
        "assignment features", "soften",
        lambda: _native.soften_costs(costs, v, epsilon, u.zero_(), sums, None, threads), num_bytes=moved,
    )  # fmt: skip


FAMILIES = {
    "draws": draws,
    "rows": rows,
    "products": products,
    "sparse": sparse,
    "recurrent": recurrent,
    "attention": attentions,
    "ranking": ranking,
    "assignment": assignment,
    "assignment_features": assignment_features,
}


def shortest(call: Callable[[], object], seconds: float) -> float:
    """Of at least three calls, and as many as fit."""
    call()
    best, calls, end = float("inf"), 0, time.perf_counter() + seconds
    while calls < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        best, calls = min(best, time.perf_counter() - begin), calls + 1
    return best


@dataclass(frozen=True)
class Machine:
    """What this processor can do at most, by torch."""

    bytes_per_s: float
    operations_per_s: float

    @classmethod
    def now(cls, seconds: float) -> "Machine":
        big, to = torch.ones(1 << 25), torch.empty(1 << 25)
        a, b = normal(1_024, 1_024), normal(1_024, 1_024)
        copied, multiplied = shortest(lambda: to.copy_(big), seconds), shortest(lambda: torch.mm(a, b), seconds)
        return cls(2 * big.numel() * 4 / copied, 2 * 1_024**3 / multiplied)

    def floor_s(self, work: Measured) -> float:
        return max(work.num_bytes / self.bytes_per_s, work.operations / self.operations_per_s)


def measure(only: list[str], threads: int, seconds: float) -> list[list[str]]:
    """Rows of the table, of this process's instruction set."""
    torch.set_num_threads(threads)
    machine = Machine.now(seconds)
    rate = f"{machine.bytes_per_s / 1e9:.1f} GB/s, {machine.operations_per_s / 1e9:.0f} GFLOP/s"
    table = [[f"{_native.isa()}: torch's copy and product", "", rate, "", ""]]
    for name in only:
        for work in FAMILIES[name](threads):
            took, floor = shortest(work.call, seconds), machine.floor_s(work)
            if work.items:
                speed = f"{work.items / took / 1e6:.1f} M {work.unit}/s"
            elif work.operations / machine.operations_per_s == floor:
                speed = f"{work.operations / took / 1e9:.1f} GFLOP/s"
            else:
                speed = f"{work.num_bytes / took / 1e9:.1f} GB/s"
            of_floor = [f"{floor * 1e3:.3g}", f"{took / floor:.2f}"] if floor else [WITHOUT_FLOOR] * 2
            table.append([f"  {work.family}: {work.name}", f"{took * 1e3:.3g}", speed, *of_floor])
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", nargs="+", choices=ISAS, default=ISAS)
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each kernel, after one call to warm up")
    parser.add_argument("--here", action="store_true", help="as JSON, with the instruction set of this process")
    options = parser.parse_args()
    if options.here:
        sys.stdout.write(json.dumps(measure(options.only, options.threads, options.seconds)))
        return 0
    words = ["--here", "--threads", str(options.threads), "--seconds", str(options.seconds), "--only", *options.only]
    table: list[list[str]] = []
    for isa in options.isa:
        environ = {**os.environ, "GRAPHMILL_ISA": isa}
        done = subprocess.run(
            [sys.executable, __file__, *words], env=environ, text=True, capture_output=True, check=False
        )
        if "that this processor runs" in done.stderr:
            table.append([f"{isa}: not on this processor", *[""] * 4])
        elif done.returncode:
            sys.stderr.write(done.stderr)
            return done.returncode
        else:
            table += json.loads(done.stdout)
    columns = ["kernel", "ms", "speed", "floor, ms", "times the floor"]
    print_table(f"{options.threads} thread{'s' * (options.threads > 1)}", columns, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
