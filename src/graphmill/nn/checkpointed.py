"""Activation checkpointing (Chen et al. 2016, arXiv 1604.06174)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def call(layer: Callable[..., Tensor], *inputs: object, checkpointed: bool) -> Tensor:
    """layer(*inputs); if checkpointed, its gradient keeps nothing but the inputs, and computes the rest again.

    The generators' states are kept with them, so that dropout draws the same again, and no bit differs.
    """
    if not checkpointed or not torch.is_grad_enabled():
        return layer(*inputs)
    return checkpoint(layer, *inputs, use_reentrant=False)  # type: ignore[no-any-return]
