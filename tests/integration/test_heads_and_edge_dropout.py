"""Residual layers, jumping knowledge, dropout of edges: the same weights and scores whatever happens to a run."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killing import Tally, assert_same, run_with_kills
from labelled_stores import made_store, split_made
from trained_runs import hashes, losses, trained

import graphmill
from graphmill.base.errors import UserError
from graphmill.graph.features import SparseFeatures
from graphmill.nn.weights import Weights
from graphmill.record.run_folder import RunFolder
from graphmill.spec.plan import Plan
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment
from graphmill.train.evaluate import open_run

pytestmark = pytest.mark.distributed


@pytest.fixture(params=["dense, cat", "sparse, max"])
def planned(request, tmp_path_factory):
    """Two ranks, several steps of each an epoch; a residual hidden layer, and a head on all three."""
    root, (form, mode) = tmp_path_factory.mktemp("data"), request.param.split(", ")
    store = made_store(root / "made", num_nodes=150, num_edges=700, is_sparse=form == "sparse")
    split_made(store, root / "parts" / "made" / "2-ldg", num_parts=2)

    def plan(dataset: str = "made", **train: Any) -> Plan:
        raw = {
            "dataset": {"name": dataset},
            "model": {
                "kind": "graphsage",
                "hidden_channels": 8,
                "num_layers": 3,
                "residual": True,
                "jumping_knowledge": mode,
            },
            "train": {
                "epochs": 3,
                "batch_size": 4,
                "num_neighbors": [3, 3, 3],
                "edge_dropout": 0.3,
                "ranks": 2,
                "threads": 1,
                "baselines": False,
                "device": "cpu",
                "checkpoint": {"every_steps": 2},
                **train,
            },
        }
        if dataset != "made":
            raw["partition"] = {
                "placement": "per_rank",
                "seeds": "equal",
                "topology": "partitioned",
                "cache": {"policy": "none"},
            }
        experiment = NodeClassificationExperiment.model_validate(raw)
        return plan_experiment(experiment, dataset_root=root, run_id="run")

    return plan


def test_killed_in_parts_and_with_other_ranks(zygote, planned, tmp_path):
    whole = trained(zygote, planned(), tmp_path / "whole")
    killed = RunFolder.create(planned(), tmp_path / "killed")
    run_with_kills(zygote, killed, random.Random(0), Tally(), num_kills=2, most_s=whole.read_outcome().wall_s / 3)
    assert_same(killed, whole)
    assert hashes(trained(zygote, planned(prefetch=0, threads=2), tmp_path / "other")) == hashes(whole)
    in_parts = trained(zygote, planned("parts/made/2-ldg"), tmp_path / "parts")
    assert hashes(in_parts) == hashes(whole)
    assert in_parts.read_outcome().test == whole.read_outcome().test
    alone = trained(zygote, planned(ranks=1, batch_size=8), tmp_path / "alone")
    assert losses(alone) == pytest.approx(losses(whole), abs=1e-5)
    assert alone.read_outcome().test == pytest.approx(whole.read_outcome().test)
    assert hashes(trained(zygote, planned(edge_dropout=0.0), tmp_path / "all")) != hashes(whole)


def test_as_loaded_and_what_weights_of_another_form_are_told(zygote, planned, tmp_path):
    folder, before = trained(zygote, planned(ranks=1), tmp_path), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run, model = open_run(folder, "best"), graphmill.load(folder.path)
        expected = run.task.predict(None, embeddings=True).values
        x, edge_index = graph_of(Path(run.plan.dataset.path))
        with torch.no_grad():
            assert torch.equal(model(x, edge_index), torch.from_numpy(expected["logit"]))
            assert torch.equal(model.embed(x, edge_index), torch.from_numpy(expected["embedding"]))
    finally:
        torch.set_num_threads(before)
    asked = run.plan.task.model.model_copy(update={"jumping_knowledge": "none", "residual": False})
    other = run.plan.model_copy(update={"task": run.plan.task.model_copy(update={"model": asked})})
    weights = Weights.of_run(folder, "best", lambda message: None)
    with pytest.raises(UserError, match=r"layers\.2\.bias"):
        NodeClassification.inference_model(other, weights)


def graph_of(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and both directions of the edges, as a user of PyG has them."""
    store = LabelledGraphStore.open(path)
    topology, features = store.topology(undirected=True), store.features
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    edges = torch.from_numpy(np.stack([np.asarray(topology.indices, dtype=np.int64), targets]))
    if not isinstance(features, SparseFeatures):
        return torch.from_numpy(np.array(features.x)), edges
    parts = (torch.from_numpy(np.array(each)) for each in (features.indptr, features.indices, features.values))
    return torch.sparse_csr_tensor(*parts, size=(features.num_nodes, features.num_features)), edges
