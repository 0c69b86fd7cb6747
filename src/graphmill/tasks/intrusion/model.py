"""The models of intrusion detection, and what their scores are."""

import torch
from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.can.gat import CanGat
from graphmill.nn.standardise import Standardise
from graphmill.spec.kinds.intrusion import NUM_EDGE_FEATURES, NUM_FEATURES, IntrusionPlan
from graphmill.spec.plan import Plan

DTYPE_OF = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Detecting(nn.Module):
    """A model of windows, with the threshold of its scores.

    Its dropout draws from torch's generator, which is seeded by (seed, epoch, step, rank) before every training step,
    so a step does not depend on what was drawn before it.
    """

    def __init__(self, inner: CanGat, *, seed: int, rank: int, dtype: torch.dtype, threshold: float | None) -> None:
        super().__init__()
        self.inner, self.seed, self.rank, self.dtype = inner, seed, rank, dtype
        # Frozen: a checkpoint holds it, and no sync touches it. NaN: none was chosen yet.
        value = torch.tensor(float("nan") if threshold is None else threshold, dtype=torch.float64)
        self.threshold = nn.Parameter(value, requires_grad=False)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Logits of no attack and of an attack [num_graphs, 2]."""
        if self.training:
            torch.manual_seed(batch.seeds.key(self.seed, Purpose.DROPOUT, self.rank) >> 1)
        is_mixed = self.training and self.dtype != torch.float32
        with torch.autocast(batch.x.device.type, self.dtype, enabled=is_mixed):
            return self.inner(batch)  # type: ignore[no-any-return]


def build_model(
    plan: Plan, own: IntrusionPlan, *, rank: int, nodes: Standardise | None = None, edges: Standardise | None = None
) -> Detecting:
    """The plan's model with its initial weights, the same on every rank.

    `nodes`, `edges`: how their features are standardised; None: saved weights are to say it.
    """
    torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS) >> 1)
    spec = own.model
    inner = CanGat(
        kind=spec.kind,
        nodes=nodes or Standardise.unknown(NUM_FEATURES),
        edges=(edges or Standardise.unknown(NUM_EDGE_FEATURES)) if spec.edge_features else None,
        hidden_channels=spec.hidden_channels,
        heads=spec.heads,
        num_layers=spec.num_layers,
        id_channels=spec.id_channels,
        id_rows=spec.id_rows,
        id_dropout=spec.id_dropout,
        fc_layers=spec.fc_layers,
        dropout=spec.dropout,
        attention_dropout=spec.attention_dropout,
        attention=spec.attention,
    )
    return Detecting(inner, seed=plan.seed, rank=rank, dtype=DTYPE_OF[plan.precision], threshold=own.threshold)


def score_of(logits: Tensor) -> Tensor:
    """Log-odds of an attack [num_graphs], float64: a probability would be 1 long before they stop rising."""
    wide = logits.double()
    return wide[:, 1] - wide[:, 0]
