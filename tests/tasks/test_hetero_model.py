"""A model of PyG's `to_hetero` by dotted path: from a HeteroData to predictions, and what is refused."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.sync.group import Group
from graphmill.tasks.build import build_task
from graphmill.tasks.hetero_model import made_up
from graphmill.tasks.node_classification.data.sources.hetero import from_hetero
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.tasks.planning import plan_experiment

data_of = pytest.importorskip("torch_geometric.data")
pyg = pytest.importorskip("torch_geometric.nn")

ALONE = Group(0, 1, torch.device("cpu"))
WRITES, CITES, WRITTEN = (
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "rev_writes", "author"),
)


def hetero_data():
    """Papers whose class is that of their authors, which alone have features that tell it."""
    rng = np.random.default_rng(0)
    author_class, num_papers, num_authors = rng.integers(0, 3, 60), 240, 60
    data = data_of.HeteroData()
    author_of = rng.integers(0, num_authors, num_papers)
    data["paper"].y = torch.from_numpy(author_class[author_of])
    data["paper"].x = torch.from_numpy(rng.standard_normal((num_papers, 4)).astype(np.float32))
    x = rng.standard_normal((num_authors, 7)).astype(np.float32)
    x[:, :3] += 3 * np.eye(3, dtype=np.float32)[author_class]
    data["author"].x = torch.from_numpy(x)
    writes = torch.from_numpy(np.stack([author_of, np.arange(num_papers)]))
    data[WRITES].edge_index, data[WRITTEN].edge_index = writes, writes.flip(0)
    data[CITES].edge_index = torch.from_numpy(rng.integers(0, num_papers, (2, 500)))
    return data


class Sage(nn.Module):
    def __init__(self, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first, self.second = (pyg.SAGEConv((-1, -1), each) for each in (hidden_channels, out_channels))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def sage(in_channels, out_channels, metadata, hidden_channels=16):
    return pyg.to_hetero(Sage(hidden_channels, out_channels), metadata, aggr="sum")


class Papers(nn.Module):
    """Of papers alone; `gives` chooses what is wrong with it."""

    def __init__(self, in_channels, out_channels, metadata, gives="papers"):
        super().__init__()
        self.linear = nn.Linear(in_channels["paper"], out_channels)
        self.gives = gives

    def forward(self, x_dict, edge_index_dict):
        rows = self.linear(x_dict["paper"])
        return {
            "papers": {"paper": rows},
            "rows": rows,
            "wide": {"paper": torch.cat([rows, rows], 1)},
            "authors": {"author": self.linear(x_dict["author"][:, :4])},
        }[self.gives]


@pytest.fixture(scope="module")
def named():
    module = ModuleType("models_by_type")
    module.sage, module.Papers = sage, Papers
    sage.__module__ = Papers.__module__ = "models_by_type"
    sys.modules["models_by_type"] = module
    yield "models_by_type"
    del sys.modules["models_by_type"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    write_store(from_hetero(hetero_data(), name="papers", source="made up", split_seed=0), root / "papers")
    return root


@pytest.fixture
def planned(root, named):
    def plan(target="sage", options=None, *, fused=False, **train):
        raw = {
            "dataset": {"name": "papers", "undirected": False},
            "model": {
                "kind": "custom",
                "target": f"{named}.{target}",
                "heterogeneous": True,
                "options": options or {},
                "fused": fused,
            },
            "train": {"epochs": 8, "batch_size": 16, "num_neighbors": [5, 5], "threads": 1, "device": "cpu", **train},
        }
        return plan_experiment(NodeClassificationExperiment.model_validate(raw), dataset_root=root, run_id="run")

    return plan


@pytest.mark.parametrize("fused", [False, True])
def test_it_learns_from_features_of_another_type_and_is_evaluated_exactly(planned, root, fused):
    """What it gives after training on sampled batches equals its own call on the whole HeteroData."""
    plan = planned(fused=fused, num_neighbors={":".join(each): [5, 5] for each in (WRITES, CITES, WRITTEN)})
    assert plan.task.unused == ""
    task = build_task(plan, ALONE)
    layers = [each for each in task.model.modules() if isinstance(each, pyg.SAGEConv)]
    assert {type(each).__module__.partition(".")[0] for each in layers} == {"graphmill" if fused else "torch_geometric"}
    optimizer = torch.optim.Adam(task.model.parameters(), lr=0.02)
    for epoch in range(8):
        for batch in task.batches(epoch, 0):
            optimizer.zero_grad()
            (task.loss_sum(batch) / batch.num_seeds).backward()
            optimizer.step()
    assert task.evaluate("test").values["micro_f1"] > 0.9
    papers = np.arange(240)
    task.model.eval()
    _, logits = task.exact_logits(papers, lambda: None)
    data = hetero_data()
    # repeated edges are merged when a graph is prepared, and the mean over neighbours counts them in `data`
    unique = {each: torch.unique(index, dim=1) for each, index in data.edge_index_dict.items()}
    with torch.no_grad():
        whole = task.model.inner(data.x_dict, unique)["paper"]
    torch.testing.assert_close(logits, whole, rtol=1e-4, atol=1e-4)


def test_ranks_begin_with_the_same_weights(planned):
    first, second = (build_task(planned(), ALONE).model.state_dict() for _ in range(2))
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)


def test_a_store_keeps_which_columns_are_whose(root):
    store = LabelledGraphStore.open(root / "papers")
    assert store.metadata.type_columns == ((0, 4), (4, 11))
    store.verify()


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("Papers", {"gives": "rows"}, "the model gives a Tensor"),
        ("Papers", {"gives": "wide"}, r"gives \{'paper': \[3, 6\]\} of three nodes"),
        ("Papers", {"hidden": 3}, "does not take model.options"),
        ("sage", {"hidden_channels": "wide"}, "does not take model.options"),
    ],
)
def test_what_is_no_such_model_is_refused(planned, target, options, said):
    plan = planned(target, options)
    with pytest.raises(UserError, match=said):
        NodeClassification.check_model(plan, plan.task)


def test_seeds_need_rows_of_their_type(planned):
    task = build_task(planned("Papers", {"gives": "authors"}), ALONE)
    with pytest.raises(UserError, match="gives rows of author, and the seeds are of type paper"):
        task.loss_sum(next(iter(task.batches(0, 0))))
    fits = build_task(planned("Papers"), ALONE)
    assert fits.model(next(iter(fits.batches(0, 0)))).shape == (16, 3)


def test_a_made_up_batch_has_every_type(planned):
    task = build_task(planned("Papers"), ALONE)
    x, edges = made_up(task.model.types)
    assert {name: each.shape for name, each in x.items()} == {"paper": (3, 4), "author": (3, 7)}
    assert set(edges) == {WRITES, CITES, WRITTEN}
