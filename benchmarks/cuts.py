"""Cuts of LDG, KaMinPar and METIS beside a plain LDG that balances nodes only, on real graphs.

    python benchmarks/cuts.py --data FOLDER [--graphs wordnet31 …] [--edges FILE …] [--parts 2 4 8] [--seeds 0 1 2]
        [--without metis …]

FOLDER has `.npz` files with `edge_index` in `nodes/` and `graphs/`; FILE is a list of edges, two ids a line, such as
SNAP's. `auto` takes KaMinPar, or LDG where memory is short. All three balance nodes, edges and training nodes (60 % of
the nodes, drawn). The plain LDG (Stanton and Kliot 2012) streams twice in the order of ids, with as many nodes in each
part. The ratio is of the cut to the plain one's, mean over seeds, in parentheses the largest: a mean above 1.3 is
marked. Prints only.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.topology import edge_keys, topology_from_keys, undirected_keys
from graphmill.partition.balance import amounts_of, even_out, graph_of, limits_of, single_weight
from graphmill.partition.methods.own import ldg
from graphmill.partition.methods.packages import partition_with
from graphmill.partition.problem import Ids, PartitionProblem, Parts, nothing_assigned
from graphmill.partition.quality import crossing
from harness import print_table

Method = Literal["ldg", "kaminpar", "metis"]
METHODS: tuple[Method, ...] = get_args(Method)
DEAR = 1.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--graphs", nargs="+", help="of FOLDER; all, if none is named")
    parser.add_argument("--edges", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--parts", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--without", nargs="+", choices=METHODS, default=[])
    options = parser.parse_args()
    methods = [each for each in METHODS if each not in options.without]
    for name, edges in graphs(options.data, options.graphs, options.edges):
        rows = [row(edges, num_parts, options.seeds, methods) for num_parts in options.parts]
        print_table(name, ["parts", "random", "plain LDG", *methods, *(f"{each} ÷ plain" for each in methods)], rows)


def graphs(data: Path | None, wanted: list[str] | None, files: list[Path]) -> Iterator[tuple[str, Ids]]:
    for path in sorted(data.glob("*/*.npz")) if data else []:
        if wanted and path.stem not in wanted:
            continue
        with np.load(path, allow_pickle=False) as known:
            if "edge_index" in known.files:
                yield path.stem, known["edge_index"].astype(np.int64)
    for path in files:
        pairs = np.loadtxt(path, dtype=np.int64, comments=("#", "%"), usecols=(0, 1))
        yield path.stem, np.unique(pairs.T, return_inverse=True)[1].reshape(2, -1)


def row(edges: Ids, num_parts: int, seeds: list[int], methods: list[Method]) -> list[str]:
    asked = [problem(edges, num_parts, seed) for seed in seeds]
    of_plain = [cut(each, plain(each)) for each in asked]
    found = {method: [cut(each, parts(each, method)) for each in asked] for method in methods}
    ratios = {method: np.array(cuts) / of_plain for method, cuts in found.items()}
    return [
        str(num_parts),
        f"{1 - 1 / num_parts:.3f}",
        f"{np.mean(of_plain):.3f}",
        *(f"{np.mean(cuts):.3f} ({max(cuts):.3f})" for cuts in found.values()),
        *(f"{each.mean():.2f} ({each.max():.2f})" + " !" * int(each.mean() > DEAR) for each in ratios.values()),
    ]


def problem(edges: Ids, num_parts: int, seed: int) -> PartitionProblem:
    num_nodes = int(edges.max()) + 1
    given = edge_keys(edges, num_nodes)
    both = undirected_keys(given, num_nodes)
    graph = topology_from_keys(given if both is None else both, num_nodes)
    in_edges: Ids = np.bincount(edges[1], minlength=num_nodes)
    is_train: NDArray[np.bool_] = np.random.default_rng(0).random(num_nodes) < 0.6
    amounts = amounts_of("all", in_edges, is_train)
    return PartitionProblem(
        graph=graph,
        amounts=amounts,
        limits=limits_of(amounts, num_parts),
        weights=single_weight("all", in_edges, graph, is_train),
        train=np.flatnonzero(is_train),
        num_parts=num_parts,
        rng_seed=seed,
    )


def parts(asked: PartitionProblem, method: Method) -> Parts:
    """As `graphmill partition` finds them."""
    match method:
        case "ldg":
            found = ldg(asked)
        case "kaminpar" | "metis":
            with tempfile.TemporaryDirectory() as scratch:
                found = partition_with(method, asked, Path(scratch)).parts
    even_out(asked, found, refine=True)
    return found


def plain(asked: PartitionProblem) -> Parts:
    found, ones = nothing_assigned(asked.num_nodes), np.ones((asked.num_nodes, 1), np.uint32)
    first = int(np.random.default_rng(asked.rng_seed).integers(asked.num_nodes))
    graph = graph_of(asked, found, np.array([-(-asked.num_nodes // asked.num_parts)]), ones)
    for _ in range(2):
        graph.stream(np.roll(np.arange(asked.num_nodes), -first), 1)
    return np.maximum(found, 0)


def cut(asked: PartitionProblem, found: Parts) -> float:
    crossed, between, _ = crossing(asked.graph, found, asked.num_parts)
    return crossed / between


if __name__ == "__main__":
    main()
