"""PyG's models with `model.fused`: what they compute, and what they no longer write out."""

import dataclasses

import numpy as np
import pytest
import torch

pytest.importorskip("torch_geometric")

from graphmill.graph.features import DenseFeatures, SparseFeatures
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.data.sources.generate import generate
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.page.sizes import whole_pass
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment

ALONE = Group(0, 1, torch.device("cpu"))
MODELS = {"GCN": {}, "GraphSAGE": {}, "GIN": {}, "GAT": {"heads": 2}}
WIDTH = 30


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The same graph with features in both forms."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    raw = generate("sbm", {"num_nodes": 300, "num_edges": 1500, "features": 3, "communities": 4, "signal": 1.0}, "raw")
    x = (rng.random((300, WIDTH)) * (rng.random((300, WIDTH)) < 0.2)).astype(np.float32)
    rows, columns = np.nonzero(x)
    indptr = np.searchsorted(rows, np.arange(301)).astype(np.int64)
    sparse = SparseFeatures(indptr, columns.astype(np.int32), x[rows, columns], WIDTH)
    write_store(dataclasses.replace(raw, features=DenseFeatures(x, "float32")), folder / "dense")
    write_store(dataclasses.replace(raw, features=sparse), folder / "sparse")
    return folder


def planned(root, form: str, name: str, *, fused: bool = True, more: dict | None = None, **train):
    options = {"hidden_channels": 16, "num_layers": 2, **MODELS[name], **(more or {})}
    model = {"kind": "custom", "target": f"torch_geometric.nn.{name}", "options": options, "fused": fused}
    settings = {"epochs": 2, "batch_size": 40, "num_neighbors": [4, 3], "threads": 1, "prefetch": 0, **train}
    asked = {"dataset": {"name": form, "features": "as_stored"}, "model": model, "train": settings}
    experiment = NodeClassificationExperiment.model_validate(asked)
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def steps(task) -> dict[str, torch.Tensor]:
    """Gradients of an epoch's first batches, and the logits of all nodes."""
    for batch, _ in zip(task.batches(0, 0), range(3), strict=False):
        task.loss_sum(batch).backward()
    found = {name: parameter.grad for name, parameter in task.model.named_parameters()}
    return {**found, "logits": torch.from_numpy(task.predict(None, embeddings=False).values["logit"])}


@pytest.mark.parametrize("way", ["whole_graph", "neighbourhoods"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("name", MODELS)
def test_it_learns_and_predicts_what_pygs_layers_do(root, name, form, way, monkeypatch):
    plan = planned(root, form, name, evaluate_on=way)
    NodeClassification.check_model(plan, plan.task)
    wanted = steps(build_task(planned(root, form, name, fused=False, evaluate_on=way), ALONE))
    if form == "sparse" and name != "GIN":
        monkeypatch.setattr("graphmill.nn.subgraph.written_out", lambda _: pytest.fail("they were written out"))
    found = steps(build_task(plan, ALONE))
    assert list(found) == list(wanted)
    for key, value in wanted.items():  # as near as the layers are held to PyG's (tests/pyg/test_fusing.py)
        assert (found[key] - value).abs().max() <= 1e-5 * max(1.0, float(value.abs().max())), key


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("GraphSAGE", {"aggr": "max"}),
        ("GraphSAGE", {"project": True}),
        ("GCN", {"aggr": "mean"}),
        ("GAT", {"aggr": "mean"}),
        ("GAT", {"residual": True}),
    ],
    ids=str,
)
def test_what_pygs_code_computes_reads_features_written_out(root, name, more):
    task = build_task(planned(root, "sparse", name, more=more), ALONE)
    assert not task.model.called_with.sparse
    wanted = steps(build_task(planned(root, "sparse", name, more=more, fused=False), ALONE))
    for key, value in steps(task).items():
        assert (value - wanted[key]).abs().max() <= 1e-5 * max(1.0, float(wanted[key].abs().max())), key


def test_what_is_not_written_out_is_not_estimated(root):
    def size(form: str, name: str, *, fused: bool, **options: object) -> int:
        plan = planned(root, form, name, fused=fused)
        model = plan.task.model.model_copy(update={"options": {**plan.task.model.options, **options}})
        return whole_pass(plan.task.model_copy(update={"model": model})).num_bytes

    rows = 2 * 4 * WIDTH * 300
    assert size("sparse", "GCN", fused=True) == size("dense", "GCN", fused=True) - rows
    assert size("sparse", "GraphSAGE", fused=True) < size("dense", "GraphSAGE", fused=True) - rows
    for name in ("GCN", "GraphSAGE", "GAT"):  # nor are messages written
        assert size("dense", name, fused=True) < size("dense", name, fused=False)
    for form, name, options in (
        ("sparse", "GIN", {}),
        ("sparse", "GAT", {"residual": True}),
        ("sparse", "GraphSAGE", {"project": True}),
        ("sparse", "GraphSAGE", {"aggr": "max"}),
        ("sparse", "GCN", {"aggr": "mean"}),
        ("sparse", "GCN", {"cached": True}),
    ):
        assert size(form, name, fused=True, **options) == size(form, name, fused=False, **options)
