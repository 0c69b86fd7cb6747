"""Heads: from the rows of two nodes, and a relation, to a score. Higher is likelier. Losses of such scores."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.tasks.link_prediction.page.models import (
    BinaryLossSpec,
    ComplExSpec,
    DistMultSpec,
    DotSpec,
    HeadSpec,
    LinkLossSpec,
    MarginLossSpec,
    PerceptronSpec,
    SoftmaxLossSpec,
)


class BilinearHead(nn.Module):
    """The sum over channels of source × relation × target; of ComplEx its real part, the target conjugated.

    Such a score is a dot product with a row that hangs on one end and the relation alone: see `queries`.
    """

    def __init__(self, kind: str, channels: int, num_relations: int) -> None:
        super().__init__()
        self.is_complex = kind == "complex"
        self.relation = nn.Parameter(torch.empty(num_relations, channels)) if num_relations else None
        if self.relation is not None:
            nn.init.xavier_uniform_(self.relation)

    def forward(self, sources: Tensor, targets: Tensor, relations: Tensor) -> Tensor:
        """Scores [n]."""
        return (self.queries(sources, relations, of_targets=False) * targets).sum(dim=1)

    def score_others(
        self, sources: Tensor, targets: Tensor, relations: Tensor, others: Tensor, replaces_target: Tensor
    ) -> Tensor:
        """Scores [n, count] of pairs that differ from n links in one end each.

        Args:
            sources: rows of the links [n, channels], as `targets`.
            targets: rows of the links.
            relations: int64 [n], or [0] where links have none.
            others: rows [n, count, channels] of the nodes in the place of an end.
            replaces_target: bool [n, count]; else it is in the place of the source.
        """
        of_sources = self.queries(sources, relations, of_targets=False).unsqueeze(2)
        of_targets = self.queries(targets, relations, of_targets=True).unsqueeze(2)
        return torch.where(replaces_target, (others @ of_sources).squeeze(2), (others @ of_targets).squeeze(2))

    def among(self, sources: Tensor, targets: Tensor, relations: Tensor, others: Tensor, num_targets: int) -> Tensor:
        """Scores [n, count] of pairs that differ from n links in one end, which is the same node for all of them.

        Args:
            sources: rows of the links [n, channels], as `targets`.
            targets: rows of the links.
            relations: int64 [n], or [0] where links have none.
            others: rows [count, channels] of the nodes in the place of an end.
            num_targets: how many of them, the first ones, are in the place of the target; the rest of the source.
        """
        of_sources = self.queries(sources, relations, of_targets=False) @ others[:num_targets].T
        if num_targets == len(others):
            return of_sources
        of_targets = self.queries(targets, relations, of_targets=True) @ others[num_targets:].T
        return torch.cat([of_sources, of_targets], dim=1)

    def queries(self, rows: Tensor, relations: Tensor, *, of_targets: bool) -> Tensor:
        """Rows [n, channels] whose dot product with the row of the other end is the score.

        Args:
            rows: of the known end [n, channels].
            relations: int64 [n], or [0] where links have none.
            of_targets: whether the known end is the target.
        """
        if self.relation is None:
            return rows
        of_relations = self.relation[relations] if len(relations) else self.relation  # [1, channels]: all of one
        if not self.is_complex:
            return rows * of_relations
        re, im = rows.chunk(2, dim=1)
        relation_re, relation_im = of_relations.chunk(2, dim=1)
        if of_targets:  # Re(s · r · conj(t)) = s · (r conj(t)), as real numbers
            return torch.cat([relation_re * re + relation_im * im, relation_re * im - relation_im * re], dim=1)
        return torch.cat([re * relation_re - im * relation_im, re * relation_im + im * relation_re], dim=1)


class PerceptronHead(nn.Module):
    """A perceptron on the product of both rows, with ReLU between its layers."""

    def __init__(self, channels: int, spec: PerceptronSpec) -> None:
        super().__init__()
        widths = [channels, *[spec.hidden_channels] * (spec.num_layers - 1), 1]
        self.layers = nn.ModuleList(nn.Linear(inner, outer) for inner, outer in pairwise(widths))
        self.dropout = spec.dropout

    def forward(self, sources: Tensor, targets: Tensor, relations: Tensor) -> Tensor:
        """Scores [n]; the relation is not read."""
        del relations
        h = sources * targets
        for layer in self.layers[:-1]:
            h = nn.functional.dropout(layer(h).relu(), self.dropout, training=self.training)
        score: Tensor = self.layers[-1](h)
        return score.squeeze(-1)

    def score_others(
        self, sources: Tensor, targets: Tensor, relations: Tensor, others: Tensor, replaces_target: Tensor
    ) -> Tensor:
        """Score links with other ends, as `BilinearHead.score_others` does."""
        same = torch.where(replaces_target.unsqueeze(2), sources.unsqueeze(1), targets.unsqueeze(1))
        scores: Tensor = self(same, others, relations)  # of a product: the order of both ends is all the same
        return scores

    def among(self, sources: Tensor, targets: Tensor, relations: Tensor, others: Tensor, num_targets: int) -> Tensor:
        """Score links with other ends that they share, as `BilinearHead.among` does."""
        of_sources = self(sources.unsqueeze(1), others[:num_targets], relations)
        return torch.cat([of_sources, self(targets.unsqueeze(1), others[num_targets:], relations)], dim=1)


AnyHead = BilinearHead | PerceptronHead


def build_head(spec: HeadSpec, channels: int, num_relations: int) -> AnyHead:
    """The head with its initial weights, drawn from torch's generator."""
    match spec:
        case PerceptronSpec():
            return PerceptronHead(channels, spec)
        case DotSpec():
            return BilinearHead(spec.kind, channels, 0)
        case DistMultSpec() | ComplExSpec():
            return BilinearHead(spec.kind, channels, max(num_relations, 1))


def link_losses(spec: LinkLossSpec, positive: Tensor, negative: Tensor) -> Tensor:
    """Loss of each link [n].

    Args:
        spec: which.
        positive: scores of the links [n].
        negative: scores of their negatives [n, count]; minus infinity where there is none.
    """
    match spec:
        case BinaryLossSpec():
            return F.softplus(-positive) + _mean(F.softplus(negative), negative)
        case MarginLossSpec(margin=margin):
            return _mean(F.relu(margin - positive.unsqueeze(1) + negative), negative)
        case SoftmaxLossSpec():
            return torch.cat([positive.unsqueeze(1), negative], dim=1).logsumexp(dim=1) - positive


def _mean(losses: Tensor, negative: Tensor) -> Tensor:
    """Mean over the negatives of each link [n]; 0 for a link without any."""
    counts = (negative > -torch.inf).sum(dim=1).clamp(min=1)
    return losses.sum(dim=1) / counts
