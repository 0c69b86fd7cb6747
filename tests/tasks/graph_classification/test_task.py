"""The task: gradients that add up over ranks, GIN as PyG has it, weights that leave, models of one's own."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATConv, GATv2Conv, GINConv

from graphmill.base.errors import UserError
from graphmill.graph.batch import GraphBatch
from graphmill.nn.weights import Weights
from graphmill.record.weights import Origin
from graphmill.spec.kinds.kind import StepShape
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.graph_classification.data.prepare import GENERATED, prepare_requested
from graphmill.tasks.graph_classification.nn.model import arguments, edge_arguments
from graphmill.tasks.graph_classification.page import KIND, GraphClassificationExperiment, GraphSetPrepareOptions
from graphmill.tasks.graph_classification.task import GraphClassification
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.stores import Preparation

ORIGIN = Origin(run_id="run", task=KIND.name, dataset=GENERATED, step=0, epoch=0, plan_hash="", measures={})
SMALL = {"kind": "gin", "dropout": 0.0, "hidden_channels": 8, "num_layers": 3}
MACHINE = MachineInfo(num_cores=2, num_gpus=0)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("graphs")
    prepare_requested(Preparation(GENERATED, root, GraphSetPrepareOptions(num_graphs=90)))
    rng = np.random.default_rng(0)
    num_nodes, num_edges = rng.integers(1, 9, 60), rng.integers(0, 30, 60)
    np.savez(
        root / "edges.npz",
        num_nodes=num_nodes,
        num_edges=num_edges,
        edge_index=rng.integers(0, np.repeat(num_nodes, num_edges), (2, num_edges.sum())),
        x=rng.normal(size=(num_nodes.sum(), 3)).astype(np.float32),
        edge_attr=rng.normal(size=(num_edges.sum(), 5)).astype(np.float32),
        y=np.arange(60) % 3,
    )
    prepare_requested(Preparation("edges", root, GraphSetPrepareOptions(), from_path=root / "edges.npz"))
    return root


def small(model: dict) -> dict:
    of_attention = {"dropout": 0.0, "hidden_channels": 4, "num_layers": 3}
    return {**(SMALL if model.get("kind", "gin") == "gin" else of_attention), **model}


def plan_of(root: Path, *, ranks: int = 1, model=None, dataset=None, **train) -> Plan:
    experiment = GraphClassificationExperiment.model_validate(
        {
            "dataset": {"name": GENERATED, **(dataset or {})},
            "model": model if "target" in (model or {}) else small(model or {}),
            "train": {"epochs": 2, "batch_size": 12, "seed": 3, "ranks": ranks, "threads": 1, "device": "cpu", **train},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run", machine=MACHINE)


def task(root: Path, *, rank: int = 0, ranks: int = 1, **more) -> GraphClassification:
    built = build_task(plan_of(root, ranks=ranks, **more), Group(rank, ranks, torch.device("cpu")))
    assert isinstance(built, GraphClassification)
    return built


def gradient(one: GraphClassification, batch: GraphBatch) -> torch.Tensor:
    """In float64, so that what is left of a difference is no rounding."""
    one.model.double().zero_grad()
    one.loss_sum(replace(batch, x=batch.x.double(), edge_attr=batch.edge_attr.double())).backward()
    return torch.cat([each.grad.flatten() for each in one.model.parameters() if each.grad is not None])


@pytest.mark.parametrize("model", [{}, {"kind": "gat"}, {"kind": "gatv2", "heads": 2}], ids=["gin", "gat", "gatv2"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_ranks_add_up(root, ranks, model):
    more = {"model": model, "dataset": {"name": "edges"}}
    one = task(root, **more)
    alone = gradient(one, next(iter(one.batches(1, 0))))
    shares = [task(root, rank=rank, ranks=ranks, batch_size=12 // ranks, **more) for rank in range(ranks)]
    found = sum(gradient(share, next(iter(share.batches(1, 0)))) for share in shares)
    # Losses are made in float32: 2⁻²⁴ of each of 12 graphs' logits, through to the gradient of their sum.
    assert float((found - alone).norm()) <= 12 * 2**-24 * 100 * float(alone.norm())


BUDGET = {"mode": "budget", "max_nodes": 30, "max_edges": 120}


def test_gradients_of_batches_by_budget_add_up(root):
    """All graphs of an epoch once, whatever the batches: the sum of all losses has one gradient."""
    sums = []
    for ranks in (1, 3):
        shares = [
            task(root, rank=rank, ranks=ranks, dataset={"name": "edges"}, batch=BUDGET, epochs=1)
            for rank in range(ranks)
        ]
        parts = [list(share.batches(0, 0)) for share in shares]
        steps = {len(batches) for batches in parts}
        assert steps == {shares[0].plan.last_step}
        for batch in (batch for batches in parts for batch in batches):
            assert len(batch.x) <= 30
            assert len(batch.edge_attr) <= 120
        weights = [shares[0].weights(0, step) for step in range(shares[0].plan.last_step)]
        assert np.array_equal(weights, [[part[step].num_seeds for part in parts] for step in range(len(weights))])
        sums.append(sum(gradient(share, batch) for share in shares for batch in share.batches(0, 0)))
    one, other = sums
    # Losses are made in float32: 2⁻²⁴ of each of 48 graphs' logits, through to the gradient of their sum.
    assert float((one - other).norm()) <= 48 * 2**-24 * 100 * float(one.norm())


def test_a_graph_above_the_budget_is_named(root):
    with pytest.raises(UserError, match=r"graph \d+ has 8 nodes and \d+ edges, and a batch may hold 7"):
        plan_of(root, dataset={"name": "edges"}, batch={**BUDGET, "max_nodes": 7})


@pytest.mark.parametrize("readout", ["sum", "mean_and_sum"])
def test_gin_is_that_of_pyg(root, readout):
    one = task(root, dataset={"features": "standardised"}, model={"readout": readout})
    one.model.eval()
    inner = one.model.inner
    batch = one.feed.chosen(np.arange(20))
    given = arguments(batch)
    h = one.model.standardise(given["x"])
    sums = []
    for layer in [None, *inner.layers]:
        if layer is not None:
            conv = GINConv(layer.mlp, eps=layer.eps.item(), train_eps=True)
            h = conv(h, given["edge_index"])
        sums.append(torch.zeros(20, h.shape[1]).index_add_(0, given["batch"], h))
    read = torch.cat(sums, dim=1)
    if readout == "mean_and_sum":
        known = one.plan.task.dataset
        read = torch.cat([read / given["batch"].bincount()[:, None], read * known.num_graphs / known.num_nodes], dim=1)
    theirs = inner.readout(read)
    torch.testing.assert_close(one.model(batch), theirs, rtol=1e-4, atol=1e-4)


def test_a_formula_counts_the_parameters(root):
    models = [{}, {"hidden_channels": 5, "num_layers": 1, "train_eps": False}, {"norm": "batch"}, {"readout": "sum"}]
    models += [{"kind": "gat", "heads": 3}, {"kind": "gatv2", "num_layers": 1}]
    for name in (GENERATED, "edges"):
        for model in models:
            plan = plan_of(root, model=model, dataset={"name": name})
            made = build_task(plan, Group(0, 1, torch.device("cpu"))).model
            counted = sum(each.numel() for each in made.parameters() if each.requires_grad)
            assert KIND.sizes(plan.task, StepShape(12, "cpu", "fp32")).num_parameters == counted


def test_logits_do_not_depend_on_the_batch(root):
    one = task(root, model={"norm": "batch"})
    one.model.eval()
    alone = torch.cat([one.model(one.feed.chosen(np.array([graph]))) for graph in range(9)])
    torch.testing.assert_close(alone, one.model(one.feed.chosen(np.arange(9))), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_fused_attention_is_the_reference(root, kind):
    """Sums of float32 in another order: of no more than 30 edges and 5 features, over 3 layers."""
    forms = {}
    for form in ("fused", "reference"):
        one = task(root, model={"kind": kind, "attention": form}, dataset={"name": "edges"})
        batch = next(iter(one.batches(0, 0)))
        loss = one.loss_sum(batch)
        loss.backward()
        forms[form] = [loss.detach(), *(each.grad for each in one.model.parameters())]
    for one, other in zip(forms["fused"], forms["reference"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_weights_compute_the_same_whatever_the_data_planned(root):
    """Sums are divided by the mean size of the graphs that it was trained on."""
    one = task(root)
    other_data = one.plan.task.dataset.model_copy(update={"num_nodes": 10 * one.plan.task.dataset.num_nodes})
    plan = one.plan.model_copy(update={"task": one.plan.task.model_copy(update={"dataset": other_data})})
    other = build_task(plan, Group(0, 1, torch.device("cpu")))
    other.model.load_state_dict(one.model.state_dict())
    one.model.eval()
    other.model.eval()
    batch = one.feed.chosen(np.arange(5))
    assert torch.equal(one.model(batch), other.model(batch))


def test_a_run_from_before_the_key_sums(root):
    plan = plan_of(root)
    assert plan.task.model.readout == "mean_and_sum"
    written = plan.model_dump(mode="json")
    del written["task"]["model"]["readout"]
    before = type(plan).model_validate(written)
    made = [build_task(each, Group(0, 1, torch.device("cpu"))).model.inner for each in (before, plan)]
    assert [each.mean_nodes is None for each in made] == [True, False]
    assert 2 * made[0].readout.in_features == made[1].readout.in_features


@pytest.mark.parametrize("model", [{}, {"kind": "gat"}, {"kind": "gatv2"}], ids=["gin", "gat", "gatv2"])
def test_a_trained_model_leaves_as_plain_pytorch(root, model):
    one = task(root, model=model, dataset={"name": "edges", "features": "standardised"})
    weights = Weights.of(one.model.state_dict(), ORIGIN)
    loaded = GraphClassification.inference_model(one.plan, weights).eval()
    one.model.eval()
    batch = one.feed.chosen(np.arange(7))
    given = {**arguments(batch), **edge_arguments(batch)}
    torch.testing.assert_close(loaded(**given), one.model(batch), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="ascending"):
        loaded(torch.ones(2, 2), torch.zeros(2, 0, dtype=torch.int64), torch.tensor([1, 0]))


@pytest.mark.parametrize(("kind", "conv"), [("gat", GATConv), ("gatv2", GATv2Conv)])
def test_attention_is_that_of_pyg(root, kind, conv):
    """Of graphs with parallel edges, and with edges from a node to itself, which give way to its own."""
    one = task(root, model={"kind": kind, "heads": 2, "num_layers": 2}, dataset={"name": "edges"})
    ids = np.flatnonzero(one.codes == 1)
    batch = one.feed.chosen(ids)
    x, expected = batch.x, []
    graph = np.searchsorted(batch.node_offsets.numpy(), np.arange(len(x)), side="right") - 1
    with torch.no_grad():
        for layer in one.model.inner.layers:
            theirs = conv(x.shape[1], 4, 2, edge_dim=5)
            theirs.load_state_dict(layer.state_dict())
            out, (edges, alpha) = theirs(x, batch.edge_index, batch.edge_attr, return_attention_weights=True)
            place = graph[edges[1].numpy()]
            expected.append(np.column_stack([ids[place], *(edges - batch.node_offsets[place]).numpy(), alpha.numpy()]))
            x = torch.nn.functional.elu(out)
    found = one.attention(["val"])
    assert (found.names, found.heads) == (("graph", "source", "target"), 2)
    parts = list(found.parts)
    assert [part.layer for part in parts] == [0, 1]
    for part, table in zip(parts, expected, strict=True):
        mine = np.column_stack([*part.ids, part.alpha])
        in_order = [each[np.lexsort((*each[:, 3:].round(5).T, *each[:, :3].T))] for each in (mine, table)]
        np.testing.assert_allclose(*in_order, rtol=1e-4, atol=1e-5)
    assert one.model.training
    with pytest.raises(UserError, match=r"model\.kind gin has no layers of attention"):
        task(root).attention(None)


def test_standardised_by_the_training_graphs_alone(root):
    one = task(root, dataset={"features": "standardised", "fold": 2, "folds": 5})
    graphs = one.feed.collector.graphs
    is_train = np.repeat(one.codes == 0, np.diff(graphs.node_offsets))
    np.testing.assert_allclose(one.model.standardise.mean.numpy(), graphs.x[is_train].mean(axis=0), rtol=1e-5)


OWN = """
import torch
from torch import nn
from torch_geometric.nn import GINConv


class Own(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = GINConv(nn.Linear(in_channels, out_channels))

    def forward(self, x, edge_index, batch):
        h = self.conv(x, edge_index)
        return torch.zeros(int(batch.max()) + 1, h.shape[1]).index_add(0, batch, h)


class Nodes(Own):
    def forward(self, x, edge_index, batch):
        return self.conv(x, edge_index)
"""


@pytest.mark.parametrize(("name", "says"), [("Own", None), ("Nodes", r"makes \[5, 3\]")])
def test_a_model_of_ones_own(root, tmp_path, monkeypatch, name, says):
    (tmp_path / "own_graphs.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_graphs", raising=False)
    plan = plan_of(root, model={"kind": "custom", "target": f"own_graphs.{name}"})
    if says is None:
        GraphClassification.check_model(plan, plan.task)
        found = build_task(plan, Group(0, 1, torch.device("cpu"))).evaluate("val")
        assert 0 <= found.values["accuracy"] <= 1
    else:
        with pytest.raises(UserError, match=says):
            GraphClassification.check_model(plan, plan.task)


@pytest.mark.parametrize(
    ("dataset", "says"),
    [({"fold": 10}, "folds are counted from 0"), ({"fold": 0, "folds": 3}, None)],
)
def test_folds_that_are_not_there(root, dataset, says):
    if says is None:
        assert plan_of(root, dataset=dataset).dataset.num_train == 30
    else:
        with pytest.raises(UserError, match=says):
            plan_of(root, dataset=dataset)
