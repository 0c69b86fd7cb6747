"""What learns little, or nothing of the graph: the mean of the training nodes, a linear map of a node's features."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.access.transform import transformed
from graphmill.graph.features import SparseFeatures, to_float32
from graphmill.graph.splits import Split
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.baselines import MOST_BYTES, MOST_OPERATIONS, BaselineScore, work_text
from graphmill.tasks.node_regression.data.store import ValuesStore
from graphmill.tasks.node_regression.nn.errors import measures, tally
from graphmill.tasks.node_regression.page import NodeRegressionPlan
from graphmill.tasks.node_regression.page.data import MEAN


def score(
    task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool
) -> Iterator[BaselineScore]:
    """`tasks.baselines.ScoresBaselines` of node regression."""
    assert isinstance(task_plan, NodeRegressionPlan)
    store = ValuesStore.open(Path(task_plan.dataset.path))
    mean = np.nanmean(store.values[store.nodes_in("train")].astype(np.float64), axis=0)
    for name in names:
        found = (
            np.broadcast_to(mean, store.values.shape)
            if name == MEAN.name
            else _linear(task_plan, store, bounded=bounded)
        )
        for split in splits:
            if isinstance(found, str):
                yield BaselineScore(name, split, None, found)
                continue
            nodes = store.nodes_in(split)
            guesses, truths = torch.from_numpy(found[nodes]), torch.from_numpy(store.values[nodes])
            yield BaselineScore(name, split, measures(tally(guesses, truths, torch.from_numpy(mean))))


def _linear(task_plan: NodeRegressionPlan, store: ValuesStore, *, bounded: bool) -> NDArray[np.float64] | str:
    """Least squares on the features of the training nodes and a bias, each value by itself [num_nodes, num_targets]."""
    known, train = task_plan.dataset, store.nodes_in("train")
    operations = 2.0 * len(train) * known.num_features**2 * known.num_targets
    num_bytes = 16.0 * known.num_nodes * (known.num_features + 1)
    if bounded and (operations > MOST_OPERATIONS or num_bytes > MOST_BYTES):
        work = work_text(operations, num_bytes)
        return f"it would take {work}: graphmill baseline {known.name} --all scores it"
    x = _rows(task_plan, store)
    found = np.empty(store.values.shape)
    for target, values in enumerate(store.values.T):
        ids = train[~np.isnan(values[train])]
        weight, *_ = np.linalg.lstsq(x[ids], values[ids].astype(np.float64), rcond=None)
        found[:, target] = x @ weight
    return found


def _rows(task_plan: NodeRegressionPlan, store: ValuesStore) -> NDArray[np.float64]:
    """Features as the plan has them and a column of ones, [num_nodes, num_features + 1]; scaling changes no fit."""
    features = (
        store.features if task_plan.features == "standardised" else transformed(store.features, task_plan.features)
    )
    if isinstance(features, SparseFeatures):
        x = np.zeros((features.num_nodes, features.num_features))
        x[np.repeat(np.arange(features.num_nodes), np.diff(features.indptr)), features.indices] = features.values
    else:
        x = to_float32(features).astype(np.float64)
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)
