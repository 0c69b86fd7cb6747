"""Dropout drawn by coordinates: whether a value is dropped depends on (key of its row, its column) alone.

So a node's mask is the same on any rank, for any batch order and thread count, before and after a resume. The native
operators draw the same bits; this is their meaning in torch, used on other devices and for sparse values.
"""

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.keys import keys_below

_WORD = 0xFFFFFFFF


def row_keys(key: int, node_ids: Tensor) -> Tensor:
    """Keys of the rows of `node_ids` [n]: the 64 bits of each as int64 [n], on the CPU."""
    return torch.from_numpy(keys_below(key, node_ids.cpu().numpy()).view(np.int64))


def on_device_of(keys: Tensor, x: Tensor) -> Tensor:
    """Keys made on the CPU, on the device of `x`: copied without waiting for the device's pending work."""
    return keys if x.device.type == "cpu" else keys.pin_memory().to(x.device, non_blocking=True)


def drawn_bits(keys: Tensor, columns: Tensor) -> Tensor:
    """32 random bits, as int64, for each (row key, column) pair of two broadcastable int64 tensors.

    Murmur3's finaliser over a Weyl sequence, in 64-bit arithmetic cut back to 32 bits after each product.
    """
    low, high = keys & _WORD, (keys >> 32) & _WORD
    x = (columns * 0x9E3779B9 + low) & _WORD
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _WORD
    x = ((x ^ (x >> 13) ^ high) * 0xC2B2AE35) & _WORD
    return x ^ (x >> 16)


def kept(keys: Tensor, columns: Tensor, p: float) -> Tensor:
    """True where a value survives dropout with probability `p`; shapes as in `drawn_bits`."""
    return drawn_bits(keys, columns) >= min(round(p * 2**32), _WORD)


def drop_values(values: Tensor, keys: Tensor, columns: Tensor, p: float) -> Tensor:
    """Values with a share `p` set to 0 and the rest times 1 / (1 - p), which has other bits than a division."""
    return torch.where(kept(keys, columns, p), values * (1 / (1 - p)), torch.zeros_like(values))


def seed_torch(key: int) -> None:
    """Seed torch's generators before a step, as `torch.manual_seed` does.

    Where no GPU is in use it is the CPU's alone: for the others torch would keep the stack of each call.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch: unannotated
        torch.manual_seed(key)
    else:
        torch.default_generator.manual_seed(key)
