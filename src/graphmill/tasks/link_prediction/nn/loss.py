"""Losses of links and their negatives: one number for each link, the mean over its negatives inside."""

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill.tasks.link_prediction.page.models import BinaryLossSpec, LinkLossSpec, MarginLossSpec, SoftmaxLossSpec


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
