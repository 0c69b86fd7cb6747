"""User-defined measures, by dotted path, called by one of two contracts, both exact for any ranks and batches.

Of a whole split: rank 0 calls them once with the outputs of all ranks in the order of the split. Of parts: every rank
calls them with what it evaluates, each returns (total, weight), and what they are added up over all ranks is divided.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import torch
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.spec.plan import Plan
from graphmill.tasks.custom_code import called, find_function

_log = logging.getLogger(__name__)
_FIX: Final = "name a function that takes outputs and truths"


@dataclass(frozen=True, slots=True)
class CustomMeasures:
    """User-defined measures of a plan, by name, each with its dotted path."""

    functions: Mapping[str, tuple[str, Callable[..., Any]]]

    @classmethod
    def of(cls, plan: Plan) -> "CustomMeasures":
        """`UserError` if one of them cannot be found."""
        return cls(
            {
                name: (spec.target, find_function(f"train.measures.{name}", spec.target, spec.options, fix=_FIX))
                for name, spec in plan.measures.items()
            }
        )

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.functions)

    @torch.no_grad()
    def of_split(self, outputs: Tensor, truths: Tensor) -> Tensor:
        """The value of each over a whole split, float64 [num_measures]."""
        values = [_number(target, function, outputs, truths) for target, function in self.functions.values()]
        return torch.tensor(values, dtype=torch.float64)

    @torch.no_grad()
    def of_part(self, outputs: Tensor, truths: Tensor) -> Tensor:
        """What each returns of a part of a split, float64 [num_measures, 2]: totals and weights, to be added up."""
        found = [_pair(target, function, outputs, truths) for target, function in self.functions.values()]
        return torch.tensor(found, dtype=torch.float64).view(-1, 2)

    def quotients(self, sums: Tensor) -> Tensor:
        """Totals by weights, float64 [num_measures]; no number where the weight is 0."""
        return sums[:, 0] / sums[:, 1]

    def by_name(self, values: Tensor, split: str, *, tells: bool) -> dict[str, float]:
        """Finite values by name; the others are recorded nowhere, and `tells`: a warning about them is logged."""
        found = dict(zip(self.functions, cast("list[float]", values.tolist()), strict=True))
        for name in [name for name, value in found.items() if not math.isfinite(value)]:
            value = found.pop(name)
            if tells:
                _log.warning(f"{name} is {value} on the {split} split: left out")
        return found


def _number(target: str, function: Callable[..., Any], outputs: Tensor, truths: Tensor) -> float:
    what = _describe(outputs, truths)
    found = called(target, function, outputs, truths, what=what)
    number = None if isinstance(found, str) else _float(found)
    if number is None:
        raise UserError(
            f"{target} makes {_shown(found)} of {what}", fix="let it return one number, for all of them together"
        )
    return number


def _pair(target: str, function: Callable[..., Any], outputs: Tensor, truths: Tensor) -> tuple[float, float]:
    what = _describe(outputs, truths)
    found = called(target, function, outputs, truths, what=what)
    both = [_float(each) for each in found] if isinstance(found, tuple) else []
    if len(both) != 2 or both[0] is None or both[1] is None:  # a total and its weight
        raise UserError(
            f"{target} makes {_shown(found)} of {what}",
            fix="let it return (total, weight): both are added up over batches and ranks, then divided",
        )
    return both[0], both[1]


def _float(returned: object) -> float | None:
    try:
        return float(returned)  # type: ignore[arg-type]  # whatever a stranger's code returned
    except (TypeError, ValueError, RuntimeError):
        return None


def _describe(outputs: Tensor, truths: Tensor) -> str:
    return f"outputs {list(outputs.shape)} and truths {list(truths.shape)}"


def _shown(returned: object) -> str:
    if isinstance(returned, Tensor):
        return f"a tensor {list(returned.shape)}"
    return "nothing (None)" if returned is None else f"a {type(returned).__name__}"
