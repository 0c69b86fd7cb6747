"""Tensors of PyG's `Data` as arrays: numbers, edges, features."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures, Features, dense, sparse


def required(data: Any, attribute: str) -> Any:  # noqa: ANN401
    """An attribute that must be there, else a `UserError`."""
    value = getattr(data, attribute, None)
    if value is None:
        raise UserError(f"the Data object has no {attribute}", fix=f"set data.{attribute}, one row per node")
    return value


def as_numpy(tensor: Any) -> NDArray[Any]:  # noqa: ANN401  # a tensor or whatever numpy takes
    """Convert to an array of numbers; `UserError` if `tensor` holds anything else."""
    array = np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)
    if array.dtype.hasobject:
        raise UserError("the Data object holds Python objects where numbers should be", fix="give tensors")
    return array


def edge_index_of(data: Any) -> NDArray[Any]:  # noqa: ANN401
    """[2, num_edges]: sources, then destinations, of `edge_index` or `adj_t`."""
    edge_index = getattr(data, "edge_index", None)
    if edge_index is not None:
        return as_numpy(edge_index)
    adjacency = required(data, "adj_t")  # rows are destinations
    if hasattr(adjacency, "coo"):  # torch_sparse.SparseTensor
        row, column, _ = adjacency.coo()
        return np.stack([as_numpy(column), as_numpy(row)])
    destinations_and_sources = as_numpy(adjacency.to_sparse_coo().coalesce().indices())
    return destinations_and_sources[::-1]


def features_of(x: Any) -> Features:  # noqa: ANN401  # a Tensor; its sparse methods are untyped
    """Dense or sparse as the tensor is."""
    import torch

    if x.layout != torch.strided:
        coo = x.to_sparse_coo().coalesce()  # rows ascend
        rows, columns = as_numpy(coo.indices())
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=x.shape[0]))])
        return sparse(indptr, columns, as_numpy(coo.values()), x.shape[1])
    if x.dtype == torch.bfloat16:
        return DenseFeatures(as_numpy(x.contiguous().view(torch.uint16)), "bfloat16")
    return dense(as_numpy(x))
