"""A typed graph whose classes are told by the types of its edges, and by nothing else."""

import numpy as np

from graphmill.graph.features import dense, sparse
from graphmill.graph.typed import RawTypes, Relation
from graphmill.tasks.node_classification.data.labelled import LabelledGraph

RELATIONS = (Relation("paper", "cites", "paper"), Relation("author", "writes", "paper"), Relation("*", "near", "*"))


def relation_problem(name: str, *, num_nodes: int = 210, seed: int = 0, is_sparse: bool = True) -> LabelledGraph:
    """Two in-edges of each node by the relation that is its class; the first third are papers, the rest authors.

    Some edges are there twice, as two types. Every third node is of the training split.
    """
    rng = np.random.default_rng(seed)
    papers = num_nodes // 3
    labels = np.where(np.arange(num_nodes) < papers, rng.integers(0, 3, num_nodes), 2)
    targets = np.repeat(np.arange(num_nodes), 2)
    relation = labels[targets]
    ends = np.array([[0, papers], [papers, num_nodes], [0, num_nodes]])[relation]  # where edges of each type come from
    sources = rng.integers(ends[:, 0], ends[:, 1])
    edges, types = np.stack([sources, targets]), relation
    again = rng.integers(0, len(types), 20)
    edges, types = np.concatenate([edges, edges[:, again]], axis=1), np.concatenate([types, np.full(20, 2)])
    x = rng.standard_normal((num_nodes, 6)).astype(np.float32)
    x[:, 0] = 1  # the mean over neighbours of a type tells that there are some
    if is_sparse:
        columns = np.tile(np.arange(3), num_nodes)
        features = sparse(np.arange(0, 3 * num_nodes + 1, 3), columns, x[:, :3].ravel(), 6)
    else:
        features = dense(x)
    node_type = (np.arange(num_nodes) >= papers).astype(np.int8)
    return LabelledGraph(
        edge_index=edges,
        features=features,
        labels=labels,
        split=(np.arange(num_nodes) % 3).astype(np.int8),
        name=name,
        source="random",
        synthetic=True,
        types=RawTypes(node_type=node_type, node_names=("paper", "author"), edge_type=types, relations=RELATIONS),
    )
