"""Rows of features that cross between parts in an epoch: partitioner × cache policy, counted and not timed.

    python benchmarks/hot_caches.py [--graphs debian-packages wordnet31 rmat-1m] [--parts 4] [--ratio 0.1]
        [--methods random hotness ldg metis kaminpar] [--fanouts 15 10 5] [--window 16] [--epochs N]
        --dataset-root FOLDER

Each graph, prepared in FOLDER, is partitioned by `graphmill partition` (a partition that is there is taken as it is).
Then the keyed schedule of a run is replayed, of one rank for each part: every batch is sampled, and its nodes are
counted by where their rows come from. So the figures are exact, for this seed, and depend on no machine. Seeds go to
the rank that owns them; of the default partitioner they are also shared out equally. A static cache holds --ratio of
all nodes' rows; filling it, once a run, is told apart. `oracle` holds the rows that these very epochs read most: no
static cache does better. `lookahead` fetches for --window batches at once and keeps as many rows between windows as the
others hold; `lookahead_all` keeps all that the next window needs, and no others; `lookahead_oracle` knows all windows
that are to come, and keeps those whose next use is nearest (Belady 1966): no plan of these windows that keeps as many
rows fetches fewer. The floor: each window's rows once, whatever was held before; `once`: each row once in all epochs,
which is the least for any memory. The sweep has lookahead, of the default partitioner, with other windows and budgets
(1: all that is needed in sight); windows below --window look as many batches ahead as that one does.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entries import write_entries
from graphmill.graph.features import SparseFeatures
from graphmill.graph.sampled import StorageIds
from graphmill.partition.parts import PartedGraph
from graphmill.sample.hot.lookahead import Lookahead
from graphmill.sample.hot.rank import STATIC_POLICIES, Draws, HotBudget, rank_all, ranking
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.schedule import Assign, KeyedOrder, SeedSchedule, contiguous_shares, equal_batch, in_windows
from graphmill.spec.calendar import EqualBatches
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from harness import console, print_table
from origin import Origin
from replay import (
    Moved,
    Needs,
    floor_of_windows,
    needs_of_rank,
    steps_of,
    with_held,
    with_lookahead,
)

METHODS = ("random", "hotness", "ldg", "metis", "kaminpar")
DEFAULT_METHOD, DEFAULT_POLICY = "kaminpar", "vip"
BATCH_SIZE = {"debian-packages": 512, "wordnet31": 512, "rmat-1m": 1024}  # seeds of a rank
NUM_EPOCHS = {"rmat-1m": 1}
SWEPT_WINDOWS, SWEPT_RATIOS = (1, 4, 16, 64), (0.1, 1.0)
SEED, OTHER_SEED = 0, 1  # of the run, and of the epochs that `presample` counts

Ids = NDArray[np.int64]
Counted = dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """A graph, and how it is trained on."""

    store: LabelledGraphStore
    num_parts: int
    fanouts: tuple[int, ...]
    batch_size: int
    num_epochs: int
    ratio: float
    window: int

    @property
    def num_nodes(self) -> int:
        return self.store.metadata.num_nodes

    @property
    def train(self) -> Ids:
        return self.store.nodes_in("train")

    @property
    def batches(self) -> EqualBatches:
        return EqualBatches(len(self.train), self.batch_size, self.num_parts)

    @property
    def row_bytes(self) -> int | Ids:
        """Of a row as it travels: of sparse ones its length, and 8 bytes a value."""
        features = self.store.features
        if isinstance(features, SparseFeatures):
            return 4 + 8 * np.diff(features.indptr)
        return int(features.num_features * features.x.dtype.itemsize)

    @property
    def num_rows(self) -> int:
        """That a part may hold of others."""
        return int(self.ratio * self.num_nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=list(BATCH_SIZE))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--ratio", type=float, default=0.1)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--window", type=int, default=16, help="batches that lookahead fetches for at once")
    parser.add_argument("--epochs", type=int, help="that are replayed; else 2, and 1 of rmat-1m, whose are long")
    parser.add_argument("--batch-size", type=int, help="else 512, and 1024 for rmat-1m")
    parser.add_argument("--dataset-root", type=Path, required=True)
    options = parser.parse_args()
    origin = Origin.now()  # of all graphs: the code is loaded by now
    for name in options.graphs:
        graph = Graph(
            store=LabelledGraphStore.open(options.dataset_root / name),
            num_parts=options.parts,
            fanouts=tuple(options.fanouts),
            batch_size=options.batch_size or BATCH_SIZE.get(name, 512),
            num_epochs=options.epochs or NUM_EPOCHS.get(name, 2),
            ratio=options.ratio,
            window=options.window,
        )
        result = measured(graph, {method: parts_of(name, method, options) for method in options.methods})
        tell(name, result)
        console.print(f"[dim]{write_entries('hot_caches', {name: (origin, result)})}[/dim]")


def parts_of(name: str, method: str, options: argparse.Namespace) -> NDArray[Any]:
    """The part of each node, by the command that users partition with."""
    words = ["partition", name, "--num-parts", str(options.parts), "--method", method]
    root = ["--dataset-root", str(options.dataset_root)]
    subprocess.run([sys.executable, "-m", "graphmill", *words, *root], check=True, stdout=subprocess.DEVNULL)
    path = options.dataset_root / "parts" / name / f"{options.parts}-{method}"
    book = PartedGraph.open(path, parts=(), whole_topology=False).book
    return book.part_of(StorageIds(book.storage.astype(np.int64))).astype(np.int8)


def measured(graph: Graph, parts: Mapping[str, NDArray[Any]]) -> Counted:
    """Of each partitioner and policy what moves, all parts and epochs together."""
    topology = graph.store.topology(undirected=True)
    rows_part = np.diff(topology.indptr)
    found: Counted = {
        "num_nodes": graph.num_nodes,
        "num_parts": graph.num_parts,
        "fanouts": graph.fanouts,
        "batch_size": graph.batch_size,
        "epochs": graph.num_epochs,
        "steps_per_epoch": graph.batches.num_steps,
        "ratio": graph.ratio,
        "window": graph.window,
        "default": [DEFAULT_METHOD, DEFAULT_POLICY],
        "methods": {},
        "cut": {},
    }
    for method, part_of in parts.items():
        found["cut"][method] = float(np.mean(np.repeat(part_of, rows_part) != part_of[topology.indices]))
        owners, swept = by_owner(part_of, graph.num_parts), method == DEFAULT_METHOD
        found["methods"][method] = counted(graph, part_of, owners, swept=swept)
    if DEFAULT_METHOD in parts:
        shared = partial(contiguous_shares, world_size=graph.num_parts)
        found["equal_seeds"] = counted(graph, parts[DEFAULT_METHOD], shared, equal=True)
    return found


def by_owner(part_of: NDArray[Any], num_parts: int) -> Assign:
    return lambda batch: tuple(batch[part_of[batch] == part] for part in range(num_parts))


def counted(
    graph: Graph, part_of: NDArray[Any], assign: Assign, *, equal: bool = False, swept: bool = False
) -> Counted:
    """What each policy makes of the batches of all parts."""
    topology, num_parts = graph.store.topology(undirected=True), graph.num_parts
    schedule = SeedSchedule(
        len(graph.train), KeyedOrder(graph.train, SEED), partial(equal_batch, batches=graph.batches), assign
    )
    sampler = WholeSampler(topology, graph.fanouts, SEED, 2, resample=True)
    steps = list(steps_of(range(graph.num_epochs), graph.batches.num_steps))
    needs = [needs_of_rank(sampler, schedule, part_of, rank=p, part=p, steps=steps) for p in range(num_parts)]
    own = [graph.train if equal else graph.train[part_of[graph.train] == part] for part in range(num_parts)]
    seeds = [graph.train] * num_parts if equal else own
    draws = Draws(fanouts=graph.fanouts, batch_size=graph.batch_size, rng_seed=OTHER_SEED, epochs=(0,))
    rankings: dict[str, Sequence[NDArray[Any]]] = {"none": [np.empty(0, np.int32)] * num_parts}
    rankings.update(rank_all(topology, part_of, seeds, draws, STATIC_POLICIES, num_threads=2).items())
    if not equal:
        rankings["oracle"] = [ranking(uses(one, graph.num_nodes), part_of, part) for part, one in enumerate(needs)]
    found: Counted = {
        **{policy: static(graph, needs, ranked) for policy, ranked in rankings.items()},
        "lookahead": ahead(graph, needs, graph.window, graph.num_rows),
        "lookahead_all": ahead(graph, needs, graph.window, None),
        "lookahead_oracle": ahead(graph, needs, graph.window, graph.num_rows, horizon=len(needs[0].remote)),
        "floor": {"fetched": sum(floor_of_windows(one, graph.window) for one in needs)},
        "once": {"fetched": sum(floor_of_windows(one, len(one.remote)) for one in needs)},
    }
    if swept:
        found["sweep"] = [
            {"window": window, "ratio": ratio, **ahead(graph, needs, window, max_rows)}
            for window in SWEPT_WINDOWS
            for ratio in SWEPT_RATIOS
            for max_rows in [None if ratio == 1 else int(ratio * graph.num_nodes)]
        ]
    return found


def uses(needs: Needs, num_nodes: int) -> Ids:
    """In how many of a rank's batches each row of another part is."""
    counts = np.zeros(num_nodes, dtype=np.int64)
    for rows in needs.remote:
        counts[rows] += 1
    return counts


def static(graph: Graph, needs: Sequence[Needs], ranked: Sequence[NDArray[Any]]) -> Counted:
    budget = HotBudget(ratio=graph.ratio)
    held = [budget.cut(ids, graph.num_nodes, 0) for ids in ranked]
    moved = [with_held(one, rows, graph.row_bytes, graph.num_nodes) for one, rows in zip(needs, held, strict=True)]
    return as_counts(moved) | {"filled": sum(map(len, held))}


def ahead(
    graph: Graph, needs: Sequence[Needs], window: int, max_rows: int | None, *, horizon: int | None = None
) -> Counted:
    """`horizon`: how many windows are seen; else as many as have the batches of one of the graph's."""
    planner = Lookahead(max_rows, horizon or max(1, graph.window // window))
    windows = in_windows(range(len(needs[0].remote)), window, first=window)
    return as_counts([with_lookahead(one, planner, [windows], graph.row_bytes) for one in needs]) | {"filled": 0}


def as_counts(moved: Sequence[Moved]) -> Counted:
    total = sum(moved, Moved())
    return asdict(total) | {"remote": total.remote, "fetched_by_part": [each.fetched for each in moved]}


def bars(result: Counted) -> Counted:
    """The figures that the bars are about: each as a ratio."""
    methods, (method, policy) = result["methods"], result["default"]
    found: Counted = {}
    if method not in methods:
        return found
    default = methods[method][policy]
    for name, of in {"random": ("random", "none"), "hotness": ("hotness", "hotness")}.items():
        if name in methods:
            base = methods[of[0]][of[1]]
            found[f"default_to_{'_'.join(of)}"] = default["fetched_bytes"] / base["fetched_bytes"]
    look = methods[method]["lookahead"]
    found["lookahead_to_floor"] = look["fetched"] / methods[method]["floor"]["fetched"]
    if "metis" in methods:
        none = methods["metis"]["none"]
        found["metis_none_to_lookahead_rows"] = none["fetched"] / look["fetched"]
        for least in ("lookahead_oracle", "once"):
            found[f"metis_none_to_{least}_rows"] = none["fetched"] / methods[method][least]["fetched"]
        found["metis_none_to_lookahead_all_rows"] = none["fetched"] / methods[method]["lookahead_all"]["fetched"]
        found["metis_none_to_lookahead_fetches"] = none["num_fetches"] / look["num_fetches"]
    return found


def tell(name: str, result: Counted) -> None:
    policies = [each for each in next(iter(result["methods"].values())) if each not in ("floor", "once", "sweep")]
    base = result["methods"].get("random", next(iter(result["methods"].values())))["none"]["fetched_bytes"]
    rows = [
        [method, f"{result['cut'][method]:.1%}", *(f"{found[p]['fetched_bytes'] / base:.3f}" for p in policies)]
        for method, found in result["methods"].items()
    ]
    if "equal_seeds" in result:
        found = result["equal_seeds"]
        shares = [f"{found[p]['fetched_bytes'] / base:.3f}" if p in found else "" for p in policies]
        rows.append([f"{DEFAULT_METHOD}, equal seeds", "", *shares])
    print_table(f"{name}: remote bytes ÷ those of random without a cache", ["", "cut", *policies], rows)
    console.print_json(data=bars(result))


if __name__ == "__main__":
    main()
