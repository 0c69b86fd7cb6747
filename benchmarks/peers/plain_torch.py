"""Node classification as a short script with torch alone does it: one epoch, an evaluation, the weights written.

    python plain_torch.py GRAPH.npz WEIGHTS

GraphSAGE of two layers with means, on the whole graph at each step: nothing is sampled.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

HIDDEN = 256


class Mean(nn.Module):
    """A layer of GraphSAGE."""

    def __init__(self, inputs: int, outputs: int, edges: Tensor, degree: Tensor) -> None:
        super().__init__()
        self.own, self.neighbours = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)
        self.edges, self.degree = edges, degree

    def forward(self, x: Tensor) -> Tensor:
        """Values of nodes [num_nodes, outputs]."""
        sums = torch.zeros_like(x).index_add_(0, self.edges[1], x[self.edges[0]])
        return self.own(x) + self.neighbours(sums / self.degree)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with np.load(sys.argv[1]) as arrays:
        edges, x, y, split = (torch.from_numpy(arrays[name]) for name in ("edge_index", "x", "y", "split"))
    degree = torch.bincount(edges[1], minlength=len(x)).clamp(min=1).unsqueeze(1)
    model = nn.Sequential(
        Mean(x.shape[1], HIDDEN, edges, degree), nn.ReLU(), nn.Dropout(), Mean(HIDDEN, int(y.max()) + 1, edges, degree)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer.zero_grad()
    F.cross_entropy(model(x)[split == 0], y[split == 0]).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float()
    torch.save(model.state_dict(), sys.argv[2])
    print(f"val {right[split == 1].mean():.4f} test {right[split == 2].mean():.4f}")


if __name__ == "__main__":
    main()
