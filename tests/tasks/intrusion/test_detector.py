"""Windows judged by a trained model: the scores that training computes, and causes against benign traffic."""

from collections import Counter

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
from graphmill.tasks.intrusion.nn.model import Detecting, Known, inner_model
from graphmill.tasks.intrusion.nn.reference import Reference
from graphmill.tasks.intrusion.page.models import CanGatSpec, CanVgaeSpec, FusionSpec
from graphmill.tasks.intrusion.reference import BenignTraffic

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


def _model(spec, graphs):
    """A model with weights by chance; every other window is benign traffic to it."""
    torch.manual_seed(0)
    inner = inner_model(spec, Known.nothing())
    reference = Reference(BenignTraffic.fit(graphs, np.arange(len(graphs)) % 2 == 0)).state_dict()
    inner.reference.load_state_dict(reference)
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


def _near(found, expected):
    """To the rounding of float32, of sums of some hundred terms."""
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * max(1e-3, np.abs(expected).max()))


@pytest.mark.parametrize("name", SPECS)
def test_scores_and_causes_are_those_of_the_model(graphs, name):
    model = _model(SPECS[name], graphs)
    judge, batch = Judge(model), _batch(graphs)
    with torch.no_grad():
        scores = model.scores(batch).numpy()
    _near(judge.score(graphs), scores)
    assert np.abs(scores).max() > 1e-3
    causes = judge.attribute(graphs)
    np.testing.assert_array_equal(causes.of_nodes, model.inner.reference(batch).numpy())
    assert causes.of_nodes.max() > 0.1


@pytest.mark.parametrize("name", ["gat", "vgae, largest error", "fusion"])
def test_a_window_is_judged_alike_alone_and_among_others(graphs, name):
    judge = Judge(_model(SPECS[name], graphs))
    scores, whole = judge.score(graphs), judge.attribute(graphs)
    nodes, edges = np.cumsum(graphs.num_nodes)[:-1], np.cumsum(graphs.num_edges)[:-1]
    of_nodes, of_edges = np.split(whole.of_nodes, nodes), np.split(whole.of_edges, edges)
    for row, one in enumerate(graphs.parts(1)):
        alone = judge.attribute(one)
        _near(judge.score(one), scores[row])
        np.testing.assert_array_equal(alone.of_nodes, of_nodes[row])
        np.testing.assert_array_equal(alone.of_edges, of_edges[row])
        np.testing.assert_array_equal(alone.missing[0], whole.missing[row])


def test_pairs_are_counted_against_benign_windows(graphs):
    """What a pair has too often is at its edge, and what it lacks beside its ids."""
    causes = Judge(_model(SPECS["gat"], graphs)).attribute(graphs)
    usual = Counter()
    for number in range(0, len(graphs), 2):
        usual.update({pair: count / (len(graphs) // 2) for pair, count in _counts(graphs, number).items()})
    too_many, lacks = [], []
    pairs = list(map(tuple, causes.pairs.T.tolist()))
    for number in range(len(graphs)):
        own = _counts(graphs, number)
        too_many += [max(0, count - usual[pair]) for pair, count in own.items()]
        lacks.append([max(0, usual[pair] - own[pair]) for pair in pairs])
    assert len(pairs) == len(usual)
    # Means are rounded to 2⁻¹⁰.
    np.testing.assert_allclose(causes.of_edges, too_many, atol=2**-11)
    np.testing.assert_allclose(causes.missing, lacks, atol=2**-11)


def _counts(graphs, number):
    """How often one id follows another in a window, in the order of its edges."""
    edges = np.concatenate([[0], np.cumsum(graphs.num_edges)])
    nodes = np.concatenate([[0], np.cumsum(graphs.num_nodes)])
    here = slice(edges[number], edges[number + 1])
    ends = graphs.node_ids[nodes[number] :][graphs.edge_index[:, here]]
    counts = graphs.edge_attr[here, 0]
    return Counter({(int(a), int(b)): float(count) for a, b, count in zip(*ends, counts, strict=True)})


def test_parts_are_the_graphs(graphs):
    for num_graphs in (1, 3, len(graphs), 100):
        joined = joined_graphs(list(graphs.parts(num_graphs)))
        for name in ("num_nodes", "num_edges", "node_ids", "x", "edge_index", "edge_attr", "times", "first_frames"):
            np.testing.assert_array_equal(getattr(joined, name), getattr(graphs, name))
