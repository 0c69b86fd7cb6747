"""Do the GPU's kernels, run on the CPU by their shim, sample what the native sampler samples? All edges, each option.

    python benchmarks/shim_equality.py [--edges 1e9] [--cases NAME …] [--order 0]

Each case is a graph and a way to sample it. Batches are sampled by both until the cases together have the edges that
are asked for, most of them uniform; every array of every batch is compared. Exit status 1 where one differs. The table
says how many edges a second of CPU time each side sampled, on one thread, relabelled and with positions: this machine's
figures, not a GPU's.
`--order`: the blocks' order, 0 ascending, 1 descending, else shuffled by that number.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from cubins.shim import set_order, shim_library
from graphmill import _native
from graphmill.device.kernels import DeviceKernels, shim_kernels
from graphmill.device.sampling import DeviceSampler
from graphmill.device.structures import DeviceColumns
from graphmill.device.typed import TypedDeviceSampler, TypedRule, TypedSeedsOnDevice

ARRAYS = ("node_ids", "indptr", "indices", "edge_ids")
COUNTS = ("num_nodes_per_hop", "num_edges_per_hop", "num_rows_per_hop")


@dataclass(frozen=True, slots=True)
class Size:
    """Of the graphs and batches of a comparison."""

    num_nodes: int
    num_seeds: int


SMALL = Size(3_000, 40)  # in tests
LARGE = Size(100_000, 4096)


@dataclass(frozen=True, slots=True)
class Turn:
    """One batch, sampled by both."""

    num_edges: int
    shim_s: float
    native_s: float
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A way to sample; `turns` yields batches without end.

    `share`: of the edges that are asked for. The native sampler itself draws a few million edges a second by weight or
    with subgraphs apart; and fibers, by which the shim runs lanes that meet, are a hundred times slower than a loop.
    """

    name: str
    turns: Callable[[DeviceKernels, Size], Iterator[Turn]]
    share: float = 1


def in_edges(size: Size, rng: np.random.Generator, num_sources: int | None = None) -> tuple[NDArray, NDArray]:
    """indptr and sources of a graph with empty rows, rows around a word of bits, and hubs."""
    degrees = rng.integers(0, 40, size.num_nodes)
    degrees[rng.random(size.num_nodes) < 0.1] = 0
    around = rng.random(size.num_nodes) < 0.05
    degrees[around] = rng.integers(60, 70, around.sum())
    degrees[rng.integers(0, size.num_nodes, 20)] = rng.integers(300, 2000, 20)
    indptr = np.concatenate([[0], degrees.cumsum()]).astype(np.int64)
    return indptr, rng.integers(0, num_sources or size.num_nodes, indptr[-1], dtype=np.int32)


def plain(fanouts: Sequence[int], *, resample: bool, wide: bool = False) -> Callable[..., Iterator[Turn]]:
    """Uniform, without types; `wide`: ids of 8 bytes."""

    def turns(kernels: DeviceKernels, size: Size) -> Iterator[Turn]:
        rng = np.random.default_rng(len(fanouts))
        indptr, sources = in_edges(size, rng)
        sources = sources.astype(np.int64) if wide else sources
        native = _native.NeighborSampler(indptr, sources)
        columns = DeviceColumns(
            indptr=torch.from_numpy(indptr), indices=torch.from_numpy(sources), num_sources=size.num_nodes
        )
        device = DeviceSampler(kernels, columns, resample=resample)
        while True:
            seeds = rng.choice(size.num_nodes, size.num_seeds, replace=False)
            key = int(rng.integers(0, 2**64, dtype=np.uint64))
            began = time.process_time()
            ours = device.sample(torch.from_numpy(seeds), fanouts, key).trimmed()
            between = time.process_time()
            theirs = native.sample(seeds, fanouts, key, resample=resample, with_edge_ids=True)
            ended = time.process_time()
            differ = [name for name in ARRAYS if not np.array_equal(getattr(ours, name), getattr(theirs, name))]
            differ += [name for name in COUNTS if list(getattr(ours, name)) != list(getattr(theirs, name))]
            yield Turn(len(theirs.indices), between - began, ended - between, tuple(differ))

    return turns


@dataclass(frozen=True, slots=True)
class Typed:
    """Options of the sampler over types."""

    fanouts: tuple[int, ...]
    types: int = 1
    weighted: bool = False
    timed: bool = False
    replace: bool = False
    last: bool = False
    disjoint: bool = False
    induced: bool = False

    def relations(self, size: Size, rng: np.random.Generator) -> list[dict]:
        """Two types: edges within and between them, in both widths and in another order than the caller's."""
        ends = [(0, 0)] if self.types == 1 else [(0, 0), (1, 0), (0, 1), (1, 0)]
        found = []
        for number, (source, target) in enumerate(ends):
            indptr, sources = in_edges(size, rng)
            one = {"source": source, "target": target, "indptr": indptr, "indices": sources}
            one["order"] = rng.permutation(len(sources)) if number % 2 else None
            one["indices"] = sources.astype(np.int64) if number % 2 else sources
            one["times"] = one["weights"] = None
            if self.timed:
                times = rng.integers(0, 1000, len(sources))
                rows = np.repeat(np.arange(size.num_nodes), np.diff(indptr))
                one["times"] = times[np.lexsort((times, rows))]
            if self.weighted:
                weights = rng.random(len(sources)) ** 8  # a few hold nearly all
                one["weights"] = np.empty_like(weights)
                _native.accumulate_weights(indptr, weights, one["weights"])
            found.append(one)
        return found

    def turns(self, kernels: DeviceKernels, size: Size) -> Iterator[Turn]:
        """Batches without end."""
        rng = np.random.default_rng(hash_of(self))
        relations = self.relations(size, rng)
        counts = [size.num_nodes] * self.types
        native = _native.TypedNeighborSampler(counts, [native_relation(one) for one in relations])
        device = TypedDeviceSampler(kernels, counts, [device_columns(one, size.num_nodes) for one in relations])
        hops = len(self.fanouts)
        fanouts = [list(self.fanouts)] + [[max(each - 1, -1) for each in self.fanouts]] * (len(relations) - 1)
        num_seeds = size.num_seeds // (4 if self.types > 1 else 1)
        while True:
            seeds = [rng.integers(0, size.num_nodes, num_seeds) for _ in counts]  # some stand twice
            times = [rng.integers(0, 1000, num_seeds) if self.timed else None for _ in counts]
            key = int(rng.integers(0, 2**64, dtype=np.uint64))
            rule = TypedRule(fanouts, key, self.replace, self.last, self.disjoint, self.induced)
            given = [
                TypedSeedsOnDevice(type_, torch.from_numpy(nodes), None if at is None else torch.from_numpy(at))
                for type_, (nodes, at) in enumerate(zip(seeds, times, strict=True))
            ]
            began = time.process_time()
            ours = device.sample(given, rule)
            between = time.process_time()
            theirs = native.sample(
                list(range(self.types)), seeds, times, fanouts, hops, key, replace=self.replace, last=self.last,
                disjoint=self.disjoint, induced=self.induced,
            )  # fmt: skip
            ended = time.process_time()
            num_edges = sum(len(theirs.edge_ids(number)) for number in range(len(relations)))
            differ = self.differences(ours, theirs, len(relations))
            yield Turn(num_edges, between - began, ended - between, tuple(differ))

    def differences(self, ours, theirs, num_relations: int) -> list[str]:
        """Names of arrays that differ."""
        found = []
        for type_ in range(self.types):
            pairs = {"node_ids": (ours.node_ids[type_], theirs.node_ids(type_))}
            pairs["nodes per hop"] = (ours.num_nodes_per_hop[type_], theirs.num_nodes_per_hop(type_))
            if self.disjoint:
                pairs["subgraphs"] = (ours.subgraphs[type_], theirs.subgraphs(type_))
            found += [f"{name} of type {type_}" for name, pair in pairs.items() if not np.array_equal(*pair)]
        for number in range(num_relations):
            pairs = {
                "edge_index": (ours.edge_index[number].reshape(-1), theirs.edge_index(number)),
                "edge_ids": (ours.edge_ids[number], theirs.edge_ids(number)),
                "edges per hop": (ours.num_edges_per_hop[number], theirs.num_edges_per_hop(number)),
            }
            found += [f"{name} of relation {number}" for name, pair in pairs.items() if not np.array_equal(*pair)]
        return found


def hash_of(value: object) -> int:
    """The same in every process."""
    return sum(byte * (place + 1) for place, byte in enumerate(repr(value).encode()))


def native_relation(one: dict) -> "_native.Relation":
    """For the native sampler."""
    return _native.Relation(
        one["source"], one["target"], one["indptr"], one["indices"], one["order"], one["weights"], one["times"]
    )


def device_columns(one: dict, num_sources: int) -> DeviceColumns:
    """For the device's."""
    order, weights, times = (
        None if one[name] is None else torch.from_numpy(one[name]) for name in ("order", "weights", "times")
    )
    return DeviceColumns(
        indptr=torch.from_numpy(one["indptr"]),
        indices=torch.from_numpy(one["indices"]),
        num_sources=num_sources,
        weights=weights,
        times=times,
        order=order,
        source_type=one["source"],
        target_type=one["target"],
    )


def _cases() -> list[Case]:
    cases = [
        Case("uniform", plain([25, 10], resample=False), 60),
        Case("uniform, three hops", plain([15, 10, 5], resample=False, wide=True), 60),
        Case("resampled", plain([10, 5, 3], resample=True), 60),
        Case("resampled, ids of 8 bytes", plain([25, 10], resample=True, wide=True), 60),
        Case("all edges", plain([-1, 2], resample=False), 60),
        Case("many of a row", plain([100, 65], resample=False), 0.2),
    ]
    usual = (10, 5)
    for name, options in {
        "replace": Typed(usual, replace=True),
        "weights": Typed(usual, weighted=True),
        "weights, many of a row": Typed((40, 3), weighted=True),
        "weights, replace": Typed(usual, weighted=True, replace=True),
        "disjoint": Typed(usual, disjoint=True),
        "disjoint, replace": Typed(usual, disjoint=True, replace=True),
        "induced": Typed(usual, induced=True),
        "disjoint, induced": Typed(usual, disjoint=True, induced=True),
        "times": Typed(usual, disjoint=True, timed=True),
        "times, latest": Typed(usual, disjoint=True, timed=True, last=True),
        "times, replace": Typed(usual, disjoint=True, timed=True, replace=True),
        "times, weights": Typed(usual, disjoint=True, timed=True, weighted=True),
        "times, weights, latest, replace": Typed(
            usual, disjoint=True, timed=True, weighted=True, last=True, replace=True
        ),
        "times, all edges": Typed((-1, 2), disjoint=True, timed=True),
        "times, induced": Typed(usual, disjoint=True, timed=True, induced=True),
    }.items():
        cases += [Case(name, options.turns), Case(f"two types: {name}", replace(options, types=2).turns)]
    return [*cases, Case("two types", Typed((10, 5), types=2).turns)]


CASES = _cases()


@dataclass(slots=True)
class Outcome:
    """What a case came to."""

    num_edges: int = 0
    batches: int = 0
    shim_s: float = 0
    native_s: float = 0


def compare(case: Case, kernels: DeviceKernels, size: Size, num_edges: float) -> Outcome:
    """Sample batches until there are so many edges.

    Raises:
        AssertionError: a batch differs; the message says in what.
    """
    outcome = Outcome()
    for turn in case.turns(kernels, size):
        if turn.differences:
            raise AssertionError(f"{case.name}, batch {outcome.batches}: {', '.join(turn.differences)} differ")
        outcome.batches += 1
        outcome.num_edges += turn.num_edges
        outcome.shim_s += turn.shim_s
        outcome.native_s += turn.native_s
        if outcome.num_edges >= num_edges:
            break
    return outcome


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Compare the shim's batches with the native sampler's.")
    parser.add_argument("--edges", type=float, default=1e9)
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--order", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    _native.keep_freed_memory()
    library = shim_library()
    set_order(library, asked.order)
    kernels = shim_kernels(library)
    cases = [case for case in CASES if not asked.cases or case.name in asked.cases]
    shares = sum(case.share for case in cases)
    total = Outcome()
    for case in cases:
        try:
            outcome = compare(case, kernels, LARGE, asked.edges * case.share / shares)
        except AssertionError as error:
            print(error)
            return 1
        for name in ("num_edges", "batches", "shim_s", "native_s"):
            setattr(total, name, getattr(total, name) + getattr(outcome, name))
        rates = [outcome.num_edges / seconds / 1e6 for seconds in (outcome.shim_s, outcome.native_s)]
        print(
            f"{case.name:45} {outcome.num_edges:13,} edges  {rates[0]:6.1f} M/s by the shim  {rates[1]:6.1f} native",
            flush=True,
        )
    print(json.dumps({"edges": total.num_edges, "batches": total.batches, "differences": 0,
                      "shim_edges_per_s": round(total.num_edges / total.shim_s),
                      "native_edges_per_s": round(total.num_edges / total.native_s)}))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
