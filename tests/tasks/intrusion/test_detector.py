"""Windows judged by a trained model: the scores that training computes, and causes by the gradient of those."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphmill.graph.batch import Block, GraphBatch
from graphmill.graph.graph_set import GraphSet
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.tasks.intrusion.data.frames import Frames
from graphmill.tasks.intrusion.data.store import id_columns
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of, joined_graphs
from graphmill.tasks.intrusion.detector import Judge
from graphmill.tasks.intrusion.nn.model import Detecting, Scales, inner_model
from graphmill.tasks.intrusion.page.models import CanGatSpec, CanVgaeSpec, FusionSpec

GAT = {"hidden_channels": 6, "heads": 3, "num_layers": 2, "id_channels": 4, "id_rows": 16, "fc_layers": 2}
VGAE = {"kind": "vgae", "hidden_channels": 24, "latent_channels": 5, "id_channels": 4, "id_rows": 16, "id_buckets": 8}
SPECS = {
    "gat": CanGatSpec(**GAT),
    "gat, three linear layers": CanGatSpec(**GAT | {"fc_layers": 3, "heads": 1}),
    "gatv2": CanGatSpec(kind="gatv2", **GAT),
    "gat, no features of edges": CanGatSpec(edge_features=False, **GAT),
    "vgae, largest error": CanVgaeSpec(**VGAE),
    "vgae, mean error": CanVgaeSpec(score="mean", **VGAE),
    "vgae, wide table of ids": CanVgaeSpec(**VGAE | {"id_buckets": 2048}),
    "vgae of gatv2, no features of edges": CanVgaeSpec(conv="gatv2", edge_features=False, **VGAE),
    "fusion": FusionSpec(kind="fusion", gat=CanGatSpec(**GAT), vgae=CanVgaeSpec(**VGAE)),
}


@pytest.fixture(scope="module")
def graphs():
    """Windows with ids that repeat, so that a node has a loop of its own; the last has one id."""
    rng = np.random.default_rng(0)
    count = 201
    ids = rng.choice(np.array([1, 2, 3, 0x7FF, 0x80012345], np.uint32), count)
    ids[-21:] = 5
    data, length = rng.integers(0, 256, (count, 8)).astype(np.uint8), np.full(count, 8, np.uint8)
    frames = Frames(np.arange(count) * 1.0, ids, data, length, np.zeros(count, np.int8))
    return joined_graphs(list(graphs_of([frames], Leftover(), size=20, stride=20)))


def _model(spec):
    torch.manual_seed(0)
    inner = inner_model(spec, Scales.unknown())
    with torch.no_grad():
        for name, parameter in inner.named_parameters():
            if name.endswith(("mean", "sd")):
                parameter.uniform_(0.5, 1.5)
            elif name.endswith(("table", "bias")):
                parameter.normal_()
    return Detecting(inner, seed=0, rank=0, dtype=torch.float32, threshold=None).eval()


def _batch(graphs):
    every, x = np.arange(len(graphs)), np.concatenate([id_columns(graphs.node_ids), graphs.x], axis=1)
    cut = GraphSet.of(graphs.num_nodes, graphs.num_edges, graphs.edge_index, x, graphs.edge_attr)
    cut = cut.cut(every, num_threads=1)
    return GraphBatch(
        seeds=EvaluationSeeds(SeedIds(every)),
        node_offsets=torch.from_numpy(cut.node_offsets),
        block=Block(torch.from_numpy(cut.indptr), torch.from_numpy(cut.sources)),
        by_source=Block(torch.from_numpy(cut.indptr_by_source), torch.from_numpy(cut.edges_by_source)),
        x=torch.from_numpy(cut.x),
        edge_attr=torch.from_numpy(cut.edge_attr),
        labels=torch.full((len(every),), -1),
    )


def _by_autograd(model, graphs):
    """Scores as training computes them, and |gradient × input| of nodes and edges, in the order of `graphs`."""
    batch = _batch(graphs)
    x, attr = batch.x.requires_grad_(), batch.edge_attr.requires_grad_()
    scores = model.scores(replace(batch, x=x, edge_attr=attr))
    grads = torch.autograd.grad(scores.sum(), [x, attr], allow_unused=True, materialize_grads=True)
    of_nodes, by_target = (
        (each.detach() * grad).sum(dim=1).abs().numpy() for each, grad in zip((x, attr), grads, strict=True)
    )
    first_node = np.repeat(np.cumsum(graphs.num_nodes) - graphs.num_nodes, graphs.num_edges)
    of_edges = np.empty_like(by_target)
    of_edges[np.argsort(graphs.edge_index[1] + first_node, kind="stable")] = by_target
    return scores.detach().numpy(), of_nodes, of_edges


def _near(found, expected):
    """To the rounding of float32, of sums of some hundred terms."""
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * max(1e-3, np.abs(expected).max()))


@pytest.mark.parametrize("name", SPECS)
def test_scores_and_causes_are_those_of_the_model(graphs, name):
    model = _model(SPECS[name])
    scores, of_nodes, of_edges = _by_autograd(model, graphs)
    judge = Judge(model)
    _near(judge.score(graphs), scores)
    causes = judge.weigh(graphs)
    _near(causes.of_nodes, of_nodes)
    _near(causes.of_edges, of_edges)
    assert of_nodes.max() > 1e-3
    assert np.abs(scores).max() > 1e-3
    assert bool(of_edges.max() > 1e-3) == ("no features" not in name)


@pytest.mark.parametrize("name", ["gat", "vgae, largest error", "fusion"])
def test_windows_after_an_alarm_are_judged_alike(graphs, name):
    """Their scores are recorded for causes; no bit differs."""
    judge = Judge(_model(SPECS[name]))
    scores, causes = judge.score(graphs), judge.weigh(graphs)
    np.testing.assert_array_equal(judge.score(graphs), scores)
    again = judge.weigh(graphs)
    np.testing.assert_array_equal(again.of_nodes, causes.of_nodes)
    np.testing.assert_array_equal(again.of_edges, causes.of_edges)


@pytest.mark.parametrize("name", ["gat", "vgae, largest error", "fusion"])
def test_a_window_is_judged_alike_alone_and_among_others(graphs, name):
    judge = Judge(_model(SPECS[name]))
    scores, whole = judge.score(graphs), judge.weigh(graphs)
    nodes, edges = np.cumsum(graphs.num_nodes)[:-1], np.cumsum(graphs.num_edges)[:-1]
    of_nodes, of_edges = np.split(whole.of_nodes, nodes), np.split(whole.of_edges, edges)
    for row, one in enumerate(graphs.parts(1)):
        _near(judge.score(one), scores[row])
        _near(judge.weigh(one).of_nodes, of_nodes[row])
        _near(judge.weigh(one).of_edges, of_edges[row])
    assert min(whole.of_nodes.min(), whole.of_edges.min()) >= 0


def test_causes_are_of_the_windows_that_are_asked_for(graphs):
    """Not of those that were scored before."""
    judge = Judge(_model(SPECS["gat"]))
    some = graphs.chosen(np.arange(len(graphs)) % 3 == 1)
    judge.score(graphs)
    found = judge.weigh(some)
    np.testing.assert_array_equal(found.of_nodes, Judge(_model(SPECS["gat"])).weigh(some).of_nodes)
    assert len(found.of_edges) == some.num_edges.sum()


def test_a_fusion_has_causes(graphs):
    assert Judge(_model(SPECS["fusion"])).weigh(graphs).of_nodes.max() > 0


def test_parts_are_the_graphs(graphs):
    for num_graphs in (1, 3, len(graphs), 100):
        joined = joined_graphs(list(graphs.parts(num_graphs)))
        for name in ("num_nodes", "num_edges", "node_ids", "x", "edge_index", "edge_attr", "times", "first_frames"):
            np.testing.assert_array_equal(getattr(joined, name), getattr(graphs, name))
