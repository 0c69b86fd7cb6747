"""Losses of node regression, and measures that ranks can add up. A value that is not known (NaN) counts nowhere."""

from typing import assert_never

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill.tasks.node_regression.page import ValueLossSpec

_SUMS = 5  # of each value: known ones, absolute errors, squared errors, values, squared values
_ROUNDING = 1e-12  # of a sum of squares: what is left of a constant


def value_losses(loss: ValueLossSpec, predictions: Tensor, truths: Tensor) -> Tensor:
    """The loss of each value [n, num_targets], in standard deviations; 0 of those that are not known.

    Args:
        loss: which one.
        predictions: [n, num_targets], standardised.
        truths: values [n, num_targets], standardised; NaN: not known.
    """
    errors = torch.where(truths.isnan(), 0.0, predictions - truths)
    match loss.kind:
        case "mse":
            return errors.square()
        case "l1":
            return errors.abs()
        case "huber":
            return F.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=loss.delta)
        case _:
            assert_never(loss.kind)


def tally(predictions: Tensor, truths: Tensor, centre: Tensor) -> Tensor:
    """One rank's sums of each value, float64 [5, num_targets]: known, |error|, error², value, value².

    Args:
        predictions: [n, num_targets] in the data's units.
        truths: values [n, num_targets]; NaN: not known.
        centre: [num_targets], what values are counted from: squares of what is far from 0 would lose their digits.
    """
    is_known, truths = ~truths.isnan(), truths.double()
    errors = torch.where(is_known, predictions.double() - truths, 0.0)
    values = torch.where(is_known, truths - centre.double(), 0.0)
    rows = (is_known.double(), errors.abs(), errors.square(), values, values.square())
    return torch.stack([each.sum(dim=0) for each in rows])


def measures(total: Tensor) -> dict[str, float]:
    """The measures of tallies [5, num_targets] added up over the ranks.

    r2 is a mean over the values as scikit-learn's `r2_score` has it: 0 of a constant that is not met, 1 if it is. A
    value that is known of no node counts in none of them.
    """
    total = total.view(_SUMS, -1)
    known, absolute, squared, values, squares = total[:, total[0] > 0]
    spread = squares - values.square() / known
    is_constant = spread <= _ROUNDING * squares
    r2 = torch.where(is_constant, (squared == 0).double(), 1 - squared / torch.where(is_constant, 1.0, spread))
    return {
        "rmse": float((squared.sum() / known.sum()).sqrt()),
        "mae": float(absolute.sum() / known.sum()),
        "r2": float(r2.mean()),
    }
