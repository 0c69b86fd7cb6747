"""A trained model on streams of frames: scores of windows, and which ids and edges weigh most in them.

What weighs is gradient times input: how far the score would move, to first order, if the features of an id, or of an
edge, were 0. Attention would be cheaper, but says how a node shares itself out among its edges, not whether the node
matters to the window.
"""

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.tasks.intrusion.data.windows import WindowGraphs
from graphmill.tasks.intrusion.live import LiveWindows
from graphmill.tasks.intrusion.live import Weights as Weighing
from graphmill.tasks.intrusion.nn.fixed import fixed
from graphmill.tasks.intrusion.nn.fixed_layers import WindowBatch
from graphmill.tasks.intrusion.nn.model import Detecting


def detector(model: Detecting, *, window: int, stride: int) -> LiveWindows:
    """`model` as it is now, not in training mode. Its threshold is NaN if none was chosen."""
    threshold, judge = float(model.threshold), Judge(model)
    return LiveWindows(judge.score, judge.weigh, None if np.isnan(threshold) else threshold, window, stride)


class Judge:
    """Scores and causes of windows; causes of windows that were scored last are not computed from the beginning."""

    def __init__(self, model: Detecting) -> None:
        self.model = fixed(model.inner)
        self._scored: WindowGraphs | None = None

    def score(self, graphs: WindowGraphs) -> NDArray[np.float64]:
        """Of each [num_graphs]."""
        self._scored, self._windows = graphs, windows_of(graphs)
        return self.model.scores(self._windows)

    def weigh(self, graphs: WindowGraphs) -> Weighing:
        """Of the nodes and edges of each, in their order."""
        if graphs is not self._scored:
            self.score(graphs)
        moves = self.model.moves(self._windows, np.ones(len(graphs)))
        return Weighing(np.abs(moves.of_nodes), np.abs(moves.of_edges))


def windows_of(graphs: WindowGraphs) -> WindowBatch:
    """As models with fixed weights read them."""
    first_nodes = np.cumsum(graphs.num_nodes) - graphs.num_nodes
    return WindowBatch(
        num_nodes=graphs.num_nodes,
        ends=graphs.edge_index + first_nodes.repeat(graphs.num_edges),
        edges=_native.GraphEdges(graphs.num_nodes, graphs.num_edges, np.ascontiguousarray(graphs.edge_index)),
        ids=graphs.node_ids.astype(np.int64),
        x=np.ascontiguousarray(graphs.x),
        attr=np.ascontiguousarray(graphs.edge_attr),
    )
