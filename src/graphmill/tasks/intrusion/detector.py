"""A trained model on streams of frames: scores of windows, and what weighs in them."""

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.graph.batch import GraphBatch
from graphmill.tasks.intrusion.causes import batch_of, weighed
from graphmill.tasks.intrusion.live import LiveWindows
from graphmill.tasks.intrusion.live import Weights as Weighing
from graphmill.tasks.intrusion.model import Detecting
from graphmill.tasks.intrusion.store import id_columns
from graphmill.tasks.intrusion.windows import WindowGraphs


def detector(model: Detecting, *, window: int, stride: int) -> LiveWindows:
    """`model`: not in training mode. Its threshold is NaN if none was chosen."""
    threshold = float(model.threshold)

    @torch.no_grad()
    def score(graphs: WindowGraphs) -> NDArray[np.float64]:
        return model.scores(_batch(graphs)).numpy()

    def weigh(graphs: WindowGraphs) -> Weighing:
        return weighed(model, model.scores, graphs, _batch(graphs))

    return LiveWindows(score, weigh, None if np.isnan(threshold) else threshold, window, stride)


def _batch(graphs: WindowGraphs) -> GraphBatch:
    x = np.concatenate([id_columns(graphs.node_ids), graphs.x], axis=1)
    return batch_of(graphs, x, graphs.edge_attr)
