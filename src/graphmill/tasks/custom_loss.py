"""User-defined losses, by dotted path: one number per item, so that ranks and batches can add them up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.keys import Purpose, key_of
from graphmill.graph.sampled import AnySeeds, SeedIds, Seeds
from graphmill.nn.draws import seed_torch
from graphmill.spec.experiment import CustomLossSpec
from graphmill.tasks.custom_code import called, find_function

_FIX: Final = "name a function, or a class such as torch.nn.CrossEntropyLoss with options: {reduction: none}"


@dataclass(frozen=True, slots=True)
class CustomLoss:
    """A loss as its author wrote it, and what its random draws are keyed by."""

    target: str
    function: Callable[..., Any]
    seed: int
    rank: int

    @classmethod
    def of(cls, spec: CustomLossSpec, *, seed: int, rank: int, device: torch.device) -> "CustomLoss":
        """The loss that a plan names. `UserError` if it has parameters, for nothing would train or save them."""
        function = find_function("train.loss", spec.target, spec.options, fix=_FIX)
        if isinstance(function, nn.Module):
            function = function.to(device)
            if next(function.parameters(), None) is not None:
                raise UserError(f"{spec.target} has parameters, which a loss cannot train", fix="put them in the model")
        return cls(spec.target, function, seed, rank)

    def sum(self, seeds: AnySeeds, outputs: Tensor, truths: Tensor, counts: Tensor | None = None) -> Tensor:
        """The loss added up over the items, or those that count; `outputs` are float32, of a training step or not.

        Its draws are from torch's generator, which is seeded by (seed, epoch, step, rank), so that a run repeats.
        """
        key = seeds.key(self.seed, Purpose.LOSS, self.rank) if isinstance(seeds, Seeds) else None
        seed_torch((key_of(self.seed, Purpose.LOSS) if key is None else key) >> 1)
        what = f"outputs {list(outputs.shape)} and truths {list(truths.shape)}"
        found = called(self.target, self.function, outputs, truths, what=what)
        problem = _problem_of(found, truths, trained=isinstance(seeds, Seeds))
        if problem is not None:
            raise UserError(
                f"{self.target} makes {problem} of {what}",
                fix=f"let it return the loss of each item, {list(truths.shape)}, float32, added up or averaged nowhere"
                " (reduction='none')",
            )
        loss: Tensor = found if counts is None else torch.where(counts, found, 0.0)
        return loss.sum()

    def try_out(self, outputs: Tensor, truths: Tensor) -> None:
        """Compute it of made-up outputs, forward and backward; `UserError` where it does not fit, or is not finite."""
        outputs = outputs.detach().requires_grad_()
        loss = self.sum(Seeds(0, 0, SeedIds(np.arange(len(truths)))), outputs, truths)
        given = f"outputs {list(outputs.shape)} and truths {list(truths.shape)}"
        called(f"the gradient of {self.target}", torch.autograd.backward, loss, what=given)
        if not loss.isfinite() or (outputs.grad is not None and not outputs.grad.isfinite().all()):
            raise UserError(
                f"{self.target}, or its gradient, is not finite for {given} drawn at random",
                fix="keep logarithms, roots and divisions away from 0",
            )


def _problem_of(returned: object, truths: Tensor, *, trained: bool) -> str | None:
    """What is wrong with what a loss returned, to follow "it makes"."""
    if not isinstance(returned, Tensor):
        return "nothing (None)" if returned is None else f"a {type(returned).__name__}, not a tensor,"
    if returned.shape != truths.shape:
        return f"{list(returned.shape)}" if returned.dim() else "one number ([])"
    if not returned.is_floating_point():
        return f"whole numbers ({returned.dtype})"
    if trained and not returned.requires_grad:
        return "values that depend on no output (detached, or counted)"
    return None
