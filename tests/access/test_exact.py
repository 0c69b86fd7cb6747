"""Exact inference of models of unknown layers: one pass over the whole graph gives what neighbourhoods do."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch

from graphmill.base.errors import UserError
from graphmill.spec.exact_pass import WholePass, evaluated_on, evaluated_on_other, widest
from graphmill.spec.kinds import find_kind
from graphmill.spec.modelled import modelled
from graphmill.spec.node_models import GraphSageSpec, NodeAttentionSpec, NodeCustomModelSpec
from graphmill.spec.plan import MachineInfo
from graphmill.spec.relational import RelationalSpec
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.tasks.build import build_task
from graphmill.tasks.link_prediction.page import LinkPredictionExperiment
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.page.sizes import whole_pass
from graphmill.tasks.node_encoders import EdgeIndexModel
from graphmill.tasks.planning import _tell_once, plan_experiment
from graphmill.tasks.stores import Preparation, prepare_store

ALONE = Group(0, 1, torch.device("cpu"))
NUM_NODES, COLUMNS = 700, 6
EPS = torch.finfo(torch.float32).eps


def of_pyg(name, **options):
    return {"kind": "custom", "target": f"torch_geometric.nn.{name}", "options": options}


MODELS = {
    "gcn": (of_pyg("GCN", hidden_channels=16, num_layers=2), None),
    "weighted gcn": (of_pyg("GCN", hidden_channels=16, num_layers=2), "edge_weight"),
    "gat": (of_pyg("GAT", hidden_channels=16, num_layers=2, heads=2), None),
    "gin": (of_pyg("GIN", hidden_channels=16, num_layers=2), None),
    "built-in gat": ({"kind": "gat", "hidden_channels": 8, "heads": 2}, None),
    "built-in gatv2": ({"kind": "gatv2", "hidden_channels": 8, "heads": 2}, "edge_attr"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A graph with a hub, edges of unlike weight, and nodes without edges."""
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    ends = rng.integers(0, NUM_NODES - 20, (2, 2500))
    ends[0, :200] = 3
    masks = {f"{name}_mask": np.arange(NUM_NODES) % 3 == code for code, name in enumerate(("train", "val", "test"))}
    arrays = {"x": rng.normal(size=(NUM_NODES, COLUMNS)), "y": rng.integers(0, 4, NUM_NODES), **masks}
    np.savez(root / "graph.npz", edge_index=ends, edge_weight=rng.uniform(0.1, 2, 2500), **arrays)
    prepare("weighted", root=root, from_path=root / "graph.npz")
    return root


def planned(root, model, edge_features=None, machine=None, dataset=None, **train):
    asked = {"epochs": 1, "batch_size": 64, "num_neighbors": [3, 3], "threads": 1, "prefetch": 0, **train}
    experiment = NodeClassificationExperiment.model_validate(
        {"dataset": {"name": "weighted", "edge_features": edge_features}, "model": model, "train": asked}
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run", machine=machine)


def whole_graph_of(task):
    """x [n, F], edge_index [2, E] and the weights [E] of the prepared graph in both directions."""
    store = task.access.store
    topology, edges = store.topology(undirected=True), store.edge_features(undirected=True)
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    ends = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    weights = torch.from_numpy(edges.values[edges.rows_of(np.arange(topology.num_edges))])
    return torch.from_numpy(np.array(store.features.x)), ends, weights


def logits_of(task, way, *, hops=3, group=ALONE):
    access = dataclasses.replace(
        task.access, spec=dataclasses.replace(task.access.spec, evaluates_whole=way == "whole")
    )
    access.collector, access.group = task.access.collector, group
    task.model.eval()
    return access.exact(task.model, np.arange(NUM_NODES), never_pause, hops=hops, num_columns=4)


@pytest.mark.parametrize("name", MODELS)
def test_both_ways_give_the_logits_of_the_model_on_the_whole_graph(root, name):
    model, edges = MODELS[name]
    task = build_task(planned(root, model, edges), ALONE)
    x, ends, weights = whole_graph_of(task)
    named = {None: {}, "edge_weight": {"edge_weight": weights[:, 0]}, "edge_attr": {"edge_attr": weights}}[edges]
    (_, whole), (_, hoods) = logits_of(task, "whole"), logits_of(task, "neighbourhoods")
    with torch.no_grad():
        expected = task.model.inner.eval()(x, ends, **named)
    assert isinstance(task.model, EdgeIndexModel)
    # Sums over all in-edges, twice, and products over as many channels: each term is off by an eps for each before it.
    terms = 2 * (int(torch.bincount(ends[1]).max()) + 16 + COLUMNS)
    bound = terms * EPS * (1 + expected.abs().max())
    assert (whole - expected).abs().max() <= bound
    assert (hoods - expected).abs().max() <= bound
    if "gcn" in name:  # it reads degrees: a hop less sees those of the last nodes cut, and the bound tells
        assert (logits_of(task, "neighbourhoods", hops=2)[1] - expected).abs().max() > 10 * bound


def test_each_rank_keeps_its_share(root):
    task = build_task(planned(root, MODELS["gcn"][0]), ALONE)
    _, whole = logits_of(task, "whole")
    shares = [logits_of(task, "whole", group=Group(rank, 3, torch.device("cpu"))) for rank in range(3)]
    assert np.array_equal(np.concatenate([nodes for nodes, _ in shares]), np.arange(NUM_NODES))
    assert torch.equal(torch.cat([rows for _, rows in shares]), whole)


def test_an_evaluation_has_the_same_scores_in_both_ways(root):
    model, edges = MODELS["weighted gcn"]
    found = {}
    for way in ("whole_graph", "neighbourhoods"):
        plan = planned(root, model, edges, evaluate_on=way)
        assert plan.task.evaluate_on == way
        task = build_task(plan, ALONE)
        found[way] = task.evaluate("val")
        assert task.model.training
    one, other = found["whole_graph"], found["neighbourhoods"]
    assert one.values == other.values
    assert one.loss == pytest.approx(other.loss, rel=1e-5)


def test_an_encoder_of_links_too(tmp_path):
    kind = find_kind("link_prediction")
    options = kind.data.options.model_validate({"num_nodes": 300})
    prepare_store(kind, Preparation("synthetic/nearest", tmp_path, options, save_as="links"))
    found = []
    for way in ("whole_graph", "neighbourhoods"):
        experiment = LinkPredictionExperiment.model_validate(
            {
                "task": {"kind": "link_prediction"},
                "dataset": {"name": "links"},
                "model": of_pyg("GCN", hidden_channels=16, num_layers=2),
                "embedding_channels": 8,
                "train": {"epochs": 1, "num_neighbors": [3, 3], "threads": 1, "evaluate_on": way},
            }
        )
        plan = plan_experiment(experiment, dataset_root=tmp_path, run_id="run")
        assert plan.task.evaluate_on == way
        task = build_task(plan, ALONE)
        task.model.eval()
        found.append(task.rows(never_pause))
    assert found[0].shape == (300, 8)
    assert torch.allclose(*found, rtol=1e-4, atol=1e-5)


def memory(gib, **counts):
    return MachineInfo(num_cores=4, num_gpus=0, memory_mib=gib * 1024, **counts)


def test_the_plan_takes_the_way_that_fits_and_says_so(root, caplog):
    model = MODELS["gcn"][0]
    _tell_once.cache_clear()
    with caplog.at_level("INFO"):
        plan = planned(root, model, machine=memory(8))
    assert plan.task.evaluate_on == "whole_graph"
    assert "evaluated in one pass over the whole graph" in caplog.text
    whole = modelled(plan).memory.activations_mib
    assert (
        whole > modelled(planned(root, model, machine=memory(8), evaluate_on="neighbourhoods")).memory.activations_mib
    )
    # Half of a rank's share of the memory: with more ranks on the host that is less.
    wide = of_pyg("GCN", hidden_channels=40_000, num_layers=2)  # 3,012 MiB
    assert planned(root, wide, machine=memory(4)).task.evaluate_on == "neighbourhoods"
    assert planned(root, wide, machine=memory(8)).task.evaluate_on == "whole_graph"
    assert planned(root, wide, machine=memory(8), ranks=2).task.evaluate_on == "neighbourhoods"
    unknown = MachineInfo(num_cores=4, num_gpus=0)
    assert planned(root, wide, machine=unknown).task.evaluate_on == "neighbourhoods"
    assert planned(root, model, machine=unknown).task.evaluate_on == "whole_graph"
    assert planned(root, wide, machine=memory(4), evaluate_on="whole_graph").task.evaluate_on == "whole_graph"
    assert planned(root, {"kind": "graphsage"}).task.evaluate_on is None
    with pytest.raises(UserError, match=r"train\.evaluate_on is whole_graph, but model\.kind graphsage"):
        planned(root, {"kind": "graphsage"}, evaluate_on="whole_graph")


SIZES = {"num_nodes": 1000, "num_entries": 10_000, "num_features": 8, "num_edge_columns": 0}


def test_one_pass_holds_what_pyg_writes():
    """Messages of the widest layer, six times over, for edges and loops; rows of nodes; ids."""
    of_edges = 6 * 4 * 32 * 11_000 + 64 * 10_000
    of_nodes = 4 * 4 * 32 * 1000 + 2 * 4 * 8 * 1000
    assert WholePass(**SIZES, width=32).num_bytes == of_edges + of_nodes
    assert WholePass(**SIZES, width=32, copies=0).num_bytes == 64 * 10_000 + of_nodes


HELD = """
import sys, torch
from torch_geometric.nn import models
from graphmill.pyg import fuse_layers
def most():
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])
nodes, edges, width = map(int, sys.argv[2:5])
name, _, version = sys.argv[1].partition(" ")
options = {"heads": 4, "v2": bool(version)} if name == "GAT" else {}
model = getattr(models, name)(16, width, 2, 8, **options).eval()
if sys.argv[5] == "fused":
    fuse_layers(model)
def graph(nodes, edges):
    return torch.rand(nodes, 16), torch.randint(nodes, (2, edges))
given = graph(nodes, edges)
with torch.no_grad():
    model(*graph(100, 200))
    before = most()
    model(*given)
print(most() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fused", "copies"),
    [
        *[("GraphSAGE", False, 2), ("GIN", False, 2), ("GCN", False, 3), ("GAT", False, 3), ("GAT v2", False, 6)],
        *[("GraphSAGE", True, 0), ("GIN", True, 2), ("GCN", True, 0), ("GAT", True, 0), ("GAT v2", True, 0)],
    ],
)
def test_pygs_models_hold_no_more_in_one_pass_than_is_estimated(root, name, fused, copies):
    sizes = {"num_nodes": 20_000, "num_entries": 400_000, "num_features": 16, "num_edge_columns": 0}
    command = [sys.executable, "-c", HELD, name, "20000", "400000", "64", "fused" if fused else "as PyG has it"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    options = {"heads": 4, "v2": "v2" in name} if "GAT" in name else {}
    model = {**of_pyg(name.split()[0], hidden_channels=64, num_layers=2, **options), "fused": fused}
    assert whole_pass(planned(root, model).task).copies == copies
    assert 0 < int(done.stdout) <= WholePass(**sizes, width=64, copies=copies).num_bytes


def test_a_graph_in_parts_is_never_passed_over_as_a_whole():
    whole = WholePass(**SIZES, width=1)
    model = NodeAttentionSpec(kind="gat")
    assert evaluated_on("auto", model, whole, None, in_parts=True) == "neighbourhoods"
    with pytest.raises(UserError, match="the graph is in parts"):
        evaluated_on("whole_graph", model, whole, None, in_parts=True)
    assert evaluated_on("auto", GraphSageSpec(), whole, None, in_parts=True) is None


@pytest.mark.parametrize(
    ("entries", "in_parts", "way"), [(10_000, False, "whole_graph"), (10_001, False, None), (1, True, None)]
)
def test_on_other_data_as_trained_only_if_they_are_no_larger(entries, in_parts, way):
    known, other = WholePass(**SIZES, width=9), WholePass(**{**SIZES, "num_entries": entries}, width=9)
    found = evaluated_on_other("whole_graph", known, other, in_parts=in_parts)
    assert found == (way or "neighbourhoods")
    assert evaluated_on_other(None, known, other, in_parts=in_parts) is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 256),
        ({"num_layers": 2}, 256),
        ({"hidden_channels": 64, "num_layers": 3}, 64),
        ({"hidden": [32, 48], "heads": 4}, 4 * 48),
        ({"conv": {"dim": 40, "num_heads": 2}, "jk": "cat", "bias": True}, 80),
    ],
)
def test_widths_are_read_from_options(options, expected):
    model = NodeCustomModelSpec(kind="custom", target="a.B", options=options)
    for width in (8, 500):  # of what is read: messages of a stranger's model may be those
        found = widest(model, num_features=width, has_sparse_features=False, out_channels=2)
        assert found == max(width, expected)


@pytest.mark.parametrize(
    ("model", "is_sparse", "expected"),
    [
        (NodeAttentionSpec(kind="gat", hidden_channels=32, heads=2), False, 64),
        (RelationalSpec(hidden_channels=48), True, 48),
        (RelationalSpec(hidden_channels=48), False, 5000),
        (NodeCustomModelSpec.model_validate(MODELS["gcn"][0]), True, 16),
        # Heads of PyG's whole GAT share the hidden channels out, unless they are averaged; those of its layers do not.
        (NodeCustomModelSpec.model_validate(of_pyg("GAT", hidden_channels=64, heads=4)), True, 64),
        (NodeCustomModelSpec.model_validate(of_pyg("GAT", hidden_channels=64, heads=4, concat=False)), True, 256),
        (NodeCustomModelSpec.model_validate(of_pyg("GAT", hidden_channels=64, heads=0)), True, 64),
        (NodeCustomModelSpec.model_validate(of_pyg("GATConv", out_channels=64, heads=4)), True, 256),
        (NodeCustomModelSpec.model_validate(MODELS["gin"][0]), True, 5000),
    ],
)
def test_messages_of_models_that_project_first_are_not_the_inputs(model, is_sparse, expected):
    assert widest(model, num_features=5000, has_sparse_features=is_sparse, out_channels=4) == expected
