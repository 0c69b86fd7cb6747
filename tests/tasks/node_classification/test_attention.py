"""GAT and GATv2 of the house: what PyG's are, on sampled neighbourhoods, with and without features of edges."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GATv2Conv

from graphmill.base.errors import UserError
from graphmill.graph.features import dense
from graphmill.nn.weights import Weights
from graphmill.record.weights import Origin
from graphmill.spec.kinds.kind import StepShape
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification import attended
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import KIND, NodeClassificationExperiment
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment

ALONE = Group(0, 1, torch.device("cpu"))
NUM_NODES, HEADS = 120, 2


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    write_store(
        LabelledGraph(
            edge_index=rng.integers(0, NUM_NODES, (2, 500)),
            features=dense(rng.normal(size=(NUM_NODES, 6))),
            labels=np.arange(NUM_NODES) % 4,
            split=(np.arange(NUM_NODES) % 3).astype(np.int8),
            name="edgy",
            source="random",
            synthetic=True,
            edge_features=rng.normal(size=(500, 3)).astype(np.float32),
            edge_feature_names=("a", "b", "c"),
        ),
        root / "edgy",
    )
    return root


def plan_of(root, *, edges=True, train=None, **model):
    experiment = NodeClassificationExperiment.model_validate(
        {
            "dataset": {"name": "edgy", "edge_features": "edge_attr" if edges else None},
            "model": {"hidden_channels": 5, "heads": HEADS, "dropout": 0.0, **model},
            "train": {"epochs": 2, "batch_size": 40, "num_neighbors": [-1, -1], "threads": 1, **(train or {})},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def task(root, **model) -> NodeClassification:
    built = build_task(plan_of(root, **model), ALONE)
    assert isinstance(built, NodeClassification)
    return built


@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize(("kind", "conv"), [("gat", GATConv), ("gatv2", GATv2Conv)])
def test_exact_inference_is_that_of_pyg_on_the_whole_graph(root, kind, conv, edges):
    one = task(root, kind=kind, edges=edges)
    topology, inner = one.access.store.topology(undirected=True), one.model.inner
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    edge_index = torch.from_numpy(np.stack([topology.indices, targets]).astype(np.int64))
    attr = None
    if edges:
        features = one.access.store.edge_features(undirected=True)
        attr = torch.from_numpy(features.values[features.rows_of(np.arange(topology.num_edges))])
    dim = 3 if edges else None
    layers = [conv(6, 5, HEADS, edge_dim=dim), conv(5 * HEADS, 4, HEADS, concat=False, edge_dim=dim)]
    for layer, ours in zip(layers, inner.layers, strict=True):
        layer.load_state_dict(ours.state_dict())
    x = torch.from_numpy(one.access.store.features.x)
    with torch.no_grad():
        theirs = layers[1](F.elu(layers[0](x, edge_index, attr)), edge_index, attr)
    one.model.eval()
    nodes, logits = one.exact_logits(np.arange(NUM_NODES), lambda: None)
    assert nodes.tolist() == list(range(NUM_NODES))
    torch.testing.assert_close(logits, theirs, rtol=1e-4, atol=1e-5)
    # And what leaves is called as PyG's models are.
    origin = Origin(run_id="r", task=KIND.name, dataset="edgy", step=0, epoch=0, plan_hash="", measures={})
    loaded = NodeClassification.inference_model(one.plan, Weights.of(one.model.state_dict(), origin)).eval()
    given = {"edge_attr": attr} if edges else {}
    torch.testing.assert_close(loaded(x, edge_index, **given), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_a_formula_counts_the_parameters(root, kind):
    for more in ({}, {"edges": False}, {"num_layers": 1, "train": {"num_neighbors": [3]}}):
        plan = plan_of(root, kind=kind, **more)
        counted = sum(each.numel() for each in build_task(plan, ALONE).model.parameters())
        assert KIND.sizes(plan.task, StepShape(40, "cpu", "fp32")).num_parameters == counted


def test_it_is_trained_on_sampled_neighbourhoods(root):
    one = task(root, kind="gat", attention_dropout=0.3, train={"num_neighbors": [3, 2]})
    optimizer = torch.optim.Adam(one.model.parameters(), lr=0.01)
    before = one.evaluate("train").loss
    for epoch in range(20):
        for batch in one.batches(epoch % 2, 0):
            optimizer.zero_grad()
            (one.loss_sum(batch) / batch.num_seeds).backward()
            optimizer.step()
    assert one.evaluate("train").loss < before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "gat", "train": {"num_neighbors": [3]}}, "1 fan-outs, but model.num_layers is 2"),
        ({"kind": "gat", "train": {"precision": "bf16", "num_neighbors": [3, 3]}}, "train.precision is bf16"),
        ({"kind": "gatv2", "train": {"device": "cuda", "num_neighbors": [3, 3]}}, "train.device is cuda"),
    ],
)
def test_what_does_not_fit_is_refused(root, changes, says):
    with pytest.raises(UserError, match=says):
        plan_of(root, **changes)


def test_weights_alone_are_not_read(root):
    asked = {"dataset": {"name": "edgy", "edge_features": "edge_weight"}, "model": {"kind": "gat"}}
    train = {"num_neighbors": [3, 3]}
    with pytest.raises(UserError, match="features of edges and no weights"):
        plan_experiment(
            NodeClassificationExperiment.model_validate({**asked, "train": train}), dataset_root=root, run_id="run"
        )


def test_checkpointed_activations_are_planned_with_less_memory(root):
    every, few = (
        KIND.sizes(
            plan_of(
                root,
                kind="gat",
                num_layers=3,
                checkpoint_activations=is_on,
                train={"num_neighbors": [3, 3, 3], "evaluate_on": "neighbourhoods"},
            ).task,
            StepShape(40, "cpu", "fp32"),
        ).activation_bytes
        for is_on in (False, True)
    )
    assert every / 3 < few < every * 0.75


def whole_graph(one):
    """x, edge_index and edge_attr as a user of PyG has them."""
    topology, features = one.access.store.topology(undirected=True), one.access.store.edge_features(undirected=True)
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    edge_index = torch.from_numpy(np.stack([topology.indices, targets]).astype(np.int64))
    attr = torch.from_numpy(features.values[features.rows_of(np.arange(topology.num_edges))])
    return torch.from_numpy(np.array(one.access.store.features.x)), edge_index, attr


@pytest.mark.parametrize("rows_at_a_time", [7, 10_000])
@pytest.mark.parametrize(("kind", "conv"), [("gat", GATConv), ("gatv2", GATv2Conv)])
def test_attention_is_that_of_pyg(root, kind, conv, rows_at_a_time, monkeypatch):
    monkeypatch.setattr(attended, "_ROWS_AT_A_TIME", rows_at_a_time)
    one = task(root, kind=kind, attention_dropout=0.5)
    x, edge_index, attr = whole_graph(one)
    layers = [conv(6, 5, HEADS, edge_dim=3), conv(5 * HEADS, 4, HEADS, concat=False, edge_dim=3)]
    expected = []
    with torch.no_grad():
        for layer, ours in zip(layers, one.model.inner.layers, strict=True):
            layer.load_state_dict(ours.state_dict())
            out, (edges, alpha) = layer(x, edge_index, attr, return_attention_weights=True)
            expected.append(dict(zip(map(tuple, edges.t().tolist()), alpha.numpy(), strict=True)))
            x = F.elu(out)
    for splits in (None, ["val"]):
        found = one.attention(splits)
        assert (found.names, found.heads) == (("source", "target"), HEADS)
        asked = np.arange(NUM_NODES) if splits is None else one.access.store.nodes_in("val")
        seen = [set(), set()]
        for part in found.parts:
            for source, target, alpha in zip(*part.ids, part.alpha, strict=True):
                np.testing.assert_allclose(alpha, expected[part.layer][source, target], rtol=1e-4, atol=1e-6)
                seen[part.layer].add((source, target))
        for layer, pairs in enumerate(expected):
            assert seen[layer] == {pair for pair in pairs if pair[1] in set(asked)}
    assert one.model.training


def test_models_without_attention_are_told(root):
    experiment = {"dataset": {"name": "edgy"}, "model": {"kind": "graphsage"}, "train": {"epochs": 1, "threads": 1}}
    plan = plan_experiment(NodeClassificationExperiment.model_validate(experiment), dataset_root=root, run_id="run")
    with pytest.raises(UserError, match=r"model\.kind graphsage has no layers of attention"):
        build_task(plan, ALONE).attention(None)
