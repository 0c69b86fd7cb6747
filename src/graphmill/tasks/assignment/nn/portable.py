"""A trained model outside training: called as `model(costs)`, it makes potentials that a solver can begin with."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.base.errors import InvalidInputError
from graphmill.tasks.assignment.data.batches import reduced
from graphmill.tasks.assignment.nn.dual_gnn import DualGnn
from graphmill.tasks.assignment.nn.metrics import row_potentials
from graphmill.tasks.assignment.nn.model import AnyCorrection
from graphmill.tasks.assignment.nn.one_gnn import OneGnn


class CostsToPotentials(nn.Module):
    """Costs → feasible potentials of rows and columns, in float64."""

    def __init__(self, inner: OneGnn | DualGnn | AnyCorrection) -> None:
        super().__init__()
        self.inner = inner

    @torch.no_grad()
    def forward(self, costs: Tensor | NDArray[np.floating]) -> tuple[Tensor, Tensor]:
        """u [rows] and v [columns], float64, with u + v ≤ costs.

        `costs` [rows, columns]; infinite ones are absent pairs.

        Raises:
            ValueError: `costs` is no matrix with a row and a column, or holds a NaN.
        """
        matrix, v, is_tall = self._predicted(costs)
        found = torch.from_numpy(row_potentials(matrix, v)), torch.from_numpy(v)
        return (found[1], found[0]) if is_tall else found

    @torch.no_grad()
    def seed(
        self, costs: Tensor | NDArray[np.floating]
    ) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        """What a solver begins with: potentials of the columns, or of the rows where those are more.

        Without those of the other side, which a solver finds on its way: `graphmill.assignment.solve(costs, seed)`.
        """
        _, v, is_tall = self._predicted(costs)
        return (v, None) if is_tall else (None, v)

    def _predicted(
        self, costs: Tensor | NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], NDArray[np.float64], bool]:
        """Costs with no more rows than columns, potentials of their columns, and whether they were transposed."""
        given = costs.detach().cpu().numpy() if isinstance(costs, Tensor) else np.asarray(costs)
        if given.ndim != 2 or not given.size:
            raise InvalidInputError(f"costs is {list(given.shape)}, not [rows, columns]", fix="give one matrix")
        if given.dtype not in (np.float32, np.float64):
            given = given.astype(np.float64)
        if np.isnan(given).any():
            raise InvalidInputError("costs holds a NaN", fix="give inf for a pair that is not allowed")
        is_tall = given.shape[0] > given.shape[1]
        matrix = given.T if is_tall else given
        instances, _ = reduced([matrix])
        return matrix, self.inner(instances).best_v(instances)[0].double().numpy().copy(), is_tall
