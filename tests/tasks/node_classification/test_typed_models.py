"""R-GCN, R-SAGE and HGT for nodes: their plan, what they learn, exact inference, and what is refused."""

import dataclasses

import numpy as np
import pytest
import torch
from relation_problem import relation_problem
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.graph.features import Features, SparseFeatures
from graphmill.spec.kinds.kind import StepShape
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store
from graphmill.tasks.node_classification.page import KIND, NodeClassificationExperiment
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.portable_nodes import RelationalClassifier

ALONE = Group(0, 1, torch.device("cpu"))
KINDS = pytest.mark.parametrize("kind", ["rgcn", "rsage", "hgt"])
MODELS = pytest.mark.parametrize(
    "model", [{}, {"num_bases": 2}, {"kind": "rsage"}, {"kind": "rsage", "num_bases": 2}, {"kind": "hgt", "heads": 2}]
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for name, is_sparse in (("sparse", True), ("dense", False)):
        write_store(relation_problem(name, is_sparse=is_sparse), root / name)
    return root


@pytest.fixture
def planned(root):
    def plan(name="sparse", model=None, **more) -> Plan:
        dataset = {"name": name, "undirected": False, **more.pop("dataset", {})}
        train = {"epochs": 1, "batch_size": 32, "num_neighbors": [3, 2], "threads": 1, "device": "cpu", **more}
        model = {"kind": "rgcn", "hidden_channels": 8, **(model or {})}
        raw = {"dataset": dataset, "model": model, "train": train}
        return plan_experiment(NodeClassificationExperiment.model_validate(raw), dataset_root=root, run_id="run")

    return plan


@pytest.mark.parametrize("name", ["sparse", "dense"])
@MODELS
def test_the_plan_counts_its_parameters(planned, name, model):
    plan = planned(name, model)
    task = build_task(plan, ALONE)
    counted = sum(parameter.numel() for parameter in task.model.parameters())
    assert KIND.sizes(plan.task, StepShape(32, "cpu", "fp32")).num_parameters == counted
    assert plan.task.edge_columns == (0,)
    assert plan.task.unused == ""


@pytest.mark.parametrize("name", ["sparse", "dense"])
@MODELS
def test_a_step_keeps_no_more_than_the_plan_says(planned, name, model):
    """Of what backward reads, without the parameters and what the batch is."""
    plan = planned(name, model)
    task = build_task(plan, ALONE)
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    batch = next(iter(task.batches(0, 0)))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        task.loss_sum(batch)
    for parameter in task.model.parameters():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    sizes = KIND.sizes(plan.task, StepShape(32, "cpu", "fp32"))
    assert sum(kept.values()) < sizes.activation_bytes
    edges = sum(batch.num_edges_per_hop) * (4 + 8 + 4)
    assert edges + len(batch.node_ids) * 8 < sizes.batch_bytes


def learnt(task) -> float:
    """Accuracy on the test split after the plan's epochs."""
    optimizer = torch.optim.Adam(task.model.parameters(), lr=0.01)
    for epoch in range(task.plan.calendar.num_epochs):
        for batch in task.batches(epoch, 0):
            optimizer.zero_grad()
            (task.loss_sum(batch) / batch.num_seeds).backward()
            optimizer.step()
    return task.evaluate("test").values["micro_f1"]


@pytest.mark.parametrize("kind", ["rgcn", "rsage", pytest.param("hgt", marks=pytest.mark.slow)])
def test_it_learns_what_only_types_of_edges_tell(planned, kind):
    """Features are noise, and every node has as many neighbours: GraphSAGE is left with the most frequent class."""
    typed = build_task(planned(model={"kind": kind, "dropout": 0.0}, epochs=30), ALONE)
    assert learnt(typed) > 0.95
    untyped = build_task(planned(model={"kind": "graphsage", "dropout": 0.0}, epochs=30), ALONE)
    assert learnt(untyped) < 0.9


def whole_rows(features: Features) -> Tensor:
    """Of all nodes, as they are stored."""
    if not isinstance(features, SparseFeatures):
        return torch.from_numpy(np.array(features.x))
    parts = (
        torch.from_numpy(np.array(each))
        for each in (features.indptr, features.indices.astype(np.int64), features.values)
    )
    return torch.sparse_csr_tensor(*parts, (len(features.indptr) - 1, features.num_features), check_invariants=True)


@KINDS
@pytest.mark.parametrize(("name", "features"), [("sparse", "row_normalised"), ("dense", "standardised")])
def test_exact_inference_is_the_model_on_the_whole_graph(planned, name, features, kind):
    """To the bit, called as `graphmill.load` gives it, with the edges in any order."""
    model = {"kind": kind} if kind == "hgt" else {"kind": kind, "num_bases": 2}
    task = build_task(planned(name, model, dataset={"features": features}), ALONE)
    store = task.access.store
    topology, types = store.topology(undirected=False), store.edge_features(undirected=False)
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    edge_index = torch.from_numpy(np.stack([topology.indices.astype(np.int64), targets]))
    edge_type = torch.from_numpy(types.values[:, -1].copy())
    x, kinds = whole_rows(store.features), torch.from_numpy(store.node_type.astype(np.int64))
    task.model.eval()
    model = RelationalClassifier(task.model, features)
    with torch.no_grad():
        at_once = model(x, edge_index, edge_type, kinds)
        mixed = torch.randperm(edge_index.shape[1], generator=torch.Generator().manual_seed(0))
        assert model(x, edge_index[:, mixed], edge_type[mixed], kinds).equal(at_once)
    nodes = np.arange(0, topology.num_nodes, 2)
    _, logits = task.exact_logits(nodes, lambda: None)
    assert logits.equal(at_once[torch.from_numpy(nodes)])
    for strange, said in ((edge_type + 1, "the model knows 3"), (edge_type[1:], "there are")):
        with pytest.raises(ValueError, match=said):
            model(x, edge_index, strange, kinds)
    for strange, said in ((kinds + 1, "the model knows 2"), (kinds[1:], "there are"), (None, "node_type is None")):
        if kind != "rgcn":
            with pytest.raises(ValueError, match=said):
                model(x, edge_index, edge_type, strange)


def test_other_data_must_have_the_same_types(planned, root):
    """They are told apart by their numbers alone. And features must be of one form: sparse ones are projected."""
    raw = relation_problem("renamed")
    relations = (*raw.types.relations[:2], raw.types.relations[2]._replace(name="far"))
    write_store(dataclasses.replace(raw, types=dataclasses.replace(raw.types, relations=relations)), root / "renamed")
    write_store(relation_problem("another", num_nodes=90), root / "another")
    own = planned().task
    another, renamed, dense = (LabelledGraphStore.open(root / name) for name in ("another", "renamed", "dense"))
    assert NodeClassification.on_other_data(own, another).dataset.num_nodes == 90
    with pytest.raises(UserError, match="dense has dense features"):
        NodeClassification.on_other_data(own, dense)
    with pytest.raises(UserError, match=r"renamed has the edge types .*\*:far:\*, and the model was trained on sparse"):
        NodeClassification.on_other_data(own, renamed)


def test_what_does_not_fit_is_refused(planned, root):
    write_store(dataclasses.replace(relation_problem("untyped"), types=None), root / "untyped")
    with pytest.raises(UserError, match="edges of untyped have no types"):
        planned("untyped")
    with pytest.raises(UserError, match=r"dataset\.undirected is true"):
        planned(dataset={"undirected": True})
    with pytest.raises(UserError, match="num_bases is 4, but the edges of sparse have 3 types"):
        planned(model={"num_bases": 4})
    with pytest.raises(UserError, match="reads the types of edges by itself"):
        planned(dataset={"edge_features": "edge_attr"})
    with pytest.raises(UserError, match=r"model\.kind is hgt, which computes in fp32"):
        planned(model={"kind": "hgt"}, precision="bf16")
    with pytest.raises(ValueError, match="must be a multiple of heads 3"):
        planned(model={"kind": "hgt", "heads": 3})
