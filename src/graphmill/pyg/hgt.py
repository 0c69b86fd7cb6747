"""Sampling as the Heterogeneous Graph Transformer does (arXiv 2003.01332): nodes of each type, layer by layer."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, NodeSamplerInput

from graphmill import _native
from graphmill.base.errors import InvalidInputError
from graphmill.graph.keys import keys_below
from graphmill.pyg.graph import NodeType, read_graph
from graphmill.sample.columns import Ints

_MOST_NEIGHBOURS: Final = 520  # of a node whose neighbours gain weight; of more, so many are drawn, as in PyG
_OF_BUDGET: Final = 2**34  # coordinates of the draws, apart from those of neighbours
_OF_CHOICE: Final = 2**35


class HGTSampler(BaseSampler):  # type: ignore[misc]  # PyG is not typed
    """PyG's `HGTSampler` without torch-sparse: keyed, and with all edges between the nodes of a batch."""

    def __init__(
        self,
        data: Any,  # noqa: ANN401  # a PyG HeteroData
        num_samples: list[int] | dict[NodeType, list[int]],
        is_sorted: bool = False,  # found out, at no cost
        share_memory: bool = False,  # workers are forked, or read the graph again
    ) -> None:
        """Take the arguments of PyG's `HGTSampler`.

        Args:
            data: the graph, with types.
            num_samples: nodes of each type, layer by layer.
            is_sorted: not needed: sorted edges are recognised.
            share_memory: not needed.
        """
        self.graph = read_graph(data)
        if self.graph.edge_types == [None]:
            raise NotImplementedError("HGTSampler does not support a data object without types: give a HeteroData")
        self.node_types, self.edge_types = self.graph.node_types, self.graph.edge_types
        given = num_samples if isinstance(num_samples, Mapping) else dict.fromkeys(self.node_types, num_samples)
        self.num_samples = {name: _counts(given.get(name), name) for name in self.node_types}
        self.num_hops = max(len(each) for each in self.num_samples.values())

    @property
    def edge_permutation(self) -> None:
        """Return None: edges that come out have the caller's numbers."""
        return None

    def sample_from_nodes(self, inputs: NodeSamplerInput, *, key: int | None = None) -> HeteroSamplerOutput:
        """The subgraph around some nodes.

        Args:
            inputs: the seeds.
            key: of the draws; None: one of torch's generator.
        """
        key = int(torch.randint(2**63 - 1, ())) if key is None else key
        nodes = {name: np.empty(0, np.int64) for name in self.node_types}
        nodes[inputs.input_type] = np.asarray(inputs.node.numpy(), dtype=np.int64)
        budgets = {name: _Budget() for name in self.node_types}
        found = nodes
        for layer in range(self.num_hops):
            self._share_out(found, budgets, _native.subkey(key, _OF_BUDGET + layer))
            found = {}
            for number, name in enumerate(self.node_types):
                counts = self.num_samples[name]
                draws = _native.subkey(_native.subkey(key, _OF_CHOICE + layer), number)
                found[name] = budgets[name].choose(counts[layer] if layer < len(counts) else 0, nodes[name], draws)
            nodes = {name: np.concatenate([known, found[name]]) for name, known in nodes.items()}
        return self._with_edges(nodes, inputs)

    def sample_from_edges(self, *_: Any, **__: Any) -> HeteroSamplerOutput:  # noqa: ANN401  # as PyG's
        """PyG's samples none either."""
        raise NotImplementedError("HGTSampler samples around nodes")

    def _share_out(self, new_nodes: Mapping[NodeType, Ints], budgets: Mapping[NodeType, "_Budget"], key: int) -> None:
        """Give the neighbours of every node found a weight of 1, in equal shares, by relation."""
        hood = self._hood(new_nodes, [[_MOST_NEIGHBOURS]] * len(self.edge_types), key)
        for number, edge_type in enumerate(self.edge_types):
            sources, targets = hood.edge_index(number).reshape(2, -1)
            degrees = np.bincount(targets) if len(targets) else np.empty(0, np.int64)
            ids = hood.node_ids(self.node_types.index(edge_type[0]))[sources]
            budgets[edge_type[0]].add(ids, 1 / degrees[targets])

    def _hood(self, nodes: Mapping[NodeType, Ints], fanouts: list[list[int]], key: int) -> _native.TypedSubgraph:
        """Subgraph of one hop from `nodes`; with empty fan-outs, of `nodes` alone with all edges between them."""
        return self.graph.native.sample(
            list(range(len(self.node_types))),
            [nodes[name] for name in self.node_types],
            [None] * len(self.node_types),
            fanouts,
            len(fanouts[0]) if fanouts else 0,
            key,
            induced=not any(fanouts),
            num_threads=torch.get_num_threads(),
        )

    def _with_edges(self, nodes: Mapping[NodeType, Ints], inputs: NodeSamplerInput) -> HeteroSamplerOutput:
        hood = self._hood(nodes, [[]] * len(self.edge_types), 0)
        numbers = list(enumerate(self.edge_types))
        ends = {name: torch.from_numpy(hood.edge_index(number).reshape(2, -1)) for number, name in numbers}
        return HeteroSamplerOutput(
            node={name: torch.from_numpy(each) for name, each in nodes.items()},
            row={name: each[0] for name, each in ends.items()},
            col={name: each[1] for name, each in ends.items()},
            edge={name: torch.from_numpy(hood.edge_ids(number)) for number, name in numbers},
            batch=None,
            metadata=(inputs.input_id, inputs.time),
        )


class _Budget:
    """Nodes of one type that could be taken next, each with the weight that its neighbours gave it."""

    def __init__(self) -> None:
        self._ids: list[Ints] = []
        self._weights: list[NDArray[np.float64]] = []

    def add(self, ids: Ints, weights: NDArray[np.float64]) -> None:
        """Weights [n] of nodes, one of which may stand several times."""
        self._ids.append(ids)
        self._weights.append(weights)

    def choose(self, count: int, taken: Ints, key: int) -> Ints:
        """Choose at most `count` nodes, none of `taken`, by the square of their weight and without replacement.

        The nodes of the smallest exponential variates (Efraimidis and Spirakis 2006).
        """
        if count == 0 or not self._ids:
            return np.empty(0, np.int64)
        ids, places = np.unique(np.concatenate(self._ids), return_inverse=True)
        weights = np.bincount(places, weights=np.concatenate(self._weights), minlength=len(ids))
        is_left = ~np.isin(ids, taken)
        ids, weights = ids[is_left], weights[is_left]
        if len(ids) <= count:
            return ids
        uniform = (keys_below(key, ids) >> np.uint64(11)).astype(np.float64) + 0.5
        variates = -np.log(uniform * 2.0**-53) / weights**2
        return ids[np.argsort(variates, kind="stable")[:count]]


def _counts(given: Any, name: NodeType) -> list[int]:  # noqa: ANN401  # whatever a caller gives
    try:
        counts = [int(each) for each in given]
        is_right = all(count == each and count >= 0 for count, each in zip(counts, given, strict=True))
    except (TypeError, ValueError, OverflowError, RuntimeError):
        is_right = False
    if not is_right:
        raise InvalidInputError(
            f"num_samples of {name!r} is {given!r:.80}, and it holds how many nodes to take, layer by layer",
            fix="give whole numbers: num_samples=[512, 512], or such a list for each type",
        )
    return counts
