"""A trained model on streams of frames: scores of windows, and which ids and edges weigh most in them.

What weighs is gradient times input: how far the score would move, to first order, if the features of an id, or of an
edge, were 0. Attention would be cheaper, but says how a node shares itself out among its edges, not whether the node
matters to the window.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.graph_set import offsets_of
from graphmill.tasks.intrusion.data.windows import WindowGraphs
from graphmill.tasks.intrusion.live import CauseWeights, LiveWindows
from graphmill.tasks.intrusion.nn.model import Detecting
from graphmill.tasks.intrusion.nn.portable import WindowScores


def detector(model: Detecting, *, window: int, stride: int) -> LiveWindows:
    """`model`, which trains no more. Its threshold is NaN if none was chosen."""
    threshold, judge = float(model.threshold), Judge(model)
    return LiveWindows(judge.score, judge.weigh, None if np.isnan(threshold) else threshold, window, stride)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Scores of windows, recorded by autograd."""

    graphs: WindowGraphs
    x: Tensor  # a leaf [n, num_features]
    edge_attr: Tensor  # a leaf [e, num_edge_features]
    scores: Tensor  # [num_graphs]


class Judge:
    """Scores and causes of windows.

    Recording takes longer than scoring, and is done for causes alone. Alarms follow each other, so after one the next
    scores are recorded at once: their causes need no second pass.
    """

    def __init__(self, model: Detecting) -> None:
        self.model = WindowScores(model.requires_grad_(False).eval())
        self._expects_alarm = False
        self._recorded: _Recorded | None = None

    def score(self, graphs: WindowGraphs) -> NDArray[np.float64]:
        """Scores of the windows [num_graphs]."""
        self._recorded = self._record(graphs) if self._expects_alarm else None
        self._expects_alarm = False
        if self._recorded is not None:
            return self._recorded.scores.detach().numpy()
        with torch.inference_mode():
            scores: NDArray[np.float64] = self.model(*_inputs(graphs)).numpy()
        return scores

    def weigh(self, graphs: WindowGraphs) -> CauseWeights:
        """Weights of the nodes and edges of each window, in their order."""
        recorded = self._recorded
        if recorded is None or recorded.graphs is not graphs:
            recorded = self._record(graphs)
        self._recorded, self._expects_alarm = None, True
        features = (recorded.x, recorded.edge_attr)
        # A model may read no features of edges: their gradient is 0.
        grads = torch.autograd.grad(recorded.scores.sum(), features, allow_unused=True, materialize_grads=True)
        of_nodes, of_edges = (
            (each.detach() * grad).sum(dim=1).abs().numpy() for each, grad in zip(features, grads, strict=True)
        )
        return CauseWeights(of_nodes, of_edges)

    def _record(self, graphs: WindowGraphs) -> _Recorded:
        x, edge_index, batch, edge_attr, ids = _inputs(graphs)
        x.requires_grad_()
        edge_attr.requires_grad_()
        return _Recorded(graphs, x, edge_attr, self.model(x, edge_index, batch, edge_attr, ids))


def _inputs(graphs: WindowGraphs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tensors that `WindowScores` reads."""
    first_nodes = offsets_of(graphs.num_nodes)[:-1]
    edge_index = graphs.edge_index + first_nodes.repeat(graphs.num_edges)
    batch = np.arange(len(graphs)).repeat(graphs.num_nodes)
    x, edge_attr, ids = graphs.x, graphs.edge_attr, graphs.node_ids.astype(np.int64)
    made = [torch.from_numpy(np.ascontiguousarray(each)) for each in (x, edge_index, batch, edge_attr, ids)]
    return made[0], made[1], made[2], made[3], made[4]
