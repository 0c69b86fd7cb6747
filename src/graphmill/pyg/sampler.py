"""PyG's `NeighborSampler` on the native one: what `NodeLoader`, `LinkLoader` and others' loaders ask for subgraphs."""

from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch_geometric import sampler as pyg
from torch_geometric.sampler import (
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from graphmill import _native
from graphmill.base.arguments import one_of
from graphmill.base.errors import InvalidInputError
from graphmill.pyg.edges import sampled_edges
from graphmill.pyg.graph import EdgeType, NodeType, read_graph
from graphmill.sample.columns import Ints
from graphmill.sample.negatives import Ends, KnownEdges, Negatives

Output: TypeAlias = Any  # a SamplerOutput or HeteroSamplerOutput; PyG is not typed


class NeighborSampler(pyg.NeighborSampler):  # type: ignore[misc]  # PyG is not typed
    """PyG's neighbour sampler without pyg-lib: all its options, and draws that are keyed.

    What is sampled for a key is the same for any number of threads. A loader of graphmill gives the key of the batch;
    in a loader of PyG's it comes from torch's generator, so `torch.manual_seed` repeats it. Edges of weight 0 are never
    drawn; weights may be joined with times. A neighbour is never later than its seed.
    """

    def __init__(
        self,
        data: Any,  # noqa: ANN401  # a PyG Data, HeteroData, or (FeatureStore, GraphStore)
        num_neighbors: Any,  # noqa: ANN401  # fan-outs, by type of edges perhaps, or a NumNeighbors
        subgraph_type: SubgraphType | str = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,  # found out, at no cost
        share_memory: bool = False,  # workers are forked, or read the graph again
        directed: bool = True,
        sample_direction: Literal["forward", "backward"] = "forward",
    ) -> None:
        """Take PyG's arguments. `is_sorted` and `share_memory` are ignored: sorted edges are recognised, not moved."""
        one_of("sample_direction", sample_direction, ("forward", "backward"))
        one_of("temporal_strategy", temporal_strategy, ("uniform", "last"))
        if sample_direction == "backward" and time_attr is not None:
            raise NotImplementedError("Temporal Sampling not yet supported for backward sampling")  # as PyG says it
        self.sample_direction = sample_direction
        self.graph = read_graph(
            data, time_attr=time_attr, weight_attr=weight_attr, backward=sample_direction == "backward"
        )
        self.data_type = self.graph.kind
        self.node_types, self.edge_types = self.graph.node_types, self.graph.edge_types
        self.replace, self.temporal_strategy = replace, temporal_strategy
        if not isinstance(subgraph_type, SubgraphType):
            one_of("subgraph_type", subgraph_type, tuple(each.value for each in SubgraphType))
        self.subgraph_type = SubgraphType(subgraph_type) if directed else SubgraphType.induced
        self.disjoint = disjoint
        self.num_neighbors = num_neighbors
        self.keep_orig_edges = False
        self._known: dict[EdgeType, KnownEdges] = {}
        self._negatives: tuple[Any, Negatives] | None = None  # of what, and they

    @property
    def num_nodes(self) -> int | dict[NodeType, int]:
        """Number of nodes of the graph, by type where it has types."""
        return self.graph.num_nodes if self.is_hetero else self.graph.num_nodes[None]

    @property
    def num_neighbors(self) -> NumNeighbors:
        """Fan-outs, as PyG has them."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, given: Any) -> None:  # noqa: ANN401  # as the constructor takes them
        if not isinstance(given, NumNeighbors | list | tuple | dict):
            raise InvalidInputError(f"num_neighbors is {given!r:.80}", fix="give fan-outs, hop by hop: [25, 10]")
        self._num_neighbors = given if isinstance(given, NumNeighbors) else NumNeighbors(given)
        self._fanouts = _checked_fanouts(self._num_neighbors, self.edge_types, self.is_hetero)

    @property
    def is_hetero(self) -> bool:
        """Whether nodes and edges have types."""
        return self.edge_types != [None]

    @property
    def is_temporal(self) -> bool:
        """Whether nodes or edges have times."""
        return bool(self.graph.node_time or self.graph.edge_time)

    @property
    def edge_permutation(self) -> None:
        """Return None: edges that come out have the caller's numbers."""
        return None

    def sample_from_nodes(self, inputs: NodeSamplerInput, *, key: int | None = None) -> Output:
        """The subgraph around some nodes.

        Args:
            inputs: the seeds, and their times.
            key: of the draws; None: one of torch's generator.
        """
        key = _fresh_key() if key is None else key
        times = None if inputs.time is None else {inputs.input_type: inputs.time}
        out = self.sample({inputs.input_type: inputs.node}, times, key)
        out.metadata = (inputs.input_id, inputs.time)
        return self._finished(out)

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None, *, key: int | None = None
    ) -> Output:
        """The subgraph around the ends of some edges, and of pairs that are not edges.

        Args:
            inputs: the edges to learn from, their labels and times.
            neg_sampling: PyG's: how many negatives, as pairs or as targets of each source; None: none.
            key: of the draws; None: one of torch's generator.
        """
        key = _fresh_key() if key is None else key
        return self._finished(sampled_edges(self, inputs, NegativeSampling.cast(neg_sampling), key))

    def sample(self, seeds: dict[NodeType, Tensor], times: dict[NodeType, Tensor] | None, key: int) -> Output:
        """What PyG calls `_sample`, for a key: seeds, and perhaps their times, by type."""
        numbers = [self.node_types.index(name) for name in seeds]
        hood = self.graph.native.sample(
            numbers,
            [_ids(nodes) for nodes in seeds.values()],
            [self._times(name, nodes, times) for name, nodes in seeds.items()],
            self._fanouts,
            self.num_neighbors.num_hops,
            key,
            replace=self.replace,
            last=self.temporal_strategy == "last",
            disjoint=self.disjoint,
            induced=self.subgraph_type == SubgraphType.induced,
            num_threads=torch.get_num_threads(),
        )
        return self._typed(hood) if self.is_hetero else self._untyped(hood)

    def known_edges(self, edge_type: EdgeType) -> KnownEdges:
        """The edges of a type, which no negative may be."""
        if edge_type not in self._known:
            columns = self.graph.known.get(edge_type, self.graph.columns[edge_type])
            if columns.ascends and self.sample_direction == "forward":
                num_sources = self.graph.num_nodes[self.graph.ends(edge_type)[0]]
                self._known[edge_type] = KnownEdges(columns, num_sources)
            else:
                self.know(edge_type, torch.empty(2, 0, dtype=torch.long), None)
        return self._known[edge_type]

    def negatives(self, edge_type: EdgeType, wanted: NegativeSampling) -> Negatives:
        """What `wanted` asks for, with weights added up; kept for the next batch."""
        weights = (wanted.src_weight, wanted.dst_weight)
        of = (edge_type, [(id(each), each._version) for each in weights if each is not None])
        if self._negatives is None or self._negatives[0] != of:
            num_nodes, node_time = self.graph.num_nodes, self.graph.node_time
            ends = zip(self.graph.ends(edge_type), weights, strict=True)
            sources, targets = (Ends.of(num_nodes[end], weight, node_time.get(end)) for end, weight in ends)
            self._negatives = (of, Negatives(self.known_edges(edge_type), sources, targets))
        return self._negatives[1]

    def know(self, edge_type: EdgeType, edges: Tensor, times: Tensor | None) -> None:
        """Take `edges` [2, num_edges] for edges as well, since `times`: what a loader learns from is not a negative."""
        columns = self.graph.known.get(edge_type, self.graph.columns[edge_type])
        ends = columns.ends()[:: 1 if self.sample_direction == "forward" else -1]
        since = None
        if times is not None or columns.times is not None:
            since = np.concatenate([_since(columns.times, columns.num_edges), _since(times, edges.shape[1])])
        both = np.concatenate([ends, edges.detach().cpu().numpy().astype(np.int64)], axis=1)
        source, target = (self.graph.num_nodes[end] for end in self.graph.ends(edge_type))
        self._known[edge_type] = KnownEdges.of(both, since, source, target)
        self._negatives = None

    def _sample(self, seed: Tensor | dict[NodeType, Tensor], seed_time: Any = None, **_: Any) -> Output:  # noqa: ANN401
        # PyG's own name, which its BidirectionalNeighborSampler calls.
        seeds = seed if isinstance(seed, dict) else {None: seed}
        times = seed_time if isinstance(seed_time, dict) or seed_time is None else {None: seed_time}
        return self.sample(seeds, times, _fresh_key())

    def _finished(self, out: Output) -> Output:
        if self.subgraph_type == SubgraphType.bidirectional:
            return out.to_bidirectional(keep_orig_edges=self.keep_orig_edges)
        return out

    def _times(self, name: NodeType, nodes: Tensor, times: dict[NodeType, Tensor] | None) -> Any:  # noqa: ANN401
        if not self.is_temporal:
            return None
        if times is not None:
            return _ids(times[name])
        if name in self.graph.node_time:
            return self.graph.node_time[name][_ids(nodes)]
        raise InvalidInputError(
            "the edges have times, and the seeds have none",
            fix="give the time of each seed: input_time (of nodes), edge_label_time (of links)",
        )

    def _untyped(self, hood: _native.TypedSubgraph) -> SamplerOutput:
        row, col = self._ends(hood, 0)
        per_hop = hood.num_edges_per_hop(0)
        return SamplerOutput(
            node=torch.from_numpy(hood.node_ids(0)),
            row=row,
            col=col,
            edge=torch.from_numpy(hood.edge_ids(0)),
            batch=torch.from_numpy(hood.subgraphs(0)) if self.disjoint else None,
            num_sampled_nodes=hood.num_nodes_per_hop(0) if per_hop else None,
            num_sampled_edges=per_hop or None,
        )

    def _typed(self, hood: _native.TypedSubgraph) -> HeteroSamplerOutput:
        nodes, edges = list(enumerate(self.node_types)), list(enumerate(self.edge_types))
        ends = {name: self._ends(hood, number) for number, name in edges}
        has_hops = self.subgraph_type != SubgraphType.induced
        return HeteroSamplerOutput(
            node={name: torch.from_numpy(hood.node_ids(number)) for number, name in nodes},
            row={name: each[0] for name, each in ends.items()},
            col={name: each[1] for name, each in ends.items()},
            edge={name: torch.from_numpy(hood.edge_ids(number)) for number, name in edges},
            batch={name: torch.from_numpy(hood.subgraphs(number)) for number, name in nodes} if self.disjoint else None,
            num_sampled_nodes={name: hood.num_nodes_per_hop(number) for number, name in nodes} if has_hops else None,
            num_sampled_edges={name: hood.num_edges_per_hop(number) for number, name in edges} if has_hops else None,
        )

    def _ends(self, hood: _native.TypedSubgraph, number: int) -> tuple[Tensor, Tensor]:
        sources, targets = torch.from_numpy(hood.edge_index(number).reshape(2, -1))  # one tensor, which a batch takes
        return (targets, sources) if self.sample_direction == "backward" else (sources, targets)


class BidirectionalNeighborSampler(pyg.neighbor_sampler.BidirectionalNeighborSampler):  # type: ignore[misc]
    """PyG's sampler of in- and out-edges, hop by hop, on two native ones."""

    def __init__(self, data: Any, num_neighbors: Any, *options: Any, **named: Any) -> None:  # noqa: ANN401
        """Take the arguments of PyG's `BidirectionalNeighborSampler`."""
        if isinstance(getattr(num_neighbors, "values", num_neighbors), dict):
            raise RuntimeError("BidirectionalNeighborSampler does not yet support edge delimited sampling.")  # noqa: TRY004  # PyG's
        forward, backward = ({**named, "sample_direction": way} for way in ("forward", "backward"))
        self.forward_sampler = NeighborSampler(data, num_neighbors, *options, **forward)
        self.backward_sampler = NeighborSampler(data, num_neighbors, *options, **backward)
        self.num_neighbors = num_neighbors
        self.subgraph_type = self.forward_sampler.subgraph_type
        self.keep_orig_edges = False


def _fresh_key() -> int:
    return int(torch.randint(2**63 - 1, ()))


def _ids(given: Tensor) -> Any:  # noqa: ANN401  # an array of int64
    return np.ascontiguousarray(given.detach().cpu().numpy(), dtype=np.int64)


def _since(times: Any, count: int) -> Ints:  # noqa: ANN401  # an array, a tensor, or None: for ever
    if times is None:
        return np.full(count, np.iinfo(np.int64).min)
    return np.asarray(times, dtype=np.int64)


def _checked_fanouts(given: NumNeighbors, edge_types: list[EdgeType], is_hetero: bool) -> list[list[int]]:
    """Return fan-outs by relation, hop by hop. 2.5 and -2 would be taken for 2 and all."""
    by_type = given.get_values(edge_types) if is_hetero else {None: given.get_values()}
    if not isinstance(by_type, dict) or any(isinstance(each, dict) for each in by_type.values()):
        raise InvalidInputError("num_neighbors is by type, and edges have none", fix="num_neighbors=[25, 10]")
    for fanouts in by_type.values():
        try:
            is_right = isinstance(fanouts, list | tuple) and all(
                int(each) == each and -1 <= each < 2**31 for each in fanouts
            )
        except (TypeError, ValueError, OverflowError, RuntimeError):
            is_right = False
        if not is_right:
            raise InvalidInputError(
                f"num_neighbors is {fanouts!r:.80}, and it holds how many neighbours to draw, hop by hop",
                fix="give whole numbers, -1 for all neighbours: num_neighbors=[25, 10]",
            )
    return [[int(each) for each in by_type[edge_type]] for edge_type in edge_types]
