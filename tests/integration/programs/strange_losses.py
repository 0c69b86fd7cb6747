"""Losses and measures that a person might bring."""

import torch
import torch.nn.functional as F
from torch import Tensor


def focal(logits: Tensor, labels: Tensor, gamma: float = 2.0) -> Tensor:
    """Cross-entropy that turns to what is hard (Lin et al. 2017)."""
    loss = F.cross_entropy(logits, labels, reduction="none")
    return (1 - (-loss).exp()) ** gamma * loss


def noisy(logits: Tensor, labels: Tensor, share: float = 0.2) -> Tensor:
    """Some labels are drawn anew at every step."""
    drawn = torch.randint(0, logits.shape[1], labels.shape)
    is_drawn = torch.rand(len(labels)) < share
    return F.cross_entropy(logits, torch.where(is_drawn, drawn, labels), reduction="none")


def far_ones_less(forecasts: Tensor, readings: Tensor, decay: float = 0.9) -> Tensor:
    """Absolute errors that count less the further ahead they are."""
    ahead = torch.arange(forecasts.shape[1])
    return (forecasts - readings).abs() * (decay**ahead)[:, None]


def mcc(logits: Tensor, labels: Tensor) -> float:
    """Matthews' correlation coefficient over a whole split."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(labels.numpy(), logits.argmax(dim=1).numpy()))


def brier(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean squared distance of the probabilities from the truth."""
    truth = F.one_hot(labels, logits.shape[1])
    return (logits.double().softmax(dim=1) - truth).square().sum(dim=1).mean()


def undefined(logits: Tensor, labels: Tensor) -> float:
    """No number."""
    return float("nan")


def squared(forecasts: Tensor, readings: Tensor) -> tuple[Tensor, Tensor]:
    """Squared errors and their number; missing readings are NaN."""
    errors = (forecasts - readings).double().square()
    return errors.nansum(), (~errors.isnan()).sum()


def largest(forecasts: Tensor, readings: Tensor) -> Tensor:
    """What cannot be added up."""
    return (forecasts - readings).abs().nan_to_num().max()
