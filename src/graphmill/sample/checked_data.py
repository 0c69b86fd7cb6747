"""What a loader takes of a PyG `Data`: the checks that `prepare` makes of a graph, and those of tensors in memory."""

import operator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.base.errors import InvalidInputError
from graphmill.graph.features import DenseFeatures, not_finite
from graphmill.graph.raw import edge_index_problem

_OF_NODES: Final = ("x", "y", "pos", "node_type", "train_mask", "val_mask", "test_mask")
_OF_EDGES: Final = ("edge_attr", "edge_weight", "edge_type", "edge_time")
_MOST_NODES: Final = 2**31 - 1  # ids in batches are int32


def checked_edges(data: Any) -> tuple[NDArray[np.int64], int]:  # noqa: ANN401  # a PyG Data
    """`edge_index` [2, num_edges] and the number of nodes, of data all of whose usual attributes fit them."""
    if not all(hasattr(data, name) for name in ("is_node_attr", "is_edge_attr")):
        raise InvalidInputError(f"data is a {type(data).__name__}", fix="give a torch_geometric.data.Data")
    if getattr(data, "edge_index", None) is None:
        has_transposed = getattr(data, "adj_t", None) is not None
        raise InvalidInputError(
            f"the {type(data).__name__} has no edge_index",
            fix="data.edge_index = torch_geometric.utils.to_edge_index(data.adj_t)[0].flip(0); del data.adj_t"
            if has_transposed
            else "give a Data with one [2, num_edges]",
        )
    edges = array_of("edge_index", data.edge_index)
    _refuse_edges("edge_index", edge_index_problem(edges, None))  # PyG may count the nodes by them
    num_nodes = _num_nodes(data)
    _refuse_edges("edge_index", edge_index_problem(edges, num_nodes))
    for names, count, what in ((_OF_NODES, num_nodes, "nodes"), (_OF_EDGES, edges.shape[1], "edges")):
        for name in names:
            if (value := getattr(data, name, None)) is not None:
                _check_rows(name, value, count, what)
    for name, value in data.items():
        if isinstance(value, Tensor) and (data.is_node_attr(name) or data.is_edge_attr(name)):
            _refuse_elsewhere(name, value)
            _refuse_what_torch_does_not_gather(name, value)
    return edges.astype(np.int64, copy=False), num_nodes


def check_edges_between(name: str, given: Any, num_sources: int, num_targets: int) -> None:  # noqa: ANN401  # a Tensor
    """Refuse edges from nodes of one type to those of another that do not fit."""
    _refuse_edges(name, edge_index_problem(array_of(name, given), num_sources, num_targets))


def check_rows_of(store: Any, count: int, what: str, prefix: str) -> None:  # noqa: ANN401  # a PyG storage of one type
    """Refuse usual attributes of nodes or edges that have not a row for each. `what`: nodes or edges."""
    for name in _OF_NODES if what == "nodes" else _OF_EDGES:
        if (value := store.get(name)) is not None:
            _check_rows(f"{prefix}{name}", value, count, what)


def array_of(name: str, given: Any) -> NDArray[Any]:  # noqa: ANN401  # whatever stands in a Data
    """A dense tensor of this host, as an array."""
    if isinstance(given, np.ndarray) and not given.dtype.hasobject:
        return given
    if not isinstance(given, Tensor):
        raise InvalidInputError(f"{name} is a {type(given).__name__}", fix=f"give a tensor: torch.as_tensor({name})")
    _refuse_elsewhere(name, given)
    try:
        return given.detach().resolve_conj().resolve_neg().numpy()
    except TypeError:  # numpy has no such numbers
        raise InvalidInputError(f"{name} holds {given.dtype}", fix=f"data.{name} = data.{name}.float()") from None


def _refuse_elsewhere(name: str, given: Tensor) -> None:
    if given.layout != torch.strided:
        form = str(given.layout).removeprefix("torch.")
        raise InvalidInputError(
            f"{name} is a {form} tensor, and rows of it are gathered", fix=f"data.{name}.to_dense()"
        )
    if given.is_quantized:
        raise InvalidInputError(f"{name} is quantized", fix=f"data.{name}.dequantize()")
    if given.device.type != "cpu":
        raise InvalidInputError(
            f"{name} is on {given.device}", fix="give the loader data.cpu(), and move batches: batch.to(device)"
        )


def _refuse_what_torch_does_not_gather(name: str, given: Tensor) -> None:
    try:
        given[:1].index_select(0, torch.arange(min(1, len(given))))
    except RuntimeError:  # NotImplementedError is one
        kind = "float" if given.is_floating_point() else "long"
        raise InvalidInputError(
            f"{name} holds {given.dtype}, whose rows torch cannot gather", fix=f"data.{name} = data.{name}.{kind}()"
        ) from None


def _num_nodes(data: Any) -> int:  # noqa: ANN401  # a PyG Data
    try:
        count = operator.index(data.num_nodes)
    except (TypeError, ValueError, RuntimeError, IndexError):  # PyG reads it off whatever attributes there are
        count = -1
    if not 0 < count <= _MOST_NODES:
        said = "no number of nodes" if count < 0 else f"{count:,} nodes"
        raise InvalidInputError(
            f"the {type(data).__name__} has {said}",
            fix=f"set x [num_nodes, num_features], or data.num_nodes, from 1 to {_MOST_NODES:,}",
        )
    return count


def _refuse_edges(name: str, refusal: tuple[str, str] | None) -> None:
    if refusal is not None:
        problem, fix = refusal
        raise InvalidInputError(f"{name}: {problem}", fix=fix)


def _check_rows(name: str, value: Any, count: int, what: str) -> None:  # noqa: ANN401  # whatever stands in a Data
    is_array = isinstance(value, np.ndarray) and not value.dtype.hasobject  # perhaps mapped from a file
    if not isinstance(value, Tensor) and not is_array:
        raise InvalidInputError(
            f"{name} is a {type(value).__name__}", fix=f"give a tensor: torch.as_tensor(data.{name})"
        )
    if not is_array:
        _refuse_elsewhere(name, value)
    if len(value.shape) == 0 or len(value) != count:
        raise InvalidInputError(
            f"{name} is {list(value.shape)}, and there are {count} {what}",
            fix=f"give one row for each of the {what}, or leave it out: data.{name} = None",
        )
    if is_array:
        return  # a mapped file is not read through
    if name in ("x", "edge_attr", "edge_weight") and value.is_floating_point() and value.numel():
        _refuse_not_finite(name, value.detach().reshape(count, -1))


def _refuse_not_finite(name: str, rows: Tensor) -> None:
    if problem := not_finite(_as_features(rows)):
        how = f"data.{name} = data.{name}.nan_to_num(0, 0, 0)"
        raise InvalidInputError(f"{name}: {problem}", fix=f"replace NaN and infinite numbers, for example by 0: {how}")


def _as_features(rows: Tensor) -> DenseFeatures:
    if rows.dtype == torch.bfloat16:
        return DenseFeatures(rows.view(torch.uint16).numpy(), "bfloat16")
    is_known = rows.dtype in (torch.float16, torch.float32, torch.float64)
    return DenseFeatures((rows if is_known else rows.float()).numpy(), "float32")
