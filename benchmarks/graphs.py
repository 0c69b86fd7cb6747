"""The graphs that benchmarks run on: synthetic ones from fixed seeds, kept under data/benchmarks, and those of files.

sbm, rmat and ba are those of the comparisons in the literature: symmetric, no self-loops, no multi-edges.
`reddit_shaped` has the node and edge count, feature width and class count of PyG's Reddit, with heavy-tailed degrees.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness import CACHE, console


@dataclass(frozen=True, slots=True)
class Graph:
    name: str
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)


def load(name: str) -> Graph:
    """One of tiny, sbm, rmat, ba, reddit_shaped; made when it is first asked for."""
    path = CACHE / f"{name}.npz"
    if not path.exists():
        console.print(f"[dim]making the graph {name} …[/dim]")
        CACHE.mkdir(parents=True, exist_ok=True)
        indptr, indices = _MAKERS[name](np.random.default_rng(7))
        np.savez(path, indptr=indptr, indices=indices)
    with np.load(path) as stored:
        return Graph(name, stored["indptr"], stored["indices"])


def load_real(folder: Path, name: str) -> Graph:
    """`edge_index` of FOLDER/*/NAME.npz: its edges, neither mirrored nor made distinct."""
    [path] = folder.glob(f"*/{name}.npz")
    with np.load(path, allow_pickle=False) as stored:
        source, target = stored["edge_index"]
    num_nodes = int(max(source.max(), target.max())) + 1
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(target, minlength=num_nodes), out=indptr[1:])
    return Graph(name, indptr, source[np.argsort(target, kind="stable")].astype(np.int32))


Csc = tuple[NDArray[np.int64], NDArray[np.int32]]


def _symmetric(num_nodes: int, num_edges: int, source: NDArray[np.int64], target: NDArray[np.int64]) -> Csc:
    """Both directions of the first num_edges / 2 distinct pairs, as in-neighbours."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys = (low * num_nodes + high)[low != high]
    first = np.sort(np.unique(keys, return_index=True)[1])[: num_edges // 2]
    low, high = keys[first] // num_nodes, keys[first] % num_nodes
    edges = np.sort(np.concatenate([low * num_nodes + high, high * num_nodes + low]))
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(edges // num_nodes, minlength=num_nodes), out=indptr[1:])
    return indptr, (edges % num_nodes).astype(np.int32)


def _sbm(rng: np.random.Generator) -> Csc:
    """Stochastic block model: 100,000 nodes, 40 communities, 2 M directed edges, 80 % of them inside a community."""
    num_nodes, num_blocks, drawn = 100_000, 40, 1_050_000
    members = rng.permutation(num_nodes).reshape(num_blocks, -1)
    block = rng.integers(num_blocks, size=drawn)
    source = members[block, rng.integers(members.shape[1], size=drawn)]
    inside = members[block, rng.integers(members.shape[1], size=drawn)]
    target = np.where(rng.random(drawn) < 0.8, inside, rng.integers(num_nodes, size=drawn))
    return _symmetric(num_nodes, 2_000_000, source, target)


def _tiny(rng: np.random.Generator) -> Csc:
    """2,000 nodes, 20,000 directed edges, ends chosen evenly: for tests of the benchmarks."""
    source, target = rng.integers(2_000, size=(2, 15_000))
    return _symmetric(2_000, 20_000, source, target)


def _rmat(rng: np.random.Generator) -> Csc:
    """R-MAT (Chakrabarti et al. 2004) with .57/.19/.19/.05: 2^20 nodes, 20 M directed edges."""
    scale, drawn = 20, 13_000_000
    source = np.zeros(drawn, dtype=np.int64)
    target = np.zeros(drawn, dtype=np.int64)
    for _ in range(scale):
        quadrant = np.searchsorted([0.57, 0.76, 0.95], rng.random(drawn), side="right")
        source = source * 2 + quadrant // 2
        target = target * 2 + quadrant % 2
    shuffled = rng.permutation(1 << scale)
    return _symmetric(1 << scale, 20_000_000, shuffled[source], shuffled[target])


def _ba(rng: np.random.Generator) -> Csc:
    """Barabási-Albert, m = 10: 1 M nodes, about 20 M directed edges.

    An end of a random earlier edge is a node chosen by degree.
    """
    num_nodes, m = 1_000_000, 10
    source = np.repeat(np.arange(m, num_nodes), m)
    ends = np.empty(2 * len(source), dtype=np.int64)
    ends[0::2] = source
    draws = rng.random(len(source))
    for begin in range(m, num_nodes, 20_000):  # nodes that arrive together see the graph as it was before them
        rows = slice((begin - m) * m, min(begin + 20_000 - m, num_nodes - m) * m)
        earlier = 2 * rows.start
        chosen = (draws[rows] * earlier).astype(np.int64) if earlier else (draws[rows] * m).astype(np.int64)
        ends[2 * rows.start + 1 : 2 * rows.stop : 2] = ends[chosen] if earlier else chosen
    return _symmetric(num_nodes, 20_000_000, source, ends[1::2])


def _reddit_shaped(rng: np.random.Generator) -> Csc:
    """232,965 nodes, 114,615,892 edges, log-normal degrees; ends chosen by degree."""
    num_nodes, num_edges = 232_965, 114_615_892
    degrees = np.clip(rng.lognormal(5.5, 1.2, num_nodes), 1, 20_000)
    degrees = np.maximum(1, (degrees * (num_edges / degrees.sum())).astype(np.int64))
    degrees[: num_edges - degrees.sum()] += 1
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(degrees, out=indptr[1:])
    by_degree = np.repeat(np.arange(num_nodes, dtype=np.int32), degrees // 10 + 1)
    return indptr, by_degree[rng.integers(len(by_degree), size=int(indptr[-1]))]


_MAKERS: dict[str, Callable[[np.random.Generator], Csc]] = {
    "tiny": _tiny,
    "sbm": _sbm,
    "rmat": _rmat,
    "ba": _ba,
    "reddit_shaped": _reddit_shaped,
}
