"""PyG's loaders and ours: whole batches, with rows of features, as `for batch in loader` yields them.

    python benchmarks/loaders.py [--cells homogeneous …] [--workers 0 2] [--rounds 15] [--threads 2] [--no-steps]

A random graph of 200,000 nodes and 4 million edges, 100 floats a node; batches of 1,024 seeds (512 links), fan-outs
[15, 10]. Cells: homogeneous, types (3 relations between 2 types), weighted, temporal, disjoint, links (each with a
negative). Both loaders take turns in one process. A turn is 12 batches, of which the last 6 are timed: what workers and
threads made ahead is used up by then. Before a turn the workers of both come to rest: whoever makes a batch in a
quarter of the time would else share the cores with what the other still makes ahead. Also the construction of each.

Then batches of the homogeneous graph with a training step after each: two layers of GraphSAGE on what each layer needs
of the batch (`trim_to_layer`), with PyG's loader and layers, with our loader and PyG's layers, and with ours of both.

PyG's needs pyg-lib (README.md here says where from): without it only ours is timed, and no ratio is printed.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

import torch
from torch_geometric import loader as pyg
from torch_geometric.data import Data, HeteroData

import graphmill
from harness import Spread, interleave, print_table, write_result
from layers import OURS, PEER, Step
from origin import Origin

NODES, EDGES, FEATURES = 200_000, 4_000_000, 100
FANOUTS: Final = [15, 10]
BATCHES_A_TURN: Final = 6
HALVES: Final = 2  # of a turn; the second is timed
SETTLE_S: Final = 0.6  # four batches of the slowest cell by two workers, and more
CELLS: Final = ("homogeneous", "types", "weighted", "temporal", "disjoint", "links")
Make = Callable[[Any, int], Any]  # (module of loaders, workers) → a loader


def homogeneous() -> Data:
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES), generator=draw)
    return Data(
        x=torch.rand(NODES, FEATURES, generator=draw),
        y=torch.randint(0, 10, (NODES,), generator=draw),
        edge_index=edges,
        weight=torch.rand(EDGES, generator=draw) + 0.1,
        time=torch.randint(0, 1000, (EDGES,), generator=draw),
    )


def of_types() -> HeteroData:
    draw = torch.Generator().manual_seed(0)
    made = HeteroData()
    for name in ("paper", "author"):
        made[name].x = torch.rand(NODES // 2, FEATURES, generator=draw)
    for kind in (("author", "writes", "paper"), ("paper", "by", "author"), ("paper", "cites", "paper")):
        made[kind].edge_index = torch.randint(0, NODES // 2, (2, EDGES // 3), generator=draw)
    return made


def cells() -> dict[str, Make]:
    """By name: how a loader is made of a module, PyG's or ours."""
    data, types = homogeneous(), of_types()
    plain = Data(x=data.x, y=data.y, edge_index=data.edge_index)
    times = torch.full((NODES,), 800)
    nodes = {"batch_size": 1024, "shuffle": True}

    def neighbours(of: Any, **options: Any) -> Make:  # a Data or HeteroData
        return lambda module, workers: module.NeighborLoader(of, FANOUTS, num_workers=workers, **nodes, **options)

    return {
        "homogeneous": neighbours(plain),
        "types": neighbours(types, input_nodes="paper"),
        "weighted": neighbours(data, weight_attr="weight"),
        "temporal": neighbours(data, time_attr="time", input_time=times),
        "disjoint": neighbours(plain, disjoint=True),
        "links": lambda module, workers: module.LinkNeighborLoader(
            plain, FANOUTS, batch_size=512, shuffle=True, neg_sampling="binary", num_workers=workers
        ),
    }


def forever(loader: Any) -> Iterator[Any]:  # one of either
    while True:
        yield from loader


def turn(loader: Any, use: Callable[[Any], None] = lambda _: None) -> Callable[[int], None]:
    """Half a turn: the first begins once nothing is made ahead any more, neither by this loader nor by the other."""
    batches = forever(loader)

    def run(number: int) -> None:
        if number % HALVES == 0:
            time.sleep(SETTLE_S if loader.num_workers else 0.0)
        for _ in range(BATCHES_A_TURN):
            use(next(batches))

    return run


def beside_steps(make: Make, workers: int, rounds: int) -> dict[str, Any]:
    """Batches of each loader, with a step after each: seconds of both together."""
    sides = {"PyG": (pyg, PEER), "our loader": (graphmill, PEER), "ours": (graphmill, OURS)}
    contenders = {
        side: turn(make(module, workers), Step(layers, "SAGEConv", [], trims=True, num_features=FEATURES).learn)
        for side, (module, layers) in sides.items()
    }
    timed = interleave(contenders, rounds=rounds, warmup=1, calls=HALVES)
    ratios = {side: timed.ratio("PyG", side) for side in ("our loader", "ours")}
    ms = {side: 1e3 * timed.spread(side).median / BATCHES_A_TURN for side in sides}
    print_table(
        f"a batch and a step, {workers} workers",
        ["loader and layers", "ms", "PyG ÷ this"],
        [[side, f"{ms[side]:.3g}", str(ratios.get(side, ""))] for side in sides],
    )
    return {
        "workers": workers,
        "ms_a_batch": ms,
        "ratios": {side: asdict(ratio) for side, ratio in ratios.items()},
        "foreign_cores": timed.foreign_cores,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cells", nargs="+", default=["homogeneous", "types", "weighted", "temporal", "disjoint", "links"]
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-steps", action="store_true", help="leave out batches beside a training step")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    origin = Origin.now()
    has_peer = importlib.util.find_spec("pyg_lib") is not None
    makes, rows, found = cells(), [], []
    _ = graphmill.NeighborLoader, graphmill.LinkNeighborLoader  # imported now, not while a loader is made
    for name in options.cells:
        for workers in options.workers:
            built, contenders = {}, {}
            for who, module in (("graphmill", graphmill), *([("PyG", pyg)] if has_peer else [])):
                begin = time.perf_counter()
                loader = makes[name](module, workers)
                built[who] = time.perf_counter() - begin
                contenders[who] = turn(loader)
            rounds = interleave(contenders, rounds=options.rounds, warmup=1, calls=HALVES)
            ratio = rounds.ratio("PyG", "graphmill") if has_peer else None
            each = {who: Spread.of([s / BATCHES_A_TURN for s in rounds.seconds[who]]) for who in contenders}
            both = ("graphmill", "PyG")
            ms = [f"{1e3 * each[who].median:.3g}" if who in each else "" for who in both]
            made = [f"{built[who]:.2f}" if who in built else "" for who in both]
            rows.append([name, str(workers), *ms, str(ratio or ""), *made])
            found.append(
                {
                    "cell": name,
                    "workers": workers,
                    "seconds_a_batch": {who: asdict(spread) for who, spread in each.items()},
                    "ratio": None if ratio is None else asdict(ratio),
                    "construction_s": built,
                    "foreign_cores": rounds.foreign_cores,
                }
            )
    columns = ["cell", "workers", "ms, ours", "ms, PyG", "PyG ÷ ours", "made, s", "PyG's, s"]
    print_table("batches of loaders, with rows of features", columns, rows)
    if has_peer:
        steps = (
            [] if options.no_steps else [beside_steps(makes["homogeneous"], w, options.rounds) for w in options.workers]
        )
        write_result("loaders", {"threads": options.threads, "cells": found, "beside_a_step": steps}, origin)


if __name__ == "__main__":
    main()
