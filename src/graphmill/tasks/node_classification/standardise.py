"""Mean and standard deviation of features over the training nodes: what `dataset.features=standardised` subtracts."""

import torch

from graphmill.graph.features import DenseFeatures
from graphmill.nn.standardise import Standardise
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import NodeClassificationPlan
from graphmill.tasks.standardise import statistics


def standardise(own: NodeClassificationPlan, store: LabelledGraphStore) -> Standardise | None:
    """By the training nodes of the prepared data alone; None unless the plan asks for it."""
    if own.features != "standardised":
        return None
    features = store.features
    assert isinstance(features, DenseFeatures), "the plan was refused for sparse ones"
    mean, sd = statistics(features, store.nodes_in("train"))
    return Standardise(torch.from_numpy(mean), torch.from_numpy(sd))
