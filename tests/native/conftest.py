"""Graphs with every kind of row: empty, short, longer than a word of bits, longer than the sampler scans."""

from typing import NamedTuple

import numpy as np
import pytest


class Csc(NamedTuple):
    """In-neighbours of each node; rows hold no neighbour twice."""

    indptr: np.ndarray
    indices: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    def row(self, node: int) -> np.ndarray:
        return self.indices[self.indptr[node] : self.indptr[node + 1]]


def random_graph(degrees: np.ndarray, seed: int) -> Csc:
    """Each node gets so many distinct in-neighbours, drawn uniformly."""
    rng = np.random.default_rng(seed)
    rows = [np.sort(rng.choice(len(degrees), size=degree, replace=False)) for degree in degrees]
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return Csc(indptr, np.concatenate(rows).astype(np.int32))


@pytest.fixture(scope="session")
def make_graph():
    return random_graph


@pytest.fixture(scope="session")
def graph() -> Csc:
    """1,200 nodes: isolated ones, rows around 64 in-edges, and hubs of up to 1,000."""
    rng = np.random.default_rng(7)
    degrees = rng.integers(0, 12, 1200)
    degrees[:40] = rng.integers(60, 70, 40)
    degrees[40:60] = rng.integers(200, 1001, 20)
    degrees[60:90] = 0
    return random_graph(rng.permutation(degrees), seed=8)


@pytest.fixture(scope="session")
def large_graph() -> Csc:
    """20,000 nodes and about 300,000 edges: enough rows for several threads."""
    return random_graph(np.random.default_rng(1).geometric(1 / 15, 20_000), seed=2)
