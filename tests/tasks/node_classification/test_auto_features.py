"""dataset.features=auto: what the planner makes of it, by what the data say of their columns."""

import numpy as np
import pytest

from graphmill.graph.features import dense
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import KIND, NodeClassificationExperiment


@pytest.mark.parametrize(
    ("scale", "asked", "planned"),
    [
        (1.0, "auto", "as_stored"),
        (1000.0, "auto", "standardised"),
        (1000.0, "as_stored", "as_stored"),
        (1.0, "standardised", "standardised"),
    ],
)
def test_features_of_unlike_scale_are_standardised_unless_asked_otherwise(tmp_path, scale, asked, planned):
    draw = np.random.default_rng(0)
    raw = LabelledGraph(
        edge_index=draw.integers(0, 60, (2, 150)),
        features=dense((draw.normal(size=(60, 3)) * [1, 1, scale]).astype(np.float32)),
        labels=np.arange(60) % 3,
        split=np.repeat([0, 1, 2], 20).astype(np.int8),
        name="made",
        source="a test",
        synthetic=True,
    )
    store = write_store(raw, tmp_path / "made")
    asked_of = {"dataset": {"name": str(store.path), "features": asked}}
    experiment = NodeClassificationExperiment.model_validate(asked_of)
    assert KIND.resolve(experiment, store.info(experiment.dataset)).features == planned
