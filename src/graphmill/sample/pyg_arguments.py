"""What else PyG's loader takes, of a graph in parts: taken where it means nothing, refused where it changes batches."""

import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean

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


def check_pyg_arguments(given: Mapping[str, Any], own: tuple[str, ...]) -> None:
    """Refuse what would change the batches, and say once what means nothing. `own`: what the loader does take."""
    for name, value in given.items():
        if name not in _MEAN_NOTHING and name not in _AS_HERE:
            raise UserError(
                f"NeighborLoader takes no {name} over a graph in parts",
                fix=did_you_mean(name, [*own, *_MEAN_NOTHING, *_AS_HERE]),
            )
        if name in _AS_HERE and not _is_same(value, _AS_HERE[name]):
            raise UserError(f"NeighborLoader takes no {name}={value!r:.40} over a graph in parts", fix=_INSTEAD[name])
    if unused := sorted(given.keys() & _MEAN_NOTHING):
        warnings.warn(
            f"not used by graphmill.NeighborLoader: {', '.join(unused)}; threads of this process sample ahead"
            " (num_threads, prefetch), and batches are the same",
            stacklevel=3,
        )


def _is_same(value: Any, here: Any) -> bool:  # noqa: ANN401  # whatever a caller gives
    if here is None:
        return value is None
    if isinstance(here, bool):
        return isinstance(value, bool | int | np.bool_) and bool(value) is here
    return bool(str(getattr(value, "value", value)) == here)  # PyG's SubgraphType, or its name
