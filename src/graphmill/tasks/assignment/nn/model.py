"""The models of the assignment task: OneGNN, DualGNN, or a user-defined model by dotted path.

`CostsToPotentials` is one outside training, as `graphmill.load` gives it.
"""

from typing import Final, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.base.errors import InvalidInputError, UserError
from graphmill.graph.keys import Purpose, key_of
from graphmill.graph.sampled import Seeds
from graphmill.nn.draws import seed_torch
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.plan import Plan
from graphmill.tasks.assignment.data.batches import AssignmentBatch, reduced
from graphmill.tasks.assignment.data.features import First, Instances, first_features
from graphmill.tasks.assignment.nn.dual_gnn import DualGnn
from graphmill.tasks.assignment.nn.loss import Predicted, capped, completed
from graphmill.tasks.assignment.nn.metrics import row_potentials
from graphmill.tasks.assignment.nn.one_gnn import OneGnn
from graphmill.tasks.assignment.page import FIRST_FEATURES, AssignmentPlan, DualGnnSpec, OneGnnSpec
from graphmill.tasks.custom_model import construct, try_out

_DTYPE_OF: Final = {"fp32": torch.float32, "bf16": torch.bfloat16}
_TOPK, _SOFT_SWEEPS = 4, 4  # of what a user-defined model sees
_IN_CHANNELS: Final = FIRST_FEATURES + _TOPK + _SOFT_SWEEPS


class AnyCorrection(nn.Module):
    """A model that is called as model(columns [B, m, in_channels], costs [B, n, m]), both in the scale of the instance.

    It makes the correction of each column's potential [B, m], a last dimension of 1 allowed.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def first_of(self, given: Instances) -> First:
        """What it sees first; nothing of it is learnt."""
        return first_features(given, topk=_TOPK, soft_sweeps=_SOFT_SWEEPS)

    def forward(self, given: Instances, first: First | None = None) -> Predicted:
        """What is predicted of every instance. `first`: of `first_of`, if it was made before."""
        first = first or self.first_of(given)
        made: Tensor = self.inner(first.columns, given.costs / first.scale.unsqueeze(2)).float()
        if made.shape not in (first.v.shape, (*first.v.shape, 1)):
            raise UserError(
                f"{type(self.inner).__name__} made {list(made.shape)} of {list(first.v.shape)} columns",
                fix=f"let it make {list(first.v.shape)}: instances, columns",
            )
        v = capped(first.v + first.scale * made.view(first.v.shape), given)
        return Predicted((completed(v, given),), first.scale, first.reduced_v)


class PotentialModel(nn.Module):
    """A model of potentials, on batches.

    Its dropout draws from torch's generator, which is seeded by (seed, epoch, step, rank) before every training step.
    """

    def __init__(self, inner: OneGnn | DualGnn | AnyCorrection, *, seed: int, rank: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner, self.seed, self.rank, self.dtype = inner, seed, rank, dtype

    def forward(self, batch: AssignmentBatch) -> Predicted:
        """What is predicted of the instances of a batch."""
        if self.training and isinstance(batch.seeds, Seeds):
            seed_torch(batch.seeds.key(self.seed, Purpose.DROPOUT, self.rank) >> 1)
        is_mixed = self.training and self.dtype != torch.float32
        with torch.autocast(batch.instances.costs.device.type, self.dtype, enabled=is_mixed):
            made: Predicted = self.inner(batch.instances, batch.first)
        return made


def build_model(plan: Plan, task_plan: AssignmentPlan, *, rank: int) -> PotentialModel:
    """The plan's model with its initial weights, the same on every rank."""
    torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS) >> 1)
    inner: OneGnn | DualGnn | AnyCorrection
    match task_plan.model:
        case OneGnnSpec() as spec:
            inner = OneGnn(
                hidden_channels=spec.hidden_channels,
                num_layers=spec.num_layers,
                rounds=spec.rounds,
                topk=spec.topk,
                soft_sweeps=spec.soft_sweeps,
                dropout=spec.dropout,
            )
        case DualGnnSpec() as spec:
            assert spec.tile_pairs != "auto"  # the plan has a number
            inner = DualGnn(
                hidden_channels=spec.hidden_channels,
                num_layers=spec.num_layers,
                heads=spec.heads,
                topk=spec.topk,
                dropout=spec.dropout,
                tile_pairs=spec.tile_pairs,
            )
        case CustomModelSpec() as spec:
            inner = AnyCorrection(construct(spec, {"in_channels": _IN_CHANNELS, "out_channels": 1}))
        case _:
            assert_never(task_plan.model)
    return PotentialModel(inner, seed=plan.seed, rank=rank, dtype=_DTYPE_OF[plan.precision])


def check_model(plan: Plan, task_plan: AssignmentPlan) -> None:
    """Make the plan's model if it is a user-defined one, try it on made-up instances, and throw it away."""
    if not isinstance(task_plan.model, CustomModelSpec):
        return
    inner = build_model(plan, task_plan, rank=0).to(plan.device).inner
    assert isinstance(inner, AnyCorrection)
    arguments = {
        "columns": torch.randn(2, 6, _IN_CHANNELS, device=plan.device),
        "costs": torch.rand(2, 5, 6, device=plan.device),
    }
    try_out(task_plan.model.target, inner.inner, arguments, [(2, 6), (2, 6, 1)])


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
