"""A trained model on streams of frames: scores of windows, and how they differ from benign traffic.

Causes are deviations from the reference that the model holds, not gradients of its score: those cannot name what is not
there, such as an id that another no longer follows.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.batch import GraphBatch, flat_batch
from graphmill.graph.graph_set import offsets_of
from graphmill.tasks.intrusion.data.store import id_columns
from graphmill.tasks.intrusion.data.windows import WindowGraphs
from graphmill.tasks.intrusion.live import CauseWeights, LiveWindows
from graphmill.tasks.intrusion.nn.model import Detecting
from graphmill.tasks.intrusion.reference import ids_of_pairs


def detector(model: Detecting, *, window: int, stride: int) -> LiveWindows:
    """`model`, which trains no more. Its threshold is NaN if none was chosen."""
    threshold, judge = float(model.threshold), Judge(model)
    return LiveWindows(judge.score, judge.attribute, None if np.isnan(threshold) else threshold, window, stride)


class Judge:
    """Scores of windows, and their deviations from benign traffic."""

    def __init__(self, model: Detecting) -> None:
        self.model = model.requires_grad_(False).eval()

    @torch.inference_mode()
    def score(self, graphs: WindowGraphs) -> NDArray[np.float64]:
        """Scores of the windows [num_graphs]."""
        scores: NDArray[np.float64] = self.model.scores(_batch(graphs)).numpy()
        return scores

    @torch.inference_mode()
    def attribute(self, graphs: WindowGraphs) -> CauseWeights:
        """Deviations of the nodes of each window, and frames of pairs that are too many, or missing."""
        reference, batch = self.model.inner.reference, _batch(graphs)
        ids = _edge_ids(graphs)
        too_many = torch.from_numpy(graphs.edge_attr[:, 0]) - reference.usual(ids[0], ids[1])
        pairs = reference.known_pairs
        return CauseWeights(
            of_nodes=reference(batch).numpy(),
            of_edges=too_many.clamp(min=0).numpy(),
            missing=reference.missing(batch)[:, : len(pairs)].numpy(),
            pairs=ids_of_pairs(pairs.numpy()),
        )


def _batch(graphs: WindowGraphs) -> GraphBatch:
    x = np.concatenate([id_columns(graphs.node_ids), graphs.x], axis=1)
    graph = np.arange(len(graphs)).repeat(graphs.num_nodes)
    made = (x, _ends(graphs), graph, np.ascontiguousarray(graphs.edge_attr))
    return flat_batch(*(torch.from_numpy(each) for each in made))


def _ends(graphs: WindowGraphs) -> NDArray[np.int64]:
    """Nodes of each edge, counted over all windows [2, e]."""
    return graphs.edge_index + offsets_of(graphs.num_nodes)[:-1].repeat(graphs.num_edges)


def _edge_ids(graphs: WindowGraphs) -> Tensor:
    return torch.from_numpy(graphs.node_ids[_ends(graphs)].astype(np.int64))
