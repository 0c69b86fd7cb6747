"""The model: a row for each end of a batch's pairs, by an encoder or a table, and a head that scores the pairs."""

import torch
from torch import Tensor, nn

from graphmill.graph.batch import InputForm
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.standardise import Standardise
from graphmill.spec.plan import Plan
from graphmill.tasks.link_prediction.data.batches import LinkBatch, OwnNegatives
from graphmill.tasks.link_prediction.nn.heads import build_head
from graphmill.tasks.link_prediction.page import LinkPredictionPlan
from graphmill.tasks.link_prediction.page.models import EmbeddingSpec
from graphmill.tasks.node_encoders import NodeEncoder, NodeModelInputs, build_model

_OF_HEAD = 1  # coordinate of the keys of weights and dropout; the encoder's have none
_OF_TABLE = 2


class NodeTable(nn.Module):
    """A row for each node, learnt."""

    def __init__(self, num_nodes: int, channels: int, *, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_nodes, channels))
        nn.init.xavier_uniform_(self.weight)
        self.dropout = dropout

    def forward(self, nodes: Tensor) -> Tensor:
        """Rows [n, channels] of nodes int64 [n]."""
        rows = nn.functional.embedding(nodes, self.weight)
        return nn.functional.dropout(rows, self.dropout, training=self.training)


class LinkModel(nn.Module):
    """Scores of a batch's links and of their negatives.

    What of it draws from torch's generator (dropout of the head, the table) draws by (seed, epoch, step, rank).
    """

    def __init__(
        self, plan: Plan, task_plan: LinkPredictionPlan, *, rank: int, standardise: Standardise | None = None
    ) -> None:
        super().__init__()
        channels = task_plan.embedding_channels
        self.seed, self.rank = plan.seed, rank
        self.encoder: NodeEncoder | NodeTable
        if isinstance(task_plan.model, EmbeddingSpec):
            torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS, _OF_TABLE) >> 1)
            self.encoder = NodeTable(task_plan.dataset.num_nodes, channels, dropout=task_plan.model.dropout)
        else:
            self.encoder = build_model(
                plan, task_plan.model, model_inputs(task_plan), rank=rank, standardise=standardise
            )
        torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS, _OF_HEAD) >> 1)
        self.head = build_head(task_plan.head, channels, task_plan.dataset.num_relations)

    @property
    def input_form(self) -> InputForm:
        """How the encoder reads features."""
        return "rows" if isinstance(self.encoder, NodeTable) else self.encoder.input_form

    def forward(self, batch: LinkBatch) -> tuple[Tensor, Tensor]:
        """Scores of the links [n] and of their negatives [n, count]; minus infinity: the pair is a known link."""
        pairs = batch.pairs
        if self.training and isinstance(self.encoder, NodeTable):
            self._seed_dropout(batch)
        if isinstance(self.encoder, NodeTable):
            rows = self.encoder(pairs.nodes)
        else:
            assert batch.neighbourhood is not None
            rows = self.encoder(batch.neighbourhood)
        if self.training:
            self._seed_dropout(batch)
        rows = rows.float()
        sources, targets = rows[pairs.sources], rows[pairs.targets]
        negatives = pairs.negatives
        others = rows[negatives.others.reshape(-1)].reshape(*negatives.others.shape, -1)
        positive = self.head(sources, targets, pairs.relations)
        if isinstance(negatives, OwnNegatives):
            return positive, self.head.score_others(
                sources, targets, pairs.relations, others, negatives.replaces_target
            )
        scores = self.head.among(sources, targets, pairs.relations, others, negatives.num_targets)
        return positive, scores.masked_fill(negatives.are_links, -torch.inf)

    def _seed_dropout(self, batch: LinkBatch) -> None:
        torch.manual_seed(batch.seeds.key(self.seed, Purpose.DROPOUT, self.rank, _OF_HEAD) >> 1)


def model_inputs(task_plan: LinkPredictionPlan) -> NodeModelInputs:
    """What the encoder reads, and that it gives rows as wide as `embedding_channels`."""
    return NodeModelInputs(
        in_channels=task_plan.dataset.num_features,
        out_channels=task_plan.embedding_channels,
        is_sparse=task_plan.dataset.has_sparse_features,
        types=task_plan.dataset,
        edge_columns=len(task_plan.edge_columns),
        edge_argument=None,
    )
