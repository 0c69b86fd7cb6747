"""PyG's `NeighborLoader` over a graph in parts. It needs PyG for its `Data` class.

`graphmill.NeighborLoader` makes it where it is given the parts (`graphmill.open_partitioned`).
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.base.arguments import flag, whole_number
from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.graph.sampled import Sampled
from graphmill.sample.checked_data import array_of
from graphmill.sample.distributed.opened import PartedLoaderGraph, PartitionedData
from graphmill.sample.prefetch import prefetch
from graphmill.sample.schedule import KeyedOrder, Order, SeedSchedule, contiguous_shares, equal_batch, with_following
from graphmill.spec.calendar import EqualBatches

_MEAN_NOTHING: Final = frozenset(
    {
        "filter_per_worker",
        "in_order",
        "is_sorted",
        "multiprocessing_context",
        "num_workers",
        "persistent_workers",
        "pin_memory",
        "pin_memory_device",
        "prefetch_factor",
        "timeout",
        "worker_init_fn",
    }
)
"""Arguments about processes, copies and the order of edges at rest; batches are the same whatever they say."""

_AS_HERE: Final[Mapping[str, Any]] = {  # what batches are like: other values are refused with what to do instead
    "batch_sampler": None,
    "collate_fn": None,
    "directed": True,
    "disjoint": False,
    "drop_last": False,
    "generator": None,
    "input_time": None,
    "neighbor_sampler": None,
    "replace": False,
    "sampler": None,
    "subgraph_type": "directional",
    "temporal_strategy": "uniform",
    "time_attr": None,
    "transform": None,
    "transform_sampler_output": None,
    "weight_attr": None,
}
_OVER_TIME = "leave it out, and give each time a loader of the edges until then: data.edge_subgraph(data.time <= t)"
_WHOLE = "leave it out, and take all edges between the nodes of a batch: data.subgraph(batch.n_id)"
_INSTEAD: Final[Mapping[str, str]] = {
    "batch_sampler": "give batch_size, shuffle and seed; input_nodes says which seeds, and in which order",
    "collate_fn": "change each batch in the loop: for batch in loader: batch = collate(batch)",
    "directed": _WHOLE,
    "disjoint": "leave it out: seeds of a batch share nodes; batch_size=1 gives each seed a subgraph of its own",
    "drop_last": "leave it out, and pass over the last batch: if batch.batch_size < batch_size: continue",
    "generator": "give seed=1 in its place: batches are a function of (seed, epoch, step)",
    "input_time": _OVER_TIME,
    "neighbor_sampler": "leave it out; num_neighbors says how many neighbours are drawn",
    "replace": "leave it out: a node with fewer neighbours than num_neighbors gives all of them",
    "sampler": "give input_nodes in the order you want, or shuffle=True",
    "subgraph_type": "leave it out; both directions: torch_geometric.transforms.ToUndirected()(batch);"
    " all edges between the nodes of a batch: data.subgraph(batch.n_id)",
    "temporal_strategy": _OVER_TIME,
    "time_attr": _OVER_TIME,
    "transform": "call it in the loop: for batch in loader: batch = transform(batch)",
    "transform_sampler_output": "change each batch in the loop: batch.n_id and batch.e_id say what was sampled",
    "weight_attr": "leave it out: neighbours are drawn uniformly; edges of no weight may be left out of the data",
}
_OWN_ARGUMENTS: Final = ("batch_size", "num_threads", "prefetch", "seed", "shuffle")


def check_pyg_arguments(given: Mapping[str, Any], accepted: tuple[str, ...]) -> None:
    """Refuse what would change the batches, and say once what means nothing. `accepted`: what the loader does take."""
    for name, value in given.items():
        if name not in _MEAN_NOTHING and name not in _AS_HERE:
            raise UserError(
                f"NeighborLoader takes no {name} over a graph in parts",
                fix=did_you_mean(name, [*accepted, *_MEAN_NOTHING, *_AS_HERE]),
            )
        if name in _AS_HERE and not _is_same(value, _AS_HERE[name]):
            raise UserError(f"NeighborLoader takes no {name}={value!r:.40} over a graph in parts", fix=_INSTEAD[name])
    if unused := sorted(given.keys() & _MEAN_NOTHING):
        warnings.warn(
            f"not used by graphmill.NeighborLoader: {', '.join(unused)}; threads of this process sample ahead"
            " (num_threads, prefetch), and batches are the same",
            stacklevel=3,
        )


def _is_same(value: Any, expected: Any) -> bool:  # noqa: ANN401  # whatever a caller gives
    if expected is None:
        return value is None
    if isinstance(expected, bool):
        return isinstance(value, bool | int | np.bool_) and bool(value) is expected
    return bool(str(getattr(value, "value", value)) == expected)  # PyG's SubgraphType, or its name


class PartedNeighborLoader:
    """Mini-batches of a partitioned graph by neighbour sampling, for models that PyG users have already.

    The ranks of torch.distributed make batches together: each gives the same arguments, with the `input_nodes` of all
    ranks, iterates as often as the others, and gets its share of every global batch of `batch_size` × ranks; at the
    last step of an epoch it may be empty. Its batches are those of the graph stored whole, for the same seeds, epoch
    and step: a `Data` with `x, y, edge_index, n_id, e_id, input_id, batch_size, num_sampled_nodes, num_sampled_edges`.
    `x` is float32; `y` is that of the seeds, where all `input_nodes` are in splits; `e_id` counts edges by target, then
    source. In place of worker processes it has threads (`num_threads`, `prefetch`).

    Batches of a graph with types have `node_type` and `edge_type`, and `batch.to_heterogeneous()` takes them apart;
    fan-outs are of all relations together, in the order of hops.
    """

    def __init__(
        self,
        data: PartitionedData,
        num_neighbors: Sequence[int],
        input_nodes: Tensor | NDArray[Any] | Sequence[int] | tuple[str, Any] | None = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        num_threads: int | None = None,
        **of_pyg: Any,  # noqa: ANN401  # what else PyG's loader takes
    ) -> None:
        """`input_nodes`: a boolean mask [num_nodes], node ids, or None for all nodes. -1 in `num_neighbors`: all.

        Arguments of PyG's loader that mean nothing here (`num_workers`, `pin_memory`, …) are accepted, which a warning
        says; those that would change the batches (`replace`, `disjoint`, `transform`, …) are refused with what to do.
        """
        check_pyg_arguments(of_pyg, _OWN_ARGUMENTS)
        batch_size, prefetch = whole_number("batch_size", batch_size), whole_number("prefetch", prefetch, least=0)
        seed = whole_number("seed", seed, least=0, most=2**63 - 1)
        num_threads = None if num_threads is None else whole_number("num_threads", num_threads, most=4096)
        shuffle = flag("shuffle", shuffle)
        fanouts = _checked_fanouts(num_neighbors)
        self._graph = PartedLoaderGraph(data, num_threads or torch.get_num_threads())
        given = None if input_nodes is None else _array_of_nodes(input_nodes)
        self._input_ids = _ids_of(given, self._graph.num_nodes)
        by_mask = given is None or given.dtype == np.bool_
        self._input_order = None if by_mask else np.argsort(self._input_ids)
        self._batches = EqualBatches(len(self._input_ids), batch_size, self._graph.world_size)
        self._schedule = SeedSchedule(
            num_seeds=len(self._input_ids),
            order=_shuffled(self._input_ids, seed) if shuffle else lambda epoch: self._input_ids,
            cut=partial(equal_batch, batches=self._batches),
            assign=partial(contiguous_shares, world_size=self._graph.world_size),
        )
        self._sampler = self._graph.sampler(fanouts, seed)
        self._seed, self._prefetch = seed, prefetch
        self._epoch = self._step = 0
        self._is_under_way = False  # an iteration began and did not finish
        said = f"{fanouts} {batch_size} {shuffle} {seed} {prefetch}"
        self._graph.prepare(self._input_ids, batch_size, fanouts, said)

    def __len__(self) -> int:
        return self._batches.num_steps

    def __iter__(self) -> Iterator[Any]:
        if self._is_under_way:
            self._epoch, self._step = self._epoch + 1, 0
        epoch, first = self._epoch, self._step
        made = prefetch(lambda: self._make(epoch, first), self._prefetch, collective=self._graph.is_shared)
        with closing(made) as batches:
            for step, batch in enumerate(batches, start=first):
                self._is_under_way = step + 1 < len(self)
                self._epoch, self._step = (epoch, step + 1) if self._is_under_way else (epoch + 1, 0)
                yield batch

    def state_dict(self) -> dict[str, int]:
        """The loader's position: the next batch it would yield."""
        return {"epoch": self._epoch, "step": self._step, "seed": self._seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from the position of another loader with the same arguments."""
        if not isinstance(state, Mapping) or any(type(state.get(key)) is not int for key in ("epoch", "step", "seed")):
            raise UserError(f"the state is {state!r:.80}", fix="give what state_dict() of such a loader returned")
        if state["seed"] != self._seed:
            raise UserError(
                f"the state is of seed {state['seed']}, the loader of {self._seed}",
                fix="make the loader with that seed",
            )
        if not (0 <= state["step"] < len(self) and 0 <= state["epoch"] < 2**63):
            where = f"epoch {state['epoch']}, step {state['step']}"
            raise UserError(
                f"the state is of {where}, and this loader's epochs have {len(self)} steps",
                fix="make the loader with the same input_nodes and batch_size",
            )
        self._epoch, self._step, self._is_under_way = state["epoch"], state["step"], False

    def _make(self, epoch: int, first_step: int) -> Iterator[Any]:
        steps = range(first_step, len(self))
        sampled = (self._sampler.sample(self._schedule.seeds(epoch, step, self._graph.rank)) for step in steps)
        for one, following in with_following(sampled, int(self._graph.is_shared)):
            batch = self._batch(one)
            self._graph.fill(batch, one, following[0] if following else None)
            yield batch
            del batch, one, following

    def _batch(self, sampled: Sampled) -> Any:  # noqa: ANN401  # a PyG Data
        from torch_geometric.data import Data

        ids = sampled.seeds.ids
        node_ids, hops = torch.from_numpy(sampled.node_ids), sampled.blocks[0]
        targets = np.repeat(np.arange(hops.num_rows), np.diff(hops.indptr))
        batch = Data(
            edge_index=torch.stack([torch.from_numpy(hops.indices).long(), torch.from_numpy(targets)]),
            n_id=node_ids,
            input_id=torch.from_numpy(self._input_id_of(ids)),
            batch_size=len(ids),
            num_sampled_nodes=list(sampled.num_nodes_per_hop),
            num_sampled_edges=list(sampled.num_edges_per_hop),
        )
        batch.num_nodes = len(node_ids)
        return batch

    def _input_id_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """What PyG calls input_id: positions in `input_nodes` if those are ids, else the nodes themselves."""
        if self._input_order is None:
            return ids.copy()
        return self._input_order[np.searchsorted(self._input_ids, ids, sorter=self._input_order)]


def _shuffled(ids: NDArray[np.int64], seed: int) -> Order:
    """Shuffle places in `input_nodes`, as the loader of a whole graph does."""
    order = KeyedOrder(np.arange(len(ids)), seed)
    return lambda epoch: ids[order(epoch)]


def _checked_fanouts(num_neighbors: Sequence[int]) -> tuple[int, ...]:
    """The fan-outs, if each is a whole number ≥ -1: 2.5 and -2 would be taken for 2 and all."""
    fanouts = list(num_neighbors) if isinstance(num_neighbors, Sequence) else []
    try:
        counts = tuple(int(fanout) for fanout in fanouts)
        is_right = all(count == fanout and -1 <= count < 2**31 for count, fanout in zip(counts, fanouts, strict=True))
    except (TypeError, ValueError, OverflowError, RuntimeError):  # no numbers, NaN, inf, tensors of several
        is_right = False
    if not fanouts or not is_right:
        raise UserError(
            f"num_neighbors is {num_neighbors!r:.80}, and it holds how many neighbours to draw, hop by hop",
            fix="give whole numbers, -1 for all neighbours: num_neighbors=[25, 10]",
        )
    return counts


def _array_of_nodes(input_nodes: Any) -> NDArray[Any]:  # noqa: ANN401  # whatever a caller gives
    try:
        given = input_nodes if isinstance(input_nodes, Tensor) else torch.as_tensor(input_nodes)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise UserError(
            f"input_nodes is {input_nodes!r:.80}", fix="give a boolean mask [num_nodes], or node ids"
        ) from None
    return array_of("input_nodes", given)


def _ids_of(input_nodes: NDArray[Any] | None, num_nodes: int) -> NDArray[np.int64]:
    if input_nodes is None:
        return np.arange(num_nodes, dtype=np.int64)
    is_mask = input_nodes.dtype == np.bool_
    if is_mask and input_nodes.shape != (num_nodes,):
        raise UserError(
            f"input_nodes is a mask of shape {list(input_nodes.shape)}, and the graph has {num_nodes} nodes",
            fix="give a mask [num_nodes], or node ids",
        )
    if not is_mask and input_nodes.dtype.kind not in "iu":
        raise UserError(f"input_nodes holds {input_nodes.dtype}", fix="give a boolean mask [num_nodes], or node ids")
    ids = np.flatnonzero(input_nodes) if is_mask else input_nodes.reshape(-1)
    if ids.size == 0 or int(ids.min()) < 0 or int(ids.max()) >= num_nodes:
        raise UserError(
            f"input_nodes must name nodes 0 to {num_nodes - 1}, and at least one", fix="give a mask or node ids"
        )
    is_named = np.zeros(num_nodes, dtype=np.bool_)
    is_named[ids] = True
    if np.count_nonzero(is_named) != len(ids):
        raise UserError("input_nodes names a node twice", fix="give each node once")
    return ids.astype(np.int64, copy=False)
