"""A trained model of windows outside training: called as `model(x, edge_index, batch, edge_attr, ids)`."""

import torch
from torch import Tensor, nn

from graphmill.graph.flat_batch import flat_batch
from graphmill.nn.can.gat import CanGat


class WindowClassifier(nn.Module):
    """A model of windows; features are standardised as in training."""

    def __init__(self, model: CanGat) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor, ids: Tensor) -> Tensor:
        """Logits of no attack and of an attack [num_graphs, 2].

        Args:
            x: features of nodes [num_nodes, 10], as they were prepared.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1.
            batch: int64 [num_nodes]: the window of each node, ascending.
            edge_attr: features of edges [num_edges, 11].
            ids: int64 [num_nodes]: CAN ids, bit 31 set where an id has 29 bits.

        Raises:
            ValueError: `batch` is not ascending, or an edge names a node that is not there.
        """
        halves = torch.stack([ids & 0xFFFF, (ids >> 16) & 0xFFFF], dim=1)
        rows = torch.cat([halves.to(x.dtype), x], dim=1)
        return self.model(flat_batch(rows, edge_index, batch, edge_attr))  # type: ignore[no-any-return]
