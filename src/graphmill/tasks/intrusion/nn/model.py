"""The models of intrusion detection, made of a plan; `WindowScores` is one outside training."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch, flat_batch
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.draws import seed_torch
from graphmill.nn.standardise import Standardise
from graphmill.spec.plan import Plan
from graphmill.tasks.intrusion.nn.fusion import CanFusion
from graphmill.tasks.intrusion.nn.gat import CanGat, log_odds
from graphmill.tasks.intrusion.nn.reference import Reference
from graphmill.tasks.intrusion.nn.vgae import CanVgae, ErrorWeights
from graphmill.tasks.intrusion.page import IntrusionPlan, latent_widths
from graphmill.tasks.intrusion.page.models import (
    NUM_EDGE_FEATURES,
    NUM_FEATURES,
    CanGatSpec,
    CanVgaeSpec,
    FusionSpec,
    IntrusionModelSpec,
)

DTYPE_OF = {"fp32": torch.float32, "bf16": torch.bfloat16}

Inner = CanGat | CanVgae | CanFusion


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of training windows: how their features are standardised, and what is benign."""

    nodes: Standardise
    edges: Standardise
    reference: Reference

    @classmethod
    def nothing(cls) -> "Known":
        """Make one that saved weights will fill."""
        return cls(Standardise.unknown(NUM_FEATURES), Standardise.unknown(NUM_EDGE_FEATURES), Reference.unknown())


class Detecting(nn.Module):
    """A model of windows, with the threshold of its scores.

    Its draws are torch's generator's, which is seeded by (seed, epoch, step, rank) before every training step, so a
    step does not depend on what was drawn before it.
    """

    def __init__(
        self,
        inner: Inner,
        *,
        seed: int,
        rank: int,
        dtype: torch.dtype,
        threshold: float | None,
        projected: tuple[int, int] | None = None,
    ) -> None:
        """`projected`: widths of latent vectors, its own and a teacher's, if they differ."""
        super().__init__()
        self.inner, self.seed, self.rank, self.dtype = inner, seed, rank, dtype
        self.projection = None if projected is None else nn.Linear(*projected)
        # Frozen: a checkpoint holds it, and no sync touches it. NaN: none was chosen yet.
        value = torch.tensor(float("nan") if threshold is None else threshold, dtype=torch.float64)
        self.threshold = nn.Parameter(value, requires_grad=False)

    def forward(self, batch: GraphBatch) -> object:
        """What the inner model makes of a batch: logits [num_graphs, 2], or a reconstruction."""
        if self.training:
            seed_torch(batch.seeds.key(self.seed, Purpose.DROPOUT, self.rank) >> 1)
        is_mixed = self.training and self.dtype != torch.float32
        with torch.autocast(batch.x.device.type, self.dtype, enabled=is_mixed):
            return self.inner(batch)

    @torch.no_grad()
    def judged(self, batch: GraphBatch) -> Tensor:
        """Loss and score of every window [num_graphs, 2], float64; not in training mode."""
        if isinstance(self.inner, CanVgae):
            losses = self.inner.losses(batch, self.inner(batch))
            return torch.stack([losses.double(), self.inner.scores(batch)], dim=1)
        logits = self.inner(batch)
        losses = nn.functional.cross_entropy(logits.double(), batch.labels, reduction="none")
        return torch.stack([losses, log_odds(logits)], dim=1)

    def scores(self, batch: GraphBatch) -> Tensor:
        """Scores of every window [num_graphs], float64: the higher, the more like an attack."""
        return log_odds(self.inner(batch)) if isinstance(self.inner, CanFusion) else self.inner.scores(batch)


def build_model(plan: Plan, task_plan: IntrusionPlan, *, rank: int, known: Known | None = None) -> Detecting:
    """The plan's model with its initial weights, the same on every rank."""
    torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS) >> 1)
    widths = latent_widths(task_plan)
    return Detecting(
        inner_model(task_plan.model, known or Known.nothing()),
        seed=plan.seed,
        rank=rank,
        dtype=DTYPE_OF[plan.precision],
        threshold=task_plan.threshold,
        projected=widths if widths is not None and widths[0] != widths[1] else None,
    )


def inner_model(spec: IntrusionModelSpec, known: Known) -> Inner:
    """What a spec describes, with initial weights from torch's generator."""
    match spec:
        case CanGatSpec():
            return _gat(spec, known)
        case CanVgaeSpec():
            return _vgae(spec, known)
        case FusionSpec():
            return CanFusion(_gat(spec.gat, Known.nothing()), _vgae(spec.vgae, Known.nothing()))


def _gat(spec: CanGatSpec, known: Known) -> CanGat:
    return CanGat(
        kind=spec.kind,
        nodes=known.nodes,
        edges=known.edges if spec.edge_features else None,
        reference=known.reference,
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
        checkpoint_activations=spec.checkpoint_activations,
    )


def _vgae(spec: CanVgaeSpec, known: Known) -> CanVgae:
    return CanVgae(
        kind=spec.conv,
        nodes=known.nodes,
        edges=known.edges if spec.edge_features else None,
        reference=known.reference,
        hidden_channels=spec.hidden_channels,
        heads=spec.heads,
        latent_channels=spec.latent_channels,
        id_channels=spec.id_channels,
        id_rows=spec.id_rows,
        id_dropout=spec.id_dropout,
        id_buckets=spec.id_buckets,
        dropout=spec.dropout,
        attention=spec.attention,
        checkpoint_activations=spec.checkpoint_activations,
        weights=ErrorWeights(ids=spec.id_weight, following=spec.neighbour_weight, kl=spec.kl_weight),
        score=spec.score,
    )


class WindowScores(nn.Module):
    """Scores of windows; features are standardised as in training. `threshold`: from which on they are alarms."""

    def __init__(self, model: Detecting) -> None:
        super().__init__()
        self.model = model

    @property
    def threshold(self) -> float:
        """Threshold of the scores; NaN: none was chosen."""
        return float(self.model.threshold)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor, ids: Tensor) -> Tensor:
        """The higher, the more like an attack [num_graphs], float64.

        Args:
            x: features of nodes [num_nodes, 10], as they were prepared.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1.
            batch: int64 [num_nodes]: the window of each node, ascending.
            edge_attr: features of edges [num_edges, 11].
            ids: int64 [num_nodes]: CAN ids, bit 31 set where an id has 29 bits.

        Raises:
            ValueError: `batch` is not ascending, or an edge names a node that is not there.
        """
        halves = torch.stack([ids & 0xFFFF, (ids >> 16) & 0xFFFF], dim=1)
        rows = torch.cat([halves.to(x.dtype), x], dim=1)
        return self.model.scores(flat_batch(rows, edge_index, batch, edge_attr))
