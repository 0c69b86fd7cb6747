"""model.kind=sign: what it refuses, what a batch holds, that it is loaded as it was trained, memory as planned."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from labelled_stores import made_store, split_made

from graphmill.access.propagated import propagated
from graphmill.base.errors import InvalidInputError, UserError
from graphmill.graph.batch import DenseRows, SparseRows
from graphmill.graph.features import SparseFeatures
from graphmill.nn.weights import Weights
from graphmill.record.weights import Origin
from graphmill.spec.modelled import modelled
from graphmill.spec.node_sizes import held_by_rank
from graphmill.sync.group import Group
from graphmill.sync.pause import never_pause
from graphmill.tasks.build import build_task
from graphmill.tasks.label_propagation import KnownLabels, label_shares_of_others
from graphmill.tasks.node_classification.access import epochs_of
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.parts import open_graph
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment

ALONE = Group(0, 1, torch.device("cpu"))
WITH_LABELS = {"label_propagation": True}
ORIGIN = Origin(run_id="run", task="t", dataset="d", step=0, epoch=0, plan_hash="", measures={})


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    made_store(folder / "dense")
    made_store(folder / "sparse", is_sparse=True)
    made_store(folder / "several", several=True)
    return folder


def plan_of(root, name="dense", model=None, train=None, dataset=None, **sections):
    raw = {
        "dataset": {"name": name, **(dataset or {})},
        "model": {"kind": "sign", "hidden_channels": 16, **(model or {})},
        "train": {"epochs": 2, "batch_size": 8, "prefetch": 0, "device": "cpu", "threads": 1, **(train or {})},
        **sections,
    }
    experiment = NodeClassificationExperiment.model_validate(raw)
    return plan_experiment(experiment, dataset_root=root, run_id="run")


@pytest.mark.parametrize(
    ("sections", "says", "fix"),
    [
        ({"train": {"num_neighbors": [5, 5]}}, "train.num_neighbors says how many", "leave train.num_neighbors out"),
        ({"train": {"edge_dropout": 0.1}}, "train.edge_dropout drops sampled edges", "leave train.edge_dropout out"),
        ({"train": {"presampled": "somewhere"}}, "train.presampled has sampled epochs", "leave train.presampled out"),
        ({"train": {"evaluate_on": "whole_graph"}}, "model.kind sign is evaluated row by row", "leave train.evaluate"),
        ({"roles": {"samplers": 1, "trainers": 1}}, "roles has processes that sample", "leave roles out"),
        ({"dataset": {"edge_features": "edge_weight"}}, "model.kind sign reads no features of edges", "leave dataset"),
    ],
)
def test_what_clashes_is_said_with_what_to_type(root, sections, says, fix):
    with pytest.raises(UserError) as refused:
        plan_of(root, **sections)
    assert says in refused.value.args[0]
    assert fix in refused.value.fix


def test_the_plan_says_no_fan_outs_and_how_far_is_read(root):
    own = plan_of(root, model={"hops": 3}).task
    assert (own.num_neighbors, own.hops) == ((), 3)


def test_there_is_nothing_to_sample_before(root):
    with pytest.raises(UserError, match="samples nothing"):
        epochs_of(plan_of(root))


def test_graphs_in_parts_are_refused_to_train_and_to_evaluate_on(root, tmp_path):
    split_made(LabelledGraphStore.open(root / "dense"), tmp_path / "parts", num_parts=2)
    parts = open_graph(tmp_path / "parts")
    with pytest.raises(UserError, match="is in 2 parts") as refused:
        plan_of(root, str(parts.path))
    assert "name the graph that was partitioned" in refused.value.fix
    with pytest.raises(UserError, match="is in 2 parts"):
        NodeClassification.on_other_data(plan_of(root).task, parts)


@pytest.mark.parametrize("hops", [0, 17])
def test_hops_that_are_none_or_too_many_are_refused(root, hops):
    with pytest.raises(ValueError, match="hops"):
        plan_of(root, model={"hops": hops})


@pytest.mark.parametrize("dataset", ["dense", "sparse"])
@pytest.mark.parametrize("reads", ["all", "last"])
def test_a_batch_is_the_propagated_rows_of_its_seeds(root, dataset, reads):
    plan = plan_of(root, dataset, {"hops_read": reads, "hops": 3})
    task = build_task(plan, ALONE)
    store = task.access.store
    whole = propagated(store.features, store.topology(undirected=True), plan.task.model.propagation)
    for batch in task.batches(0, 0):
        assert np.array_equal(batch.node_ids.numpy(), batch.seeds.ids)
        match batch.inputs:
            case DenseRows(x):
                assert np.array_equal(x.numpy(), whole.x[batch.seeds.ids])
            case SparseRows(indptr, indices, values, _):
                for row, node in enumerate(batch.seeds.ids):
                    mine, its = slice(indptr[row], indptr[row + 1]), slice(*whole.indptr[node : node + 2])
                    assert np.array_equal(indices[mine].numpy(), whole.indices[its])
                    assert np.array_equal(values[mine].numpy(), whole.values[its])
            case _:
                raise AssertionError(batch.inputs)


def test_what_is_computed_of_a_node_depends_on_it_alone(root):
    """Dropout too: of one step, whichever rank has the node and whatever else is in its batch."""
    task = build_task(plan_of(root, model={"input_dropout": 0.3}), ALONE)
    torch.nn.init.normal_(task.model.layers[-1].weight)
    batch = next(task.batches(0, 0))
    few = replace(batch, node_ids=batch.node_ids[1::2], inputs=DenseRows(batch.inputs.x[1::2]))
    torch.testing.assert_close(task.model(few), task.model(batch)[1::2])


@pytest.mark.parametrize("dataset", ["dense", "sparse"])
def test_a_split_is_evaluated_by_its_own_rows(root, dataset):
    task = build_task(plan_of(root, dataset), ALONE)
    torch.nn.init.normal_(task.model.layers[-1].weight)
    found, everyone = (task.predict(splits, embeddings=False) for splits in (["test"], None))
    np.testing.assert_allclose(found.values["logit"], everyone.values["logit"][found.axes["node"]], rtol=1e-5)


def loaded_from(plan, task):
    return NodeClassification.inference_model(plan, Weights.of(task.model.state_dict(), ORIGIN)).eval()


def edges_of(task):
    """As a user of PyG has them, in any order."""
    topology = task.access.store.topology(undirected=True)
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    edges = np.stack([np.asarray(topology.indices, dtype=np.int64), targets])
    return torch.from_numpy(edges[:, np.random.default_rng(0).permutation(edges.shape[1])])


@pytest.mark.parametrize("dataset", ["dense", "sparse"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_loaded_model_gives_the_logits_of_predict(root, dataset, layers):
    """As a user of PyG has the graph: edges in any order, features as prepared."""
    features = "standardised" if dataset == "dense" else "row_normalised"
    plan = plan_of(root, dataset, {"num_layers": layers, "values_per_hop": 2}, dataset={"features": features})
    task = build_task(plan, ALONE)
    for batch in task.batches(0, 0):
        task.loss_sum(batch).backward()
    with torch.no_grad():
        for parameter in task.model.parameters():
            if parameter.grad is not None:
                parameter -= 0.01 * parameter.grad.sign()
    loaded, edges, stored = loaded_from(plan, task), edges_of(task), task.access.store.features
    if dataset == "dense":
        x = torch.from_numpy(np.array(stored.x))
    else:
        parts = (torch.from_numpy(np.array(each)) for each in (stored.indptr, stored.indices, stored.values))
        x = torch.sparse_csr_tensor(*parts, size=(stored.num_nodes, stored.num_features))
    expected = task.predict(None, embeddings=False).values["logit"]
    for given in (x, x.to_sparse_csr() if dataset == "dense" else x.to_dense()):
        np.testing.assert_allclose(loaded(given, edges).detach().numpy(), expected, rtol=1e-5, atol=1e-5)


def test_the_table_is_in_what_a_plan_says_of_memory(root):
    held = {hops: modelled(plan_of(root, model={"hops": hops})).memory_per_rank_mib for hops in (1, 8)}
    store = build_task(plan_of(root), ALONE).access.store
    more = 7 * 4 * store.metadata.num_nodes * store.features.num_features / 2**20
    assert held[8] - held[1] >= more


def test_propagated_labels_are_in_what_a_plan_says_of_memory(root):
    """While the table is put together they are there twice; before it, three tables of them are."""
    without, own = plan_of(root).task, plan_of(root, model=WITH_LABELS).task
    nodes = own.dataset.num_nodes
    assert held_by_rank(own, own.model, 3) - held_by_rank(without, without.model, 3) == 2 * 4 * nodes * 3
    assert held_by_rank(own, own.model, 1000) == 3 * 4 * nodes * 1001


def labels_read(task, nodes):
    """What stands beside the features in the rows of some nodes [n, num_classes]."""
    rows, count = task.access.source.features, task.task_plan.dataset.num_classes
    if not isinstance(rows, SparseFeatures):
        return rows.x[nodes, -count:]
    found = np.zeros((rows.num_nodes, rows.num_features), dtype=np.float32)
    found[np.repeat(np.arange(rows.num_nodes), np.diff(rows.indptr)), rows.indices] = rows.values
    return found[nodes, -count:]


@pytest.mark.parametrize("dataset", ["dense", "sparse", "several"])
@pytest.mark.parametrize("reads", ["all", "last"])
def test_labels_of_the_training_nodes_stand_beside_the_features(root, dataset, reads):
    plan = plan_of(root, dataset, WITH_LABELS | {"hops_read": reads})
    task = build_task(plan, ALONE)
    store, everyone = task.access.store, np.arange(task.task_plan.dataset.num_nodes)
    train = store.nodes_in("train")
    known = KnownLabels(train, store.labels[train], task.task_plan.dataset.num_classes)
    expected = label_shares_of_others(store.topology(undirected=True), known, plan.seed)
    assert expected.any()
    assert np.array_equal(labels_read(task, everyone), expected)
    without = build_task(plan_of(root, dataset, {"hops_read": reads}), ALONE)
    extra = task.model.first.shape[0] - without.model.first.shape[0]
    assert extra == task.task_plan.dataset.num_classes
    assert modelled(plan).num_parameters == sum(each.numel() for each in task.model.parameters() if each.requires_grad)


def test_of_fewer_training_nodes_no_other_label_is_read(root):
    """With dataset.train_limit the labels of the training nodes that were not drawn are not known."""
    plan = plan_of(root, model=WITH_LABELS, dataset={"train_limit": 5})
    task = build_task(plan, ALONE)
    store = task.access.store
    drawn = np.sort(np.concatenate([batch.seeds.ids for batch in task.batches(0, 0)]))
    known = KnownLabels(drawn, store.labels[drawn], task.task_plan.dataset.num_classes)
    expected = label_shares_of_others(store.topology(undirected=True), known, plan.seed)
    assert len(drawn) == 5 < len(store.nodes_in("train"))
    assert np.array_equal(labels_read(task, np.arange(store.metadata.num_nodes)), expected)


def test_labels_are_not_standardised(root):
    task = build_task(plan_of(root, model=WITH_LABELS, dataset={"features": "standardised"}), ALONE)
    assert task.model.standardise.mean[-3:].tolist() == [0, 0, 0]
    assert task.model.standardise.sd[-3:].tolist() == [1, 1, 1]
    assert task.model.standardise.sd[:-3].min() > 1


@pytest.mark.parametrize("dataset", ["dense", "sparse", "several"])
def test_a_loaded_model_is_given_the_labels_that_are_known(root, dataset):
    plan = plan_of(root, dataset, WITH_LABELS)
    task = build_task(plan, ALONE)
    torch.nn.init.normal_(task.model.layers[-1].weight)
    loaded, edges, store = loaded_from(plan, task), edges_of(task), task.access.store
    labels = np.full_like(store.labels, -1)
    train = store.nodes_in("train")
    labels[train] = store.labels[train]
    if dataset == "sparse":
        parts = (torch.from_numpy(np.array(each)) for each in (store.features.indptr, store.features.indices))
        values = torch.from_numpy(np.array(store.features.values))
        x = torch.sparse_csr_tensor(*parts, values, size=(store.features.num_nodes, store.features.num_features))
    else:
        x = torch.from_numpy(np.array(store.features.x))
    found = loaded(x, edges, torch.from_numpy(labels)).detach().numpy()
    task.model.eval()
    _, expected = task.exact_logits(np.arange(store.metadata.num_nodes), never_pause)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "labels", "says"),
    [
        (WITH_LABELS, None, "labels are not given, and the model reads labels"),
        ({}, torch.zeros(60, dtype=torch.int64), "labels are given, and the model does not read labels"),
        (WITH_LABELS, torch.zeros(59, dtype=torch.int64), r"labels are int64 \[59\], and there are 60 nodes"),
        (WITH_LABELS, torch.zeros(60), r"labels are float32 \[60\]"),
        (WITH_LABELS, torch.full((60,), 3), "labels are 3 to 3, and the largest is 2"),
        (WITH_LABELS, torch.full((60, 3), 2), "labels are 2 to 2, and the largest is 1"),
    ],
)
def test_labels_that_do_not_fit_are_refused(root, model, labels, says):
    plan = plan_of(root, model=model)
    task = build_task(plan, ALONE)
    with pytest.raises(InvalidInputError, match=says) as refused:
        loaded_from(plan, task)(torch.from_numpy(np.array(task.access.store.features.x)), edges_of(task), labels)
    assert "labels" in refused.value.fix or "class of each node" in refused.value.fix


def test_on_other_data_their_own_training_labels_are_read(root, tmp_path):
    made_store(tmp_path / "other", num_nodes=80, seed=1)
    plan, other = plan_of(root, model=WITH_LABELS), open_graph(tmp_path / "other")
    there = plan.model_copy(update={"task": NodeClassification.on_other_data(plan.task, other)})
    task, train = build_task(there, ALONE), other.nodes_in("train")
    known = KnownLabels(train, other.labels[train], 3)
    expected = label_shares_of_others(other.topology(undirected=True), known, plan.seed)
    assert np.array_equal(labels_read(task, np.arange(80)), expected)
