"""The model: an encoder of nodes that predicts in standard deviations, and what turns those into the data's units."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.graph.batch import MiniBatch
from graphmill.nn.standardise import Standardise
from graphmill.spec.plan import Plan
from graphmill.tasks.node_encoders import NodeModelInputs, build_model
from graphmill.tasks.node_regression.page import NodeRegressionPlan


class NodeRegressor(nn.Module):
    """Predictions of the seeds of a batch. Mean and deviation of the training nodes are among its weights, frozen."""

    def __init__(
        self,
        plan: Plan,
        task_plan: NodeRegressionPlan,
        *,
        rank: int,
        standardise: Standardise | None,
        targets: Standardise,
    ) -> None:
        """`standardise`: the features; None: they are read as they are. `targets`: what values are standardised by."""
        super().__init__()
        self.encoder = build_model(plan, task_plan.model, model_inputs(task_plan), rank=rank, standardise=standardise)
        self.targets = targets

    def forward(self, batch: MiniBatch) -> Tensor:
        """Predictions of the seeds [num_seeds, num_targets] in standard deviations from the mean, float32."""
        rows: Tensor = self.encoder(batch)
        return rows.float()

    def in_units(self, rows: Tensor) -> Tensor:
        """Convert standardised predictions [n, num_targets] to the data's units, on the rows' device."""
        return rows * self.targets.sd.to(rows.device) + self.targets.mean.to(rows.device)


class InUnits(nn.Module):
    """A trained model outside training: called as model(x, edge_index, …), it predicts in the data's units."""

    def __init__(self, inner: nn.Module, targets: Standardise) -> None:
        super().__init__()
        self.inner, self.targets = inner, targets

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401  # of a model by types dicts, which it gives as well
        """Predictions [num_nodes, num_targets] of x, edge_index and the types that it reads; by node type of dicts."""
        found = self.inner(*inputs)
        if isinstance(found, Mapping):
            return {name: rows * self.targets.sd + self.targets.mean for name, rows in found.items()}
        return found * self.targets.sd + self.targets.mean


def scale_of(values: NDArray[np.float32], train: NDArray[np.int64]) -> Standardise:
    """Mean and standard deviation of the known values of the nodes `train`; of a constant value the deviation is 1.

    Args:
        values: [num_nodes, num_targets]; NaN: not known.
        train: ids of the training nodes.
    """
    chosen = values[train].astype(np.float64)
    mean, sd = np.nanmean(chosen, axis=0), np.nanstd(chosen, axis=0)
    return Standardise(torch.from_numpy(mean), torch.from_numpy(np.where(sd > 0, sd, 1.0)))


def model_inputs(task_plan: NodeRegressionPlan) -> NodeModelInputs:
    """What the plan's model reads, and that it gives a number for each value."""
    return NodeModelInputs(
        in_channels=task_plan.dataset.num_features,
        out_channels=task_plan.dataset.num_targets,
        is_sparse=task_plan.dataset.has_sparse_features,
        types=task_plan.dataset,
        edge_columns=len(task_plan.edge_columns),
        edge_argument=None,
    )
