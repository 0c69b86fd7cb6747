"""Activation checkpointing (Chen et al. 2016, arXiv 1604.06174)."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.utils.checkpoint import checkpoint

Out = TypeVar("Out")  # a tensor, or a tuple of tensors


def call(layer: Callable[..., Out], *inputs: object, checkpointed: bool) -> Out:
    """layer(*inputs); if checkpointed, its gradient keeps nothing but the inputs, and computes the rest again.

    The generators' states are kept with them, so that dropout draws the same again, and no bit differs.
    """
    if not checkpointed or not torch.is_grad_enabled():
        return layer(*inputs)
    return checkpoint(layer, *inputs, use_reentrant=False)  # type: ignore[no-any-return]
