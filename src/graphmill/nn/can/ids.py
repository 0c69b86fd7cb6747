"""Embedding of CAN ids, seen or not: hash embeddings (Svenstrup et al. 2017, arXiv 1709.03933)."""

from typing import Final

import torch
from torch import Tensor, nn

_FACTORS: Final = (0x9E3779B1, 0x85EBCA77)  # odd, one for each probe
_BITS: Final = 32


class HashedIds(nn.Module):
    """The sum of two rows of a table, chosen by two hashes of an id; two ids share both rows with chance 1 / rows².

    Rows begin as zeros, which is also what a hidden id gives: ids are hidden at random while training, so that the
    model knows what zeros mean, and an id that was never seen gives about that.
    """

    def __init__(self, rows: int, channels: int, *, hidden: float) -> None:
        """`rows`: a power of 2. `hidden`: probability of hiding an id while training."""
        super().__init__()
        if rows < 1 or rows & (rows - 1):
            raise ValueError(f"rows is {rows}, and must be a power of 2")
        self.shift, self.hidden = _BITS - (rows.bit_length() - 1), hidden
        self.table = nn.Parameter(torch.zeros(rows, channels))

    def forward(self, ids: Tensor) -> Tensor:
        """[n] int64, of 32 bits → [n, channels]."""
        embedded = sum((self.table[self.row_of(ids, factor)] for factor in _FACTORS), torch.zeros(()))
        if self.training and self.hidden:
            embedded = embedded * (torch.rand(len(ids), 1, device=ids.device) >= self.hidden)
        return embedded

    def row_of(self, ids: Tensor, factor: int) -> Tensor:
        """Multiply-shift hashing (Dietzfelbinger et al. 1997): the upper bits of the lower half of a product."""
        return (ids * factor & 0xFFFFFFFF) >> self.shift
