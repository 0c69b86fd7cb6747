"""Small graphs in parts, symmetric and not, and how to draw them."""

import numpy as np
from hypothesis import strategies as st

from graphmill.graph.topology import Topology, edge_keys, topology_from_keys, undirected_keys


def topology_of(num_nodes: int, edges, *, symmetric: bool) -> Topology:
    """Of edges (source, target); in both directions if it is to be symmetric."""
    pairs = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T
    keys = edge_keys(pairs, num_nodes)
    if symmetric and (both := undirected_keys(keys, num_nodes)) is not None:
        keys = both
    return topology_from_keys(keys, num_nodes)


@st.composite
def graphs(draw, max_nodes: int = 24):
    """A topology, the part of every node (of three), and some training nodes, ascending."""
    num_nodes = draw(st.integers(2, max_nodes))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.sets(st.tuples(node, node), min_size=1, max_size=4 * num_nodes))
    topology = topology_of(num_nodes, edges, symmetric=draw(st.booleans()))
    part_of = np.array(draw(st.lists(st.integers(0, 2), min_size=num_nodes, max_size=num_nodes)))
    seeds = np.array(sorted(draw(st.sets(node, min_size=1, max_size=num_nodes))), dtype=np.int64)
    return topology, part_of, seeds
