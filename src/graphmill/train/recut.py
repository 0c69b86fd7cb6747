"""The resume state of a checkpoint for another number of ranks than wrote it.

A checkpoint is taken after a sync, so weights and the outer step's tensors are the same on all ranks, and no gradient
is under way. What may differ by rank is averaged: moments of optimizers that updated alone (local SGD). Where ranks are
alike, as after an all-reduce of gradients, the mean in float64 is exactly what each of them had.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from graphmill.record.manifest import Position


def merged(states: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """One state for all: the mean of tensors; of counts, which differ by steps without seeds, the largest."""
    totals: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    num_states = 0
    for state in states:
        num_states += 1
        for name, tensor in state.items():
            dtypes[name] = tensor.dtype
            if name not in totals:
                totals[name] = tensor.clone() if _is_count(tensor) else tensor.double()
            elif _is_count(tensor):
                totals[name] = torch.maximum(totals[name], tensor)
            else:
                totals[name] += tensor
    return {
        name: total if _is_count(total) else (total / num_states).to(dtypes[name]) for name, total in totals.items()
    }


def position_of(positions: Sequence[Position], rank: int) -> Position:
    """Position of `rank` where others wrote `positions` [num_writers]: rank 0 takes over what all had summed up."""
    first = positions[0]
    loss_sum = math.fsum(position.books.loss_sum for position in positions) if rank == 0 else 0.0
    return first.model_copy(update={"books": first.books.model_copy(update={"loss_sum": loss_sum})})


def _is_count(tensor: Tensor) -> bool:
    return tensor.dim() == 0 or not tensor.is_floating_point()
