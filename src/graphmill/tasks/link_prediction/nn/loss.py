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
        negative: scores of their negatives [n, count].
    """
    match spec:
        case BinaryLossSpec():
            return F.softplus(-positive) + F.softplus(negative).mean(dim=1)
        case MarginLossSpec(margin=margin):
            return F.relu(margin - positive.unsqueeze(1) + negative).mean(dim=1)
        case SoftmaxLossSpec():
            return torch.cat([positive.unsqueeze(1), negative], dim=1).logsumexp(dim=1) - positive
