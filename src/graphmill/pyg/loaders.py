"""PyG's loaders with the native sampler, a seed and a state: only the import changes in a script."""

import inspect
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric import loader as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import infer_filter_per_worker
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

from graphmill.base.errors import InvalidInputError
from graphmill.base.names import did_you_mean
from graphmill.pyg.hgt import HGTSampler
from graphmill.pyg.keyed import OF_DATALOADER, KeyedLoader, checked_options
from graphmill.pyg.sampler import NeighborSampler

_OF_SAMPLER: Final = (
    "num_neighbors",
    "replace",
    "subgraph_type",
    "disjoint",
    "temporal_strategy",
    "time_attr",
    "weight_attr",
    "is_sorted",
    "directed",
)


class NeighborLoader(KeyedLoader, pyg.NeighborLoader):  # type: ignore[misc]  # PyG is not typed
    """PyG's `NeighborLoader` on the native sampler: all its options, a `seed`, and a state.

    Batches are a function of (seed, epoch, step): for any number of workers and threads, and after
    `load_state_dict()`. Every iteration over the loader is the next epoch.

    In place of `data` it takes a partitioned graph (`graphmill.open_partitioned`); see
    `graphmill.sample.loader.PartedNeighborLoader`.

    Example:
        >>> loader = NeighborLoader(data, [25, 10], input_nodes=data.train_mask, batch_size=1024, shuffle=True)
        ... for batch in loader:
        ...     out = model(batch.x, batch.edge_index)[: batch.batch_size]
    """

    def __new__(cls, data: Any = None, *given: Any, **named: Any) -> Any:  # noqa: ANN401  # without data: unpickled
        """Make a loader; for a graph in parts it is of another class, whose ranks make batches together."""
        from graphmill.sample.distributed.opened import PartitionedData

        if isinstance(data, PartitionedData):
            from graphmill.sample.loader import PartedNeighborLoader

            return PartedNeighborLoader(data, *given, **named)
        return super().__new__(cls)

    def __init__(
        self,
        data: Any,  # noqa: ANN401  # a PyG Data, HeteroData, or (FeatureStore, GraphStore)
        num_neighbors: Any,  # noqa: ANN401  # fan-outs, by type of edges perhaps
        input_nodes: Any = None,  # noqa: ANN401  # as PyG takes them
        input_time: Tensor | None = None,
        *options: Any,  # noqa: ANN401
        seed: int = 0,
        prefetch: int = 2,
        **named: Any,  # noqa: ANN401
    ) -> None:
        """Take the arguments of PyG's `NeighborLoader`, and more.

        Args:
            data: the graph.
            num_neighbors: neighbours of each node, hop by hop; -1: all.
            input_nodes: seeds, as mask, ids, or with their type.
            input_time: of each seed.
            options: as PyG's, in its order.
            seed: of the order of seeds and of all draws.
            prefetch: batches that a thread makes ahead where there are no workers; 0: none.
            named: as PyG's, and DataLoader's.
        """
        names = [name for name in inspect.signature(pyg.NeighborLoader).parameters if name != "kwargs"]
        of_pyg, of_dataloader = _taken(type(self).__name__, names, options, 4, named)
        if input_time is not None and of_pyg.get("time_attr") is None:
            raise InvalidInputError("input_time is given, and time_attr is not", fix="name the times: time_attr='time'")
        sampler = _sampler(data, num_neighbors, of_pyg)
        super().__init__(
            data,
            num_neighbors,
            checked_mask(input_nodes, sampler),
            input_time,
            time_attr=of_pyg.get("time_attr"),
            neighbor_sampler=sampler,
            filter_per_worker=_fills_in_workers(data, of_pyg),
            transform=of_pyg.get("transform"),
            transform_sampler_output=of_pyg.get("transform_sampler_output"),
            **of_dataloader,
        )
        self._begin(len(self.input_data.node), seed, prefetch, of_dataloader)
        _check_times(self.input_data)


class LinkNeighborLoader(KeyedLoader, pyg.LinkNeighborLoader):  # type: ignore[misc]  # PyG is not typed
    """PyG's `LinkNeighborLoader` on the native sampler: all its options, a `seed`, a state, and true negatives.

    No negative is an edge: neither of the graph nor of those that the loader learns from; of temporal graphs, of those
    until the link's time.

    Example:
        >>> loader = LinkNeighborLoader(data, [20, 10], neg_sampling="binary", batch_size=512, shuffle=True)
        ... for batch in loader:
        ...     h = model(batch.x, batch.edge_index)
        ...     score = (h[batch.edge_label_index[0]] * h[batch.edge_label_index[1]]).sum(-1)
    """

    def __init__(
        self,
        data: Any,  # noqa: ANN401  # a PyG Data, HeteroData, or (FeatureStore, GraphStore)
        num_neighbors: Any,  # noqa: ANN401  # fan-outs, by type of edges perhaps
        edge_label_index: Any = None,  # noqa: ANN401  # as PyG takes them
        edge_label: Tensor | None = None,
        edge_label_time: Tensor | None = None,
        *options: Any,  # noqa: ANN401
        seed: int = 0,
        prefetch: int = 2,
        **named: Any,  # noqa: ANN401
    ) -> None:
        """Take the arguments of PyG's `LinkNeighborLoader`, and more.

        Args:
            data: the graph.
            num_neighbors: neighbours of each node, hop by hop; -1: all.
            edge_label_index: links to learn from [2, num_links], with their type where there are types; None: all.
            edge_label: of each link.
            edge_label_time: of each link.
            options: as PyG's, in its order.
            seed: of the order of links and of all draws.
            prefetch: batches that a thread makes ahead where there are no workers; 0: none.
            named: as PyG's, and DataLoader's.
        """
        names = [name for name in inspect.signature(pyg.LinkNeighborLoader).parameters if name != "kwargs"]
        of_pyg, of_dataloader = _taken(type(self).__name__, names, options, 5, named)
        sampler = _sampler(data, num_neighbors, of_pyg)
        super().__init__(
            data,
            num_neighbors,
            edge_label_index,
            edge_label,
            edge_label_time,
            time_attr=of_pyg.get("time_attr"),
            neighbor_sampler=sampler,
            filter_per_worker=_fills_in_workers(data, of_pyg),
            neg_sampling=_checked_negatives(of_pyg.get("neg_sampling")),
            neg_sampling_ratio=of_pyg.get("neg_sampling_ratio"),
            transform=of_pyg.get("transform"),
            transform_sampler_output=of_pyg.get("transform_sampler_output"),
            **of_dataloader,
        )
        links: EdgeSamplerInput = self.input_data
        self._begin(len(links.row), seed, prefetch, of_dataloader)
        _check_links(links, sampler)
        if self.neg_sampling is not None and not _are_the_graphs(links, data):
            sampler.know(links.input_type, torch.stack([links.row, links.col]), links.time)

    def collate_fn(self, index: Any) -> Any:  # noqa: ANN401  # PyG's name
        """Sample the subgraph of a batch of links."""
        links, key = self._of_places(index)
        out = self.link_sampler.sample_from_edges(links, neg_sampling=self.neg_sampling, key=key)
        return self.filter_fn(out) if self.filter_per_worker else out

    def _name_seeds(self, batch: Any, metadata: Any) -> None:  # noqa: ANN401  # what PyG's loader says of links
        kind = self.input_data.input_type
        link = batch if kind is None else batch[kind]
        source, target = (batch, batch) if kind is None else (batch[kind[0]], batch[kind[-1]])
        link.input_id = metadata[0]
        if self.neg_sampling is None or self.neg_sampling.is_binary():
            _, link.edge_label_index, link.edge_label, link.edge_label_time = metadata
            return
        _, source.src_index, target.dst_pos_index, target.dst_neg_index, times = metadata
        source.seed_time = target.seed_time = times
        for name in ("edge_label_index", "edge_label_time"):  # of the whole graph, if it has any
            if name in link:
                del link[name]


class HGTLoader(KeyedLoader, pyg.HGTLoader):  # type: ignore[misc]  # PyG is not typed
    """PyG's `HGTLoader` without torch-sparse, with a `seed` and a state.

    Example:
        >>> loader = HGTLoader(data, [512, 512], input_nodes=("paper", mask), batch_size=128, shuffle=True)
    """

    def __init__(
        self,
        data: Any,  # noqa: ANN401  # a PyG HeteroData
        num_samples: Any,  # noqa: ANN401  # nodes of each type, layer by layer
        input_nodes: Any,  # noqa: ANN401  # as PyG takes them
        *options: Any,  # noqa: ANN401
        seed: int = 0,
        prefetch: int = 2,
        **named: Any,  # noqa: ANN401
    ) -> None:
        """Take the arguments of PyG's `HGTLoader`, and more.

        Args:
            data: the graph.
            num_samples: nodes of each type, layer by layer; by type perhaps.
            input_nodes: seeds with their type.
            options: as PyG's, in its order.
            seed: of the order of seeds and of all draws.
            prefetch: batches that a thread makes ahead where there are no workers; 0: none.
            named: as PyG's, and DataLoader's.
        """
        names = [name for name in inspect.signature(pyg.HGTLoader).parameters if name != "kwargs"]
        of_pyg, of_dataloader = _taken(type(self).__name__, names, options, 3, named)
        sampler = HGTSampler(data, num_samples)
        pyg.NodeLoader.__init__(
            self,
            data,
            sampler,
            checked_mask(input_nodes, sampler),
            transform=of_pyg.get("transform"),
            transform_sampler_output=of_pyg.get("transform_sampler_output"),
            filter_per_worker=_fills_in_workers(data, of_pyg),
            **of_dataloader,
        )
        self._begin(len(self.input_data.node), seed, prefetch, of_dataloader)


def _taken(
    loader: str, names: list[str], options: tuple[Any, ...], first: int, named: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of PyG's loader and of DataLoader by name; what neither knows is refused."""
    if len(options) > len(names) - first:
        raise InvalidInputError(f"{loader} takes {len(names)} positions", fix="name the options: batch_size=512")
    given = {**dict(zip(names[first:], options, strict=False)), **named}
    for name in given:
        if name not in names and name not in OF_DATALOADER:
            raise InvalidInputError(
                f"{loader} takes no {name}", fix=did_you_mean(name, [*names, "seed", "prefetch", *OF_DATALOADER])
            )
    of_dataloader = {name: value for name, value in given.items() if name not in names}
    return {name: value for name, value in given.items() if name in names}, checked_options(of_dataloader)


def _sampler(data: Any, num_neighbors: Any, options: dict[str, Any]) -> NeighborSampler:  # noqa: ANN401
    given = options.get("neighbor_sampler")
    if given is None:
        return NeighborSampler(data, **{"num_neighbors": num_neighbors, **_of(options, _OF_SAMPLER)})
    if not isinstance(given, NeighborSampler):
        raise InvalidInputError(
            f"neighbor_sampler is a {type(given).__name__}, whose draws have no key",
            fix="give a graphmill.pyg.NeighborSampler, or leave it out",
        )
    return given


def _of(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def _checked_negatives(given: Any) -> NegativeSampling | None:  # noqa: ANN401  # as PyG takes it
    try:
        return NegativeSampling.cast(given)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"neg_sampling is {given!r:.80}: {error}",
            fix='give "binary", "triplet", or {"mode": "triplet", "amount": 5}',
        ) from None


def _fills_in_workers(data: Any, options: dict[str, Any]) -> bool:  # noqa: ANN401
    """Whether workers fill batches, as in PyG by default; not with rows of a device or that a gradient must reach."""
    asked = options.get("filter_per_worker")
    if asked is not None:
        return bool(asked)
    stores = data.stores if isinstance(data, Data | HeteroData) else []
    learns = any(isinstance(each, Tensor) and each.requires_grad for store in stores for each in store.values())
    return not learns and infer_filter_per_worker(data)


def checked_mask(input_nodes: Any, sampler: NeighborSampler | HGTSampler) -> Any:  # noqa: ANN401  # as PyG takes them
    """The seeds as they were given, if a mask among them fits; PyG takes any for one."""
    counts = sampler.graph.num_nodes
    typed = isinstance(input_nodes, tuple | list) and len(input_nodes) == 2 and isinstance(input_nodes[0], str)
    name, given = input_nodes if typed else (input_nodes if isinstance(input_nodes, str) else None, input_nodes)
    if name not in counts:
        known = ", ".join(map(repr, counts))
        raise InvalidInputError(
            f"input_nodes are of one of the types {known}", fix=f"give ({next(iter(counts))!r}, mask or ids)"
        )
    if isinstance(given, Tensor | np.ndarray) and given.dtype in (torch.bool, np.bool_):
        if tuple(given.shape) != (counts[name],):
            raise InvalidInputError(
                f"input_nodes is a mask of shape {list(given.shape)}, and there are {counts[name]} nodes",
                fix=f"give a mask [{counts[name]}], or node ids",
            )
        return (name, torch.as_tensor(given)) if typed else torch.as_tensor(given)
    if given is None or isinstance(given, str):
        return input_nodes
    try:
        ids = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InvalidInputError(
            f"input_nodes is {given!r:.80}", fix=f"give a mask [{counts[name]}], or node ids"
        ) from None
    check_ids("input_nodes", ids, counts[name])
    return (name, ids.long()) if typed else ids.long()


def _check_times(inputs: NodeSamplerInput) -> None:
    if inputs.time is not None and len(inputs.time) != len(inputs.node):
        raise InvalidInputError(
            f"input_time has {len(inputs.time)} times, and there are {len(inputs.node)} seeds", fix="give one for each"
        )


def _check_links(links: EdgeSamplerInput, sampler: NeighborSampler) -> None:
    source, target = sampler.graph.ends(links.input_type)
    for name, ids, end in (("sources", links.row, source), ("targets", links.col, target)):
        check_ids(f"{name} of edge_label_index", ids, sampler.graph.num_nodes[end])
    for name, given in (("edge_label", links.label), ("edge_label_time", links.time)):
        if given is not None and len(given) != len(links.row):
            raise InvalidInputError(
                f"{name} has {len(given)} values, and there are {len(links.row)} links", fix="give one for each"
            )


def check_ids(name: str, ids: Tensor, count: int) -> None:
    """Refuse ids of seeds that are not nodes; `count`: nodes there are."""
    if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise InvalidInputError(
            f"{name} are {ids.dtype} {list(ids.shape)}", fix=f"give a mask [{count}], or ids from 0 to {count - 1}"
        )
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        raise InvalidInputError(
            f"{name} are from {int(ids.min())} to {int(ids.max())}, and there are {count} nodes",
            fix=f"give ids from 0 to {count - 1}",
        )


def _are_the_graphs(links: EdgeSamplerInput, data: Any) -> bool:  # noqa: ANN401
    """Whether the links are the edges of the graph themselves, which the sampler knows already."""
    if not isinstance(data, Data | HeteroData):
        return False
    store = data if links.input_type is None else data[links.input_type]
    edges = getattr(store, "edge_index", None)
    return (
        edges is not None
        and edges.shape[1] == len(links.row)
        and bool(torch.equal(edges[0], links.row) and torch.equal(edges[1], links.col))
    )
