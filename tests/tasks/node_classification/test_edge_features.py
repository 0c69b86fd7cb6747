"""Features of edges: they follow their edges into the store, through the sampler and to the model."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled_stores import split_made
from torch import nn

from graphmill.base.errors import InvalidInputError, UserError
from graphmill.graph.arrays import write_array
from graphmill.graph.features import dense, sparse
from graphmill.graph.header import seal, write_metadata
from graphmill.graph.metadata import GraphMetadata
from graphmill.nn.graphsage import GraphSage
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import _tell_once, plan_experiment
from graphmill.tasks.portable_nodes import NodeClassifier

ALONE = Group(0, 1, torch.device("cpu"))
NUM_NODES = 60


def graph(edges, num_nodes, edge_features, names):
    split = np.arange(num_nodes) % 3
    return LabelledGraph(
        edge_index=edges,
        features=dense(np.ones((num_nodes, 1))),
        labels=np.arange(num_nodes) % 2,
        split=split.astype(np.int8),
        name="edgy",
        source="random",
        synthetic=True,
        edge_features=edge_features,
        edge_feature_names=names,
    )


@st.composite
def edge_lists(draw):
    num_nodes = draw(st.integers(1, 8))
    node = st.integers(0, num_nodes - 1)
    return num_nodes, draw(st.lists(st.tuples(node, node), min_size=1, max_size=30))


def carried(store, *, undirected):
    """(source, target) → features of the entry."""
    topology, features = store.topology(undirected=undirected), store.edge_features(undirected=undirected)
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    values = features.values[features.rows_of(np.arange(topology.num_edges))]
    pairs = zip(topology.indices.tolist(), targets.tolist(), strict=True)
    return dict(zip(pairs, values.tolist(), strict=True))


@settings(deadline=None, max_examples=60)
@given(drawn=edge_lists())
def test_features_follow_their_edges_into_the_store(drawn, tmp_path_factory):
    """An edge that is given again keeps the features of the first; a direction that was not given has the other's."""
    num_nodes, pairs = drawn
    numbers = np.arange(2.0 * len(pairs), dtype=np.float32).reshape(-1, 2)
    raw = graph(np.array(pairs).T, num_nodes, numbers, ("weight", "length"))
    store = write_store(raw, tmp_path_factory.mktemp("graphs") / "store")
    store.verify()
    assert store.metadata.edge_features == ("weight", "length")
    first = {}
    for pair, values in zip(pairs, numbers.tolist(), strict=True):
        first.setdefault(pair, values)
    assert carried(store, undirected=False) == first
    both = {**{(v, u): values for (u, v), values in reversed(first.items())}, **first}
    assert carried(store, undirected=True) == both


def test_a_store_without_them_is_what_it_was(tmp_path):
    """Prepared by an earlier version, whose metadata had no such field: the same checksum."""
    store = write_store(graph(np.array([[0, 1], [1, 2]]), 3, None, ()), tmp_path / "s")
    assert "edge_features" not in json.loads((tmp_path / "s" / "metadata.json").read_text())
    assert LabelledGraphStore.open(tmp_path / "s").metadata == store.metadata
    assert "edge_features" in GraphMetadata.model_fields
    with pytest.raises(ValueError, match="have no features"):
        store.edge_features(undirected=True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array([[1], [np.inf]], np.float32), r"edge 1 has \[inf\]"),
        (np.ones((3, 1), np.float32), r"float32 \[3, 1\], and there are 2 edges"),
        (np.ones(2, np.float32), r"float32 \[2\]"),
        (np.ones((2, 1)), "float64"),
    ],
)
def test_what_no_store_can_hold_is_refused(tmp_path, values, said):
    raw = graph(np.array([[0, 1], [1, 2]]), 3, values, ("weight",))
    raw = dataclasses.replace(raw, origin={"edge_features": "the file"})
    with pytest.raises(UserError, match=said) as error:
        write_store(raw, tmp_path / "s")
    assert "the file" in error.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "said"), [("undirected_edge_ids", "which edge"), ("edge_attr", "not finite")])
def test_damage_under_a_record_that_vouches_for_it_is_found(tmp_path, name, said):
    store = write_store(graph(np.array([[0, 1], [1, 2]]), 3, np.ones((2, 1), np.float32), ("weight",)), tmp_path / "s")
    array = np.array(store.array(name))
    array.flat[0] = 1 if name == "undirected_edge_ids" else np.nan
    arrays = {**store.metadata.arrays, name: write_array(store.path / f"{name}.npy", array)}
    write_metadata(store.path, seal(store.metadata.model_copy(update={"arrays": arrays})))
    with pytest.raises(UserError, match=rf"{name}\.npy: .*{said}"):
        LabelledGraphStore.open(store.path).verify()


@pytest.mark.parametrize("stranger", [-1, 2, 2**31 - 1])
def test_an_edge_that_is_not_there_is_an_error_and_no_crash(tmp_path, stranger):
    store = write_store(graph(np.array([[0, 1], [1, 2]]), 3, np.ones((2, 1), np.float32), ("weight",)), tmp_path / "s")
    array = np.array(store.array("undirected_edge_ids"))
    array[1] = stranger
    arrays = {
        **store.metadata.arrays,
        "undirected_edge_ids": write_array(store.path / "undirected_edge_ids.npy", array),
    }
    write_metadata(store.path, seal(store.metadata.model_copy(update={"arrays": arrays})))
    with pytest.raises(UserError, match="not one of 2 edges"):
        LabelledGraphStore.open(store.path).edge_features(undirected=True)


class Weighted(nn.Module):
    """Sums over in-neighbours, by the weight of the edge: whole numbers, so exact in any order."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, out_channels + 1))

    def forward(self, x, edge_index, edge_weight):
        source, target = edge_index
        return torch.zeros(len(x)).index_add_(0, target, x[source, 0] * edge_weight)[:, None] * self.weight


class Attributed(Weighted):
    def forward(self, x, edge_index, edge_attr):
        return super().forward(x, edge_index, edge_attr @ torch.tensor([0.0, 1.0, 10.0, 100.0]))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Edges whose weight names their ends: 100 source + target + 1, or of the direction that was given."""
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    source, target = rng.integers(0, NUM_NODES, (2, 400))
    masks = {f"{name}_mask": np.arange(NUM_NODES) % 3 == code for code, name in enumerate(("train", "val", "test"))}
    attr = np.stack([source % 7, target % 5, source % 3], axis=1)
    of_edges = {"edge_weight": 100 * source + target + 1, "edge_attr": attr}
    y, x = np.arange(NUM_NODES) % 2, np.ones((NUM_NODES, 1))
    np.savez(root / "graph.npz", edge_index=np.stack([source, target]), x=x, y=y, **masks, **of_edges)
    prepare("edgy", root=root, from_path=root / "graph.npz")
    np.savez(root / "plain.npz", edge_index=np.stack([source, target]), x=x, y=y, **masks)
    prepare("plain", root=root, from_path=root / "plain.npz")
    return root


def asked(target="torch.nn.Weighted", edge_features="edge_weight", name="edgy", **dataset):
    return NodeClassificationExperiment.model_validate(
        {
            "dataset": {"name": name, "edge_features": edge_features, **dataset},
            "model": {"kind": "custom", "target": target} if target else {"kind": "graphsage", "num_layers": 1},
            "train": {"epochs": 2, "batch_size": 7, "num_neighbors": [4], "threads": 1, "prefetch": 0},
        }
    )


@pytest.fixture
def planned(root, monkeypatch):
    monkeypatch.setattr(torch.nn, "Weighted", Weighted, raising=False)
    monkeypatch.setattr(torch.nn, "Attributed", Attributed, raising=False)
    return lambda *args, **options: plan_experiment(asked(*args, **options), dataset_root=root, run_id="run")


@pytest.mark.parametrize("undirected", [False, True])
def test_a_batch_holds_those_of_its_edges(planned, root, undirected):
    of_edge = carried(LabelledGraphStore.open(root / "edgy"), undirected=undirected)
    task = build_task(planned(undirected=undirected), ALONE)
    seen = 0
    for batch in task.batches(0, 0):
        block = batch.blocks[0]
        targets = batch.node_ids[torch.repeat_interleave(torch.arange(block.num_rows), block.indptr.diff())]
        sources = batch.node_ids[block.indices.long()]
        expected = [of_edge[pair][0] for pair in zip(sources.tolist(), targets.tolist(), strict=True)]
        assert batch.edge_attr[:, 0].tolist() == expected
        assert batch.edge_attr.shape[1] == 1, "the columns that the model reads, and no other"
        seen += len(expected)
    assert seen > 40


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize(
    ("target", "argument", "scale"),
    [("Weighted", "edge_weight", (1, 0, 0, 0)), ("Attributed", "edge_attr", (0, 1, 10, 100))],
)
def test_predictions_are_those_of_the_whole_graph(planned, root, undirected, target, argument, scale):
    of_edge = carried(LabelledGraphStore.open(root / "edgy"), undirected=undirected)
    expected = np.zeros(NUM_NODES)
    for (_, v), values in of_edge.items():
        expected[v] += np.dot(scale, values)
    task = build_task(planned(f"torch.nn.{target}", argument, undirected=undirected), ALONE)
    assert np.array_equal(task.predict(None, embeddings=False).values["logit"], np.outer(expected, [1, 2]))


def test_a_model_of_pyg_gets_its_own_argument(root):
    geometric = pytest.importorskip("torch_geometric.nn")
    model = {"kind": "custom", "target": "torch_geometric.nn.GCN", "options": {"hidden_channels": 4, "num_layers": 2}}
    experiment = asked().model_copy(update={"model": asked().model.model_validate(model)})
    train = experiment.train.model_copy(update={"num_neighbors": (3, 3)})
    plan = plan_experiment(experiment.model_copy(update={"train": train}), dataset_root=root, run_id="run")
    NodeClassification.check_model(plan, plan.task)
    task = build_task(plan, ALONE)
    assert isinstance(task.model.inner, geometric.GCN)
    store = task.access.store
    topology, features = store.topology(undirected=True), store.edge_features(undirected=True)
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    weight = features.values[features.rows_of(np.arange(topology.num_edges)), 0]
    ends = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    whole = task.model.inner.eval()
    with torch.no_grad():
        found = torch.from_numpy(task.predict(None, embeddings=False).values["logit"])
        expected = whole(torch.ones(NUM_NODES, 1), ends, edge_weight=torch.from_numpy(weight))
        without = whole(torch.ones(NUM_NODES, 1), ends)
    eps = torch.finfo(torch.float32).eps
    # Normalised weights of a node add up to at most the square root of the degrees' ratio: a few units here.
    bound = 4 * (int(np.diff(topology.indptr).max()) + 8) * eps * (1 + expected.abs().max())
    assert (found - expected).abs().max() < bound < (found - without).abs().max()


def test_the_made_up_batch_has_them_too(planned):
    plan = planned("torch.nn.Weighted", "edge_attr")
    with pytest.raises(UserError, match=r"x \[3, 1\], edge_index \[2, 2\], edge_attr \[2, 4\].*edge_attr"):
        NodeClassification.check_model(plan, plan.task)
    plan = planned()
    NodeClassification.check_model(plan, plan.task)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"target": None, "edge_features": "edge_attr"},
            "is edge_attr, but model.kind graphsage reads weights of edges",
        ),
        ({"name": "plain"}, "is edge_weight, but the edges of plain have no features"),
    ],
)
def test_what_cannot_be_read_is_refused(planned, change, said):
    with pytest.raises(UserError, match=said) as error:
        planned(**change)
    assert "dataset.edge_features" in error.value.fix


def test_none_of_several_is_a_weight(root, planned, tmp_path):
    arrays = dict(np.load(root / "graph.npz"))
    del arrays["edge_weight"]
    np.savez(tmp_path / "graph.npz", **arrays)
    prepare("weightless", root=root, from_path=tmp_path / "graph.npz", force=True)
    with pytest.raises(UserError, match="none of the 3 edge features of weightless is called edge_weight or weight"):
        planned(name="weightless")
    assert planned("torch.nn.Attributed", "edge_attr", name="weightless").task.edge_columns == (0, 1, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"edge_features": None}, "edge_weight, edge_attr_0, edge_attr_1, edge_attr_2 of edgy"),
        ({}, "not used: edge features edge_attr_0, edge_attr_1, edge_attr_2 of edgy"),
        ({"edge_features": "edge_attr"}, None),
        ({"name": "plain", "edge_features": None}, None),
    ],
)
def test_what_is_not_used_is_said_once(planned, caplog, options, said):
    _tell_once.cache_clear()
    with caplog.at_level("INFO"):
        for _ in range(2):
            planned(**options)
    assert caplog.text.count("not used") == (said is not None)
    assert (said or "") in caplog.text


def test_other_data_must_have_the_same(planned, root):
    plan = planned()
    with pytest.raises(UserError, match="plain has the edge features none, and the model was trained on edgy"):
        NodeClassification.on_other_data(plan.task, LabelledGraphStore.open(root / "plain"))
    assert NodeClassification.on_other_data(plan.task, LabelledGraphStore.open(root / "edgy")).dataset.name == "edgy"


def test_graphmill_load_takes_them(planned, root):
    """A model by dotted path comes back as it is; on standardised features it is wrapped, and passes them on."""
    from graphmill.nn.standardise import Standardise
    from graphmill.tasks.portable_nodes import OnStandardised

    x, ends, weight = torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]), torch.tensor([2.0, 3.0])
    wrapped = OnStandardised(Standardise(torch.zeros(1), torch.ones(1)), Weighted(1, 2))
    assert wrapped(x, ends, edge_weight=weight).tolist() == [[0, 0], [2, 4], [3, 6]]


NUM_WEIGHTED = 200


@pytest.fixture(scope="module", params=["dense", "standardised", "sparse"])
def weighted(request, tmp_path_factory):
    """A graph whose edges have weights, some of them 0 and all of some rows; whole and in two parts."""
    root, rng = tmp_path_factory.mktemp(request.param), np.random.default_rng(4)
    ends = rng.integers(0, NUM_WEIGHTED, (2, 1500))
    weight = rng.uniform(0, 2, (1500, 1)).astype(np.float32)
    weight[(rng.random(1500) < 0.1) | (ends[1] % 11 == 0)] = 0
    x = (rng.standard_normal((NUM_WEIGHTED, 6)) * (rng.random((NUM_WEIGHTED, 6)) < 0.5)).astype(np.float32)
    rows, columns = x.nonzero()
    stored = dense(x)
    if request.param == "sparse":
        stored = sparse(np.searchsorted(rows, np.arange(NUM_WEIGHTED + 1)), columns, x[rows, columns], 6)
    raw = dataclasses.replace(
        graph(ends, NUM_WEIGHTED, weight, ("weight",)),
        features=stored,
        labels=np.arange(NUM_WEIGHTED) % 2,
        split=(np.arange(NUM_WEIGHTED) % 3).astype(np.int8),
    )
    split_made(write_store(raw, root / "edgy"), root / "parts" / "edgy" / "2-ldg", num_parts=2)
    return root, request.param


def planned_means(weighted, name="edgy"):
    root, form = weighted
    of_features = {"features": "standardised"} if form == "standardised" else {}
    experiment = NodeClassificationExperiment.model_validate(
        {
            "dataset": {"name": name, "edge_features": "edge_weight", "undirected": False, **of_features},
            "model": {"kind": "graphsage", "num_layers": 2, "hidden_channels": 8},
            "train": {"epochs": 1, "batch_size": 16, "num_neighbors": [4, 4], "threads": 1, "prefetch": 0},
        }
    )
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def prepared_tensors(store):
    """x, edge_index and the weights of a prepared graph, as `graphmill.load`'s models are called."""
    topology, features = store.topology(undirected=False), store.features
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    edge_index = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    weight = torch.from_numpy(np.array(store.edge_features(undirected=False).values[:, 0]))
    if not store.metadata.has_sparse_features:
        return torch.from_numpy(np.array(features.x)), edge_index, weight
    arrays = [
        torch.from_numpy(np.array(each))
        for each in (features.indptr, features.indices.astype(np.int64), features.values)
    ]
    return torch.sparse_csr_tensor(*arrays, (topology.num_nodes, 6), check_invariants=True), edge_index, weight


def test_graphsage_means_by_weight_alike_in_parts_and_as_loaded(weighted):
    """Σ w h / Σ w: what two layers written out in float64 give, and the same bits wherever the graph lies."""
    form, task = weighted[1], build_task(planned_means(weighted), ALONE)
    model = task.model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1 and parameter.requires_grad:
                parameter += 0.1
    x, ends, weight = prepared_tensors(task.access.store)
    shares = torch.zeros(NUM_WEIGHTED, NUM_WEIGHTED, dtype=torch.float64)
    shares[ends[1], ends[0]] = weight.double()
    sums = shares.sum(dim=1, keepdim=True)
    assert (sums == 0).any()
    shares = shares / torch.where(sums == 0, 1.0, sums)
    h = (x.to_dense() if form == "sparse" else x).double()
    h = h if model.standardise is None else (h - model.standardise.mean) / model.standardise.sd
    for number, layer in enumerate(model.mean_layers):
        h = (
            torch.cat([h.relu() if number else h, shares @ (h.relu() if number else h)], dim=1)
            @ layer.weight.T.double()
        )
        h = (h + layer.bias).detach()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = torch.from_numpy(task.predict(None, embeddings=False).values["logit"])
        in_parts = build_task(planned_means(weighted, "parts/edgy/2-ldg"), ALONE)
        in_parts.model.load_state_dict(model.state_dict())
        of_parts = in_parts.exact_logits(np.arange(NUM_WEIGHTED), never_pause)[1]
        loaded = NodeClassifier(model, task.task_plan.features)
        of_loaded = loaded(x, ends, edge_weight=weight).detach()
        embedded = task.predict(None, embeddings=True).values["embedding"]
        assert torch.equal(loaded.embed(x, ends, weight).detach(), torch.from_numpy(embedded))
    finally:
        torch.set_num_threads(before)
    # A product of 16 terms, of means of as many terms as a row has edges, twice.
    terms = 2 * (int(np.diff(task.access.source.topology.indptr).max()) + 2 * 8)
    assert (found - h).abs().max() <= terms * torch.finfo(torch.float32).eps * (1 + h.abs().max())
    assert torch.equal(of_parts, found)
    assert torch.equal(of_loaded, found)
    assert not torch.allclose(loaded(x, ends, edge_weight=torch.ones_like(weight)).detach(), found, atol=1e-3)


def test_a_batch_of_graphsage_is_trained_on_weights(weighted):
    """Weights of blocks that draw anew at each hop: batches in parts have the bits of those of the whole graph."""
    tasks = [build_task(planned_means(weighted, name), ALONE) for name in ("edgy", "parts/edgy/2-ldg")]
    losses = [[task.loss_sum(batch).item() for batch in task.batches(0, 0)] for task in tasks]
    assert losses[0] == losses[1]
    assert len(losses[0]) > 3
    uneven = [float(batch.edge_attr.std()) for batch in tasks[0].batches(0, 0)]
    assert min(uneven) > 0.1


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (None, "edge_weight is not given, and the model reads weights"),
        (torch.ones(3), r"edge_weight is torch.float32 \[3\], and there are"),
        (-1.0, "edge_weight has -1"),
        (torch.nan, "edge_weight has nan"),
    ],
)
def test_loaded_models_refuse_strange_weights(weighted, weight, said):
    task = build_task(planned_means(weighted), ALONE)
    x, ends, own = prepared_tensors(task.access.store)
    if isinstance(weight, float):
        own[3], weight = weight, own
    with pytest.raises(InvalidInputError, match=said):
        NodeClassifier(task.model.eval(), task.task_plan.features)(x, ends, edge_weight=weight)
    task.model.is_weighted = False
    with pytest.raises(InvalidInputError, match="edge_weight is given, and the model does not read"):
        NodeClassifier(task.model, task.task_plan.features)(x, ends, edge_weight=own)


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_negative_weight_has_no_mean(tmp_path, in_parts):
    weights = np.ones((30, 1), np.float32)
    weights[7] = -0.5
    ends = np.stack([np.arange(30), (np.arange(30) + 1) % 30])
    store = write_store(graph(ends, 30, weights, ("weight",)), tmp_path / "edgy")
    if in_parts:
        split_made(store, tmp_path / "parts" / "edgy" / "2-ldg", num_parts=2)
    plan = planned_means((tmp_path, "dense"), "parts/edgy/2-ldg" if in_parts else "edgy")
    with pytest.raises(UserError, match=r"edgy has the weight -0\.5"):
        build_task(plan, ALONE)


def test_a_model_of_weights_can_be_exported():
    """As a program of `torch.export` for any graph: the same bits."""
    model = GraphSage(
        in_channels=5,
        hidden_channels=8,
        out_channels=3,
        num_layers=2,
        dropout=0,
        input_dropout=0,
        seed=1,
        is_weighted=True,
    )
    loaded, made = NodeClassifier(model.eval(), "as_stored").eval(), torch.Generator().manual_seed(2)

    def some(nodes, edges):
        x = torch.randn(nodes, 5, generator=made)
        return x, torch.randint(0, nodes, (2, edges), generator=made), torch.rand(edges, generator=made)

    nodes, edges = torch.export.Dim("nodes", min=2), torch.export.Dim("edges", min=2)
    program = torch.export.export(loaded, some(10, 30), dynamic_shapes=({0: nodes}, {1: edges}, {0: edges}))
    given = some(23, 77)
    assert torch.equal(program.module()(*given), loaded(*given))
