"""Windows judged with fixed weights: the scores of the model itself, and causes by the gradient that autograd gives."""

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
from graphmill.tasks.intrusion.detector import Judge, windows_of
from graphmill.tasks.intrusion.nn.fixed import fixed
from graphmill.tasks.intrusion.nn.fusion import CanFusion
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


def _scores(model, batch):
    """Of a fusion with the gradient of its members, which it does not ask for itself."""
    inner = model.inner
    if not isinstance(inner, CanFusion):
        return model.scores(batch)
    members = torch.stack([inner.gat.scores(batch), inner.vgae.scores(batch)], dim=1)
    return inner.head(inner.scale(members))[:, 0].double()


def _by_autograd(model, graphs, weights):
    """Scores, and what autograd gives for the moves of nodes and edges, in the order of `graphs`."""
    batch = _batch(graphs)
    x, attr = batch.x.requires_grad_(), batch.edge_attr.requires_grad_()
    scores = _scores(model, replace(batch, x=x, edge_attr=attr))
    of_x, of_attr = torch.autograd.grad(
        (scores * torch.from_numpy(weights)).sum(), [x, attr], allow_unused=True, materialize_grads=True
    )
    of_nodes, by_target = ((each.detach() * grad).sum(dim=1).numpy() for each, grad in ((x, of_x), (attr, of_attr)))
    first_node = np.repeat(np.cumsum(graphs.num_nodes) - graphs.num_nodes, graphs.num_edges)
    of_edges = np.empty_like(by_target)
    of_edges[np.argsort(graphs.edge_index[1] + first_node, kind="stable")] = by_target
    return scores.detach().numpy(), of_nodes, of_edges


def _near(found, expected):
    """To the rounding of float32, of sums of some hundred terms."""
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * max(1e-3, np.abs(expected).max()))


@pytest.mark.parametrize("name", SPECS)
def test_scores_and_moves_are_those_of_the_model(graphs, name):
    model = _model(SPECS[name])
    weights = np.random.default_rng(1).standard_normal(len(graphs))
    scores, of_nodes, of_edges = _by_autograd(model, graphs, weights)
    with torch.no_grad():
        _near(model.scores(_batch(graphs)).numpy(), scores)
    same, windows = fixed(model.inner), windows_of(graphs)
    _near(same.scores(windows), scores)
    moves = same.moves(windows, weights)
    _near(moves.of_nodes, of_nodes)
    _near(moves.of_edges, of_edges)
    assert np.abs(of_nodes).max() > 1e-3
    assert np.abs(scores).max() > 1e-3


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
