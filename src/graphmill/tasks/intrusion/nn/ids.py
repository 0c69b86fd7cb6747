"""Embedding of CAN ids, seen or not: hash embeddings (Svenstrup et al. 2017, arXiv 1709.03933)."""

from typing import Final

import torch
from torch import Tensor, nn

NUM_ID_COLUMNS: Final = 2
"""Of `x`: the lower and the upper 16 bits of an id, each exact in float32. The features follow."""
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
        self.hidden = hidden
        self.table = nn.Parameter(torch.zeros(rows, channels))

    def forward(self, ids: Tensor) -> Tensor:
        """[n] int64, of 32 bits → [n, channels]."""
        embedded = self.table[row_of(ids, len(self.table))] + self.table[row_of(ids, len(self.table), probe=1)]
        if self.training and self.hidden:
            embedded = embedded * (torch.rand(len(ids), 1, device=ids.device) >= self.hidden)
        return embedded


def ids_of(x: Tensor) -> Tensor:
    """The ids in the first columns of `x` [n, …], int64 [n]."""
    halves = x[:, :NUM_ID_COLUMNS].long()
    return halves[:, 0] + (halves[:, 1] << 16)


def row_of(ids: Tensor, rows: int, probe: int = 0) -> Tensor:
    """Multiply-shift hashing (Dietzfelbinger et al. 1997): ids [n] of 32 bits → 0 … rows − 1, rows a power of 2."""
    return (ids * _FACTORS[probe] & 0xFFFFFFFF) >> (_BITS - (rows.bit_length() - 1))
