"""A model that writes down which nodes it was really trained on.

The first feature of a node is its id, exactly. The rows of the logits that the loss's gradient reaches are those that
count in the loss: a hook on the logits appends their ids to a file of this process. What is scheduled, padded, masked
or evaluated does not matter.
"""

import os
from pathlib import Path

import torch
from torch import Tensor, nn


class RecordsIds(nn.Module):
    """Called as model(x, edge_index). `folder`: where the files of ids are, one of each process."""

    def __init__(self, in_channels: int, out_channels: int, folder: str) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels - 1, out_channels)
        self.folder = Path(folder)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.linear(x[:, 1:]) + 0 * edge_index.sum()
        if self.training and out.requires_grad and "RANK" in os.environ:  # not when it is only tried, before the run
            ids = x[:, 0].detach().to(torch.int64)
            out.register_hook(lambda gradient: self._write(ids[gradient.abs().sum(1) > 0]))
        return out

    def _write(self, ids: Tensor) -> None:
        with (self.folder / f"{os.getpid()}.txt").open("a") as file:
            file.writelines(f"{number}\n" for number in ids.tolist())
