"""A trained model of windows outside training: called as `model(x, edge_index, batch, edge_attr, ids)`."""

import torch
from torch import Tensor, nn

from graphmill.graph.flat_batch import flat_batch
from graphmill.tasks.intrusion.nn.model import Detecting


class WindowScores(nn.Module):
    """Scores of windows; features are standardised as in training. `threshold`: from which on they are alarms."""

    def __init__(self, model: Detecting) -> None:
        super().__init__()
        self.model = model

    @property
    def threshold(self) -> float:
        """Threshold of the scores; NaN: none was chosen."""
        return float(self.model.threshold)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor, ids: Tensor) -> Tensor:
        """The higher, the more like an attack [num_graphs], float64.

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
        return self.model.scores(flat_batch(rows, edge_index, batch, edge_attr))
