"""Node classification as the loop sees it: measures by hand, feature transforms, strangers' models."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rounding import FUNCTION_ROUNDINGS, Bounded, assert_near, cross_entropy, magnitude
from torch import nn

from graphmill.access.transform import transformed
from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures, SparseFeatures
from graphmill.spec.kinds.kind import StepShape
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.classification import measures, tally
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.sources.generate import generate
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment

ALONE = Group(0, 1, torch.device("cpu"))


def test_measures_against_arithmetic_by_hand():
    """True classes 0 0 0 1 1 2, guesses 0 0 1 1 0 0; class 3 neither occurs nor is guessed."""
    guesses = torch.tensor([0, 0, 1, 1, 0, 0])
    logits = torch.full((6, 4), 0.0)
    logits[range(6), guesses] = 2.0
    found = measures(tally(logits, torch.tensor([0, 0, 0, 1, 1, 2])), 4)
    f1 = 2 * 2 / (3 + 4) + 2 * 1 / (2 + 2) + 0
    assert found.values == {"micro_f1": 3 / 6, "macro_f1": f1 / 3, "macro_f1_all_classes": f1 / 4}
    hit, miss = -math.log(math.e**2 / (math.e**2 + 3)), -math.log(1 / (math.e**2 + 3))
    by_hand = torch.tensor((3 * hit + 3 * miss) / 6, dtype=torch.float64)
    roundings = 4 + FUNCTION_ROUNDINGS + 6  # of four exponentials and a logarithm, and of the sum over six nodes
    assert_near(found.loss, Bounded(by_hand, torch.tensor(roundings * (2 + miss))), computed=torch.float64)
    assert found.num_seeds == 6


def test_tallies_of_parts_add_up():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(100, 7, generator=generator), torch.randint(0, 7, (100,), generator=generator)
    parts = sum(tally(logits[begin:end], labels[begin:end]) for begin, end in ((0, 13), (13, 13), (13, 100)))
    whole, added = measures(tally(logits, labels), 7), measures(parts, 7)
    assert (whole.values, whole.num_seeds) == (added.values, added.num_seeds)
    exact = cross_entropy(Bounded.of(logits), labels).sum(0) / 100
    for found in (whole, added):
        assert_near(found.loss, exact, computed=torch.float64)


def test_sparse_features_as_the_plan_wants_them():
    rows = SparseFeatures(
        np.array([0, 2, 2, 5]), np.array([0, 3, 1, 2, 3], np.int32), np.array([1, 3, 2, 2, 4], np.float32), 4
    )
    assert transformed(rows, "as_stored") is rows
    assert transformed(rows, "binary").values.tolist() == [1] * 5
    assert transformed(rows, "row_normalised").values.tolist() == [0.25, 0.75, 0.25, 0.25, 0.5]
    assert transformed(rows, "row_normalised").values.dtype == np.float32
    zero_sum = SparseFeatures(np.array([0, 2]), np.array([0, 1], np.int32), np.array([1, -1], np.float32), 2)
    assert transformed(zero_sum, "row_normalised").values.tolist() == [1, -1]
    dense = DenseFeatures(np.ones((2, 2), np.float32), "float32")
    assert transformed(dense, "as_stored") is dense


class Mean(nn.Module):
    """A model like a person's own: one mean over in-neighbours and a linear layer."""

    def __init__(self, in_channels: int, out_channels: int, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * in_channels, out_channels)
        self.norm, self.dropout = nn.BatchNorm1d(out_channels), nn.Dropout(0.5)
        self.scale = scale

    def forward(self, x, edge_index):
        total = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        degree = torch.bincount(edge_index[1], minlength=len(x)).clamp(min=1)
        h = self.linear(torch.cat([x, total / degree.unsqueeze(1)], dim=1)) * self.scale
        return self.dropout(self.norm(h))


class Degrees(nn.Module):
    """The sum of the degrees of the in-neighbours, as GCN's normalisation reads them: whole numbers, so exact."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, out_channels + 1))

    def forward(self, x, edge_index):
        source, target = edge_index
        degree = torch.bincount(target, minlength=len(x)).float()
        return torch.zeros(len(x)).index_add_(0, target, degree[source]).unsqueeze(1) * self.weight


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, save_as="sbm", options={"num_nodes": 600, "num_edges": 6000, "features": 9})

    def plan(model, **train):
        settings = {"epochs": 2, "batch_size": 50, "num_neighbors": [3], "threads": 1, **train}
        experiment = NodeClassificationExperiment.model_validate(
            {"dataset": {"name": "sbm"}, "model": model, "train": settings}
        )
        return plan_experiment(experiment, dataset_root=root, run_id="run")

    return plan


def stranger(name: str = "torch.nn.Linear", **options) -> dict:
    return {"kind": "custom", "target": name, "options": options}


@pytest.mark.parametrize("model", ["graphsage", "custom"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_an_epoch_is_trained_on_the_training_nodes_and_on_nothing_else(tmp_path, model, ranks):
    """Read from the split as it was given, not as the task reads it."""
    raw = generate("sbm", {"num_nodes": 300, "num_edges": 900, "features": 4, "communities": 3, "signal": 1.0}, "raw")
    split = np.random.default_rng(0).integers(-1, 3, 300).astype(np.int8)
    write_store(dataclasses.replace(raw, split=split), tmp_path / "given")
    spec = {"kind": "graphsage"} if model == "graphsage" else stranger("torch.nn.Identity")
    asked = {"dataset": {"name": "given"}, "model": spec}
    train = {"epochs": 2, "batch_size": 7, "num_neighbors": [2, 2], "threads": 1, "ranks": ranks}
    plan = plan_experiment(
        NodeClassificationExperiment.model_validate({**asked, "train": train}), dataset_root=tmp_path, run_id="run"
    )
    tasks = [build_task(plan, Group(rank, ranks, torch.device("cpu"))) for rank in range(ranks)]
    for epoch in (0, 1):
        batches = [batch for task in tasks for batch in task.batches(epoch, 0)]
        seen = np.concatenate([batch.seeds.ids for batch in batches])
        assert np.array_equal(np.sort(seen), np.flatnonzero(split == 0))
        labels = torch.cat([batch.labels for batch in batches])
        assert np.array_equal(labels.numpy(), raw.labels[seen])


@pytest.mark.parametrize("model", ["graphsage", "custom"])
def test_steps_drop_a_share_of_their_edges_and_evaluations_read_all(planned, model):
    spec = {"kind": "graphsage", "num_layers": 1} if model == "graphsage" else stranger("torch_geometric.nn.GCNConv")
    fewer, whole = (build_task(planned(spec, edge_dropout=p, num_neighbors=[-1]), ALONE) for p in (0.5, 0.0))
    counts = []
    for task in (fewer, whole):
        batches = list(task.batches(0, 0))
        counts.append(sum(sum(batch.num_edges_per_hop) for batch in batches))
        assert counts[-1] == sum(int(batch.blocks[0].indptr[-1] - batch.blocks[0].indptr[0]) for batch in batches)
    assert abs(counts[0] - counts[1] / 2) < 5 * (counts[1] / 4) ** 0.5
    assert fewer.evaluate("val").values == whole.evaluate("val").values


@pytest.mark.parametrize("form", [{"jumping_knowledge": "cat"}, {"jumping_knowledge": "max", "residual": True}])
def test_a_formula_counts_the_parameters_of_a_head(planned, form):
    plan = planned({"kind": "graphsage", "num_layers": 3, "hidden_channels": 8, **form}, num_neighbors=[3, 3, 3])
    counted = sum(each.numel() for each in build_task(plan, ALONE).model.parameters())
    assert plan.kind.sizes(plan.task, StepShape(40, "cpu", "fp32")).num_parameters == counted


def test_labels_are_mapped(planned):
    """Ranks of a host share the file's pages: a copy of each would be 8 bytes per node and rank."""
    task = build_task(planned({"kind": "graphsage", "num_layers": 1}), ALONE)
    for labels in (task.labels, task.access.collector.labels):
        assert isinstance(labels.base, np.memmap)
        assert Path(labels.base.filename).name == "y.npy"
        assert np.shares_memory(labels, task.labels)


def test_a_strangers_model_is_evaluated_with_all_neighbours(planned, monkeypatch):
    """And without dropout or running statistics: as a model in evaluation."""
    monkeypatch.setattr(torch.nn, "OurMean", Mean, raising=False)
    task = build_task(planned(stranger("torch.nn.OurMean", scale=2.0)), ALONE)
    found = task.evaluate("test")
    topology = task.access.sampler.topology
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    edge_index = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    x = torch.from_numpy(np.array(task.access.store.features.x))
    nodes = torch.from_numpy(task.access.store.nodes_in("test"))
    with torch.no_grad():
        logits = task.model.inner.eval()(x, edge_index)[nodes]
    assert not task.model.inner.norm.running_mean.any(), "nothing is learnt from what is judged"
    labels = torch.from_numpy(task.labels[nodes.numpy()])
    expected = measures(tally(logits, labels), task.task_plan.dataset.num_classes)
    assert found.values == expected.values
    size = magnitude(task.model.inner.eval(), x, edge_index)[nodes]
    degree = int(np.diff(topology.indptr).max())
    roundings = degree + 2 * 9 + FUNCTION_ROUNDINGS  # a mean of neighbours, a product of 2 * 9 terms, the normalisation
    exact = cross_entropy(Bounded(logits.double(), roundings * size), labels).sum(0) / len(nodes)
    assert_near(found.loss, exact)


def test_degrees_of_the_last_neighbours_are_those_of_the_graph(planned, monkeypatch):
    monkeypatch.setattr(torch.nn, "OurDegrees", Degrees, raising=False)
    task = build_task(planned(stranger("torch.nn.OurDegrees"), num_neighbors=[3]), ALONE)
    topology = task.access.sampler.topology
    degree = np.diff(topology.indptr)
    nodes = task.access.store.nodes_in("test")
    sums = [degree[topology.indices[topology.indptr[node] : topology.indptr[node + 1]]].sum() for node in nodes]
    logit = task.predict(["test"], embeddings=False).values["logit"]
    assert np.array_equal(logit, np.outer(sums, np.arange(1, logit.shape[1] + 1)))


def test_a_strangers_dropout_is_repeatable(planned, monkeypatch):
    """It draws from torch's generator, which is keyed anew before every step, whatever was drawn before."""

    class Dropping(Mean):
        def forward(self, x, edge_index):
            return super().forward(nn.functional.dropout(x, 0.5, self.training), edge_index)

    monkeypatch.setattr(torch.nn, "OurDropping", Dropping, raising=False)
    task = build_task(planned(stranger("torch.nn.OurDropping"), prefetch=0), ALONE)
    first = [task.loss_sum(batch).item() for batch in task.batches(0, 0)]
    torch.manual_seed(99)
    assert [task.loss_sum(batch).item() for batch in task.batches(0, 3)] == first[3:]
    assert [task.loss_sum(batch).item() for batch in task.batches(1, 0)] != first


def test_ranks_drop_other_values_of_a_strangers_model(planned, monkeypatch):
    monkeypatch.setattr(torch.nn, "OurMean", Mean, raising=False)
    plan = planned(stranger("torch.nn.OurMean"), ranks=2, prefetch=0)
    tasks = [build_task(plan, Group(rank, 2, torch.device("cpu"))) for rank in (0, 1)]
    batch = next(iter(tasks[0].batches(0, 0)))
    one, other, again = (task.model(batch) == 0 for task in (*tasks, tasks[0]))  # it ends with dropout
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (stranger("no_such_module.Model"), "cannot be imported"),
        (stranger("Model"), "not a dotted path"),
        (stranger("torch.nn.Linaer"), "did you mean 'Linear'"),
        (stranger("torch.nn.Linear", widht=3), "does not take model.options"),
        (stranger("builtins.dict"), "a part of Python"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused(planned, model, message):
    with pytest.raises(UserError, match=message):
        build_task(planned(model), ALONE)


def test_all_splits_are_evaluated_the_same_way(planned):
    task = build_task(planned({"kind": "graphsage", "num_layers": 1}), ALONE)
    for split in ("train", "val", "test"):
        assert task.evaluate(split).num_seeds == len(task.access.store.nodes_in(split))
    assert task.model.training, "evaluation leaves the model in training"


@pytest.mark.parametrize("class_weights", ["none", "balanced", [0.5, 2.0, 0.0, 1.0, 3.0]])
def test_the_loss_is_torchs_weighted_and_smoothed_mean(planned, class_weights):
    """The sums over batches, over the sums of their weights, are the mean that PyTorch's users know."""
    loss = {"kind": "cross_entropy", "class_weights": class_weights, "label_smoothing": 0.2}
    plan = planned(stranger(), prefetch=0)
    classes = plan.task.dataset.num_classes
    if not isinstance(class_weights, str):
        loss["class_weights"] = class_weights = (class_weights * classes)[:classes]
    plan = planned({"kind": "graphsage", "num_layers": 1, "dropout": 0.0}, prefetch=0, loss=loss)
    task = build_task(plan, ALONE)
    batches = list(task.batches(0, 0))
    weights = [sum(task.weights(0, step)) for step in range(len(batches))]
    logits = torch.cat([task.model(batch).float() for batch in batches])
    labels = torch.cat([batch.labels for batch in batches])
    counts = torch.bincount(labels, minlength=classes)
    expected = {"none": None, "balanced": len(labels) / (classes * counts)}
    weight = expected[class_weights] if isinstance(class_weights, str) else torch.tensor(class_weights)
    exact_weight = None if weight is None else weight.double()
    mean = nn.functional.cross_entropy(logits.double(), labels, exact_weight, label_smoothing=0.2).detach()
    total = sum(task.loss_sum(batch).item() for batch in batches)
    rows = cross_entropy(Bounded.of(logits), labels, weight, 0.2)
    assert_near(total / sum(weights), Bounded(mean, rows.sum(0).slack / sum(weights)))
    if class_weights == "balanced":
        assert_near(sum(weights), Bounded.of(float(len(labels))).rounded(2 + classes))


def test_weights_of_ranks_are_those_of_their_seeds(planned):
    plan = planned(
        {"kind": "graphsage", "num_layers": 1},
        ranks=2,
        prefetch=0,
        loss={"kind": "cross_entropy", "class_weights": "balanced"},
    )
    tasks = [build_task(plan, Group(rank, 2, torch.device("cpu"))) for rank in (0, 1)]
    for step, parts in enumerate(zip(*(task.batches(0, 0) for task in tasks), strict=True)):
        own = tuple(float(tasks[0].loss.class_weights.double()[part.labels].sum()) for part in parts)
        assert tasks[0].weights(0, step) == tasks[1].weights(0, step) == own


def test_as_many_class_weights_as_classes(planned):
    with pytest.raises(UserError, match=r"train\.loss\.class_weights holds 2"):
        planned(stranger(), loss={"kind": "cross_entropy", "class_weights": [1.0, 2.0]})
