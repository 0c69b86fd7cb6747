"""Logistic regression on features, propagated over k hops or not (SGC: Wu et al. 2019, arXiv 1902.07153).

torch's L-BFGS on the whole training split, in float64: the objective is convex, so that is its only minimum, and
scikit-learn need not be installed. Propagation is linear, so S^k (X W) is computed and S^k X never is: sparse features
stay sparse. Everything is in memory.
"""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.topology import Topology
from graphmill.spec.kinds.node_classification import NodeClassificationPlan
from graphmill.tasks.node_classification.store import LabelledGraphStore
from graphmill.tasks.node_classification.transform import transformed
from graphmill.tasks.standardise import statistics

_log = logging.getLogger(__name__)

_MAX_STEPS = 1000
_TOLERANCE = 1e-6  # of the largest entry of the gradient of the mean objective


@dataclass(frozen=True, slots=True)
class _Design:
    """The matrix S^k X and its transpose, as what they do to a matrix."""

    x: Tensor  # [num_nodes, num_features], float64; sparse ones in CSR form
    x_transposed: Tensor
    steps: Sequence[Tensor] = ()  # k times S [num_nodes, num_nodes], CSR
    steps_transposed: Sequence[Tensor] = ()

    def times(self, weight: Tensor) -> Tensor:
        """[num_features, n] → [num_nodes, n]."""
        found = self.x @ weight
        for step in self.steps:
            found = step @ found
        return found

    def transposed_times(self, rows: Tensor) -> Tensor:
        """[num_nodes, n] → [num_features, n]."""
        for step in self.steps_transposed:
            rows = step @ rows
        return self.x_transposed @ rows


def fit(own: NodeClassificationPlan, store: LabelledGraphStore, *, num_hops: int) -> NDArray[np.int64]:
    """The class of every node, [num_nodes], by a regression on all training nodes.

    It minimises the cross-entropy summed over them + ‖W‖²/2, as scikit-learn's default does (C = 1).
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        design = _design(own, store, num_hops)
        nodes = store.nodes_in("train")
        weight, bias = _minimum(design, nodes, torch.from_numpy(store.labels[nodes]), own.dataset.num_classes)
        return np.asarray((design.times(weight) + bias).argmax(dim=1).numpy())


def _minimum(design: _Design, nodes: NDArray[np.int64], labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    chosen = torch.from_numpy(nodes)
    weight = torch.zeros(design.x.shape[1], num_classes, dtype=torch.float64)
    bias = torch.zeros(num_classes, dtype=torch.float64)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=_MAX_STEPS,
        max_eval=2 * _MAX_STEPS,
        tolerance_grad=_TOLERANCE,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        logits = (design.times(weight) + bias)[chosen]
        log_likely = logits.log_softmax(dim=1)
        residual = log_likely.exp()
        residual[torch.arange(len(chosen)), labels] -= 1
        rows = torch.zeros(design.x.shape[0], num_classes, dtype=torch.float64)
        rows[chosen] = residual
        weight.grad = (design.transposed_times(rows) + weight) / len(chosen)
        bias.grad = residual.sum(dim=0) / len(chosen)
        loss = torch.nn.functional.nll_loss(log_likely, labels, reduction="sum")
        return (loss + weight.square().sum() / 2) / len(chosen)

    optimizer.step(objective)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    objective()
    assert weight.grad is not None
    largest = float(weight.grad.abs().max())
    if largest > _TOLERANCE:
        _log.warning(f"logistic regression has not converged: the largest entry of its gradient is {largest:.1g}")
    return weight, bias


def _design(own: NodeClassificationPlan, store: LabelledGraphStore, num_hops: int) -> _Design:
    x, x_transposed = _matrix(transformed(store.features, own.features))
    if own.features == "standardised":
        assert isinstance(store.features, DenseFeatures), "the plan was refused for sparse ones"
        mean, sd = (torch.from_numpy(each) for each in statistics(store.features, store.nodes_in("train")))
        x = (x - mean) / sd
        x_transposed = x.T
    if not num_hops:
        return _Design(x, x_transposed)
    step = _propagation(store.topology(undirected=own.undirected))
    step_transposed = step if own.undirected else _transposed(step)
    return _Design(x, x_transposed, [step] * num_hops, [step_transposed] * num_hops)


def _matrix(features: Features) -> tuple[Tensor, Tensor]:
    if isinstance(features, SparseFeatures):
        shape = (features.num_nodes, features.num_features)
        x = _csr(features.indptr, features.indices, features.values, shape)
        return x, _transposed(x)
    stored = torch.from_numpy(np.array(features.x))
    dense = (stored.view(torch.bfloat16) if features.dtype == "bfloat16" else stored).double()
    return dense, dense.T


def _propagation(topology: Topology) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 over in-neighbours, where D counts them and the node itself."""
    degrees = np.diff(topology.indptr)
    indptr = np.arange(topology.num_nodes + 1) + topology.indptr
    indices = np.insert(topology.indices.astype(np.int64), topology.indptr[1:], np.arange(topology.num_nodes))
    scale = (degrees + 1.0) ** -0.5
    values = np.repeat(scale, degrees + 1) * scale[indices]
    return _csr(indptr, indices, values, (topology.num_nodes, topology.num_nodes))


def _csr(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], shape: tuple[int, int]) -> Tensor:
    crow, col = torch.from_numpy(indptr.astype(np.int64)), torch.from_numpy(indices.astype(np.int64))
    entries = torch.from_numpy(values.astype(np.float64))
    return torch.sparse_csr_tensor(crow, col, entries, size=shape, check_invariants=False)  # a store was checked


def _transposed(matrix: Tensor) -> Tensor:
    turned: Tensor = matrix.to_sparse(layout=torch.sparse_coo).t().coalesce().to_sparse_csr()
    return turned
