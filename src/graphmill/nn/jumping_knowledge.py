"""Jumping knowledge: what is computed of a node by all layers, read by one head (Xu et al. 2018, arXiv 1806.03536)."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Literal

import torch
from torch import Tensor, nn

from graphmill.nn.operators import linear


class JumpingKnowledge(nn.Module):
    """A linear head on a node's rows of all layers: beside each other (cat), or each channel's largest (max)."""

    def __init__(
        self,
        mode: Literal["cat", "max"],
        *,
        channels: int,
        num_layers: int,
        out_channels: int,
        training_dtype: torch.dtype,
    ) -> None:
        """`channels`: of each layer. `training_dtype`: of the factors of the product in training."""
        super().__init__()
        self.mode, self.out_channels, self.training_dtype = mode, out_channels, training_dtype
        self.weight = nn.Parameter(torch.empty(out_channels, channels * (num_layers if mode == "cat" else 1)))
        self.bias = nn.Parameter(torch.empty(out_channels))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Weights and bias uniform on ±1 / √(columns read), as `torch.nn.Linear` begins."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def read(self, rows: Sequence[Tensor]) -> Tensor:
        """What the head reads of the rows [n, channels] of each layer → [n, channels of all, or of one]."""
        return torch.cat(list(rows), dim=1) if self.mode == "cat" else reduce(torch.maximum, rows)

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        """Logits [n, out_channels] of the rows [n, channels] of each layer."""
        dtype = self.training_dtype if self.training else torch.float32
        x = self.read(rows).to(self.weight.device, dtype)  # exact inference may keep rows elsewhere
        return linear(x, self.weight, self.bias)
