"""Graphs shaped as Reddit and ogbn-products, made in seconds, and a rank's way to batches of them; for on_gpu.py."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from cubins.shim import shim_library
from graphmill.access.device import DeviceGraph
from graphmill.access.device_kernels import LaunchedKernels
from graphmill.access.local import LocalAccess
from graphmill.access.opening import open_access, sampler_of
from graphmill.access.seeds import training_nodes
from graphmill.access.spec import GpuGraph
from graphmill.access.whole import WholeGraph
from graphmill.device.kernels import shim_kernels
from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import DenseFeatures
from graphmill.graph.topology import Topology
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.sync.group import Group
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.page import (
    GraphInfo,
    NodeClassificationExperiment,
    NodeClassificationPlan,
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Counts as published; edges in the directions of messages."""

    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    num_train: int

    def divided(self, by: int) -> "Shape":
        counts = (self.num_nodes, self.num_edges, self.num_features, self.num_classes, self.num_train)
        nodes, edges, features, classes, train = counts
        return Shape(self.name, nodes // by, edges // by, min(features, 32), classes, train // by)


REDDIT = Shape("reddit_shaped", 232_965, 114_615_892, 602, 41, 153_431)
PRODUCTS = Shape("products_shaped", 2_449_029, 123_718_280, 100, 47, 196_615)


@dataclass(frozen=True, slots=True)
class MadeStore:
    """A graph in memory, as access asks for one."""

    known: Topology
    features: DenseFeatures
    labels: NDArray[np.int64]
    train: NDArray[np.int64]
    name: str
    path: Path = Path()
    node_type: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int8))

    @property
    def metadata(self) -> SimpleNamespace:
        return SimpleNamespace(name=self.name, num_nodes=self.known.num_nodes, edge_features=())

    def nodes_in(self, split: str) -> NDArray[np.int64]:
        return self.train if split == "train" else self.train[:0]

    def edge_features(self, *, undirected: bool) -> EdgeFeatures:
        raise ValueError(f"the edges of {self.name} have no features")

    def topology(self, *, undirected: bool) -> Topology:
        del undirected  # made in the directions of messages
        return self.known


def made(shape: Shape) -> MadeStore:
    """Degrees and popularity of neighbours are heavy-tailed; rows are not sorted, and may name a neighbour twice."""
    rng = np.random.default_rng(7)
    weights = rng.lognormal(0.0, 1.2, shape.num_nodes)
    ends = np.round(np.cumsum(weights) / weights.sum() * shape.num_edges).astype(np.int64)
    indptr = np.concatenate([[0], ends])
    place = rng.permutation(shape.num_nodes).astype(np.int32)
    drawn = rng.random(shape.num_edges, dtype=np.float32)
    indices = place[np.minimum((drawn**2 * shape.num_nodes).astype(np.int32), shape.num_nodes - 1)]
    x = rng.standard_normal((shape.num_nodes, shape.num_features), dtype=np.float32)
    labels = rng.integers(shape.num_classes, size=shape.num_nodes)
    train = np.sort(rng.choice(shape.num_nodes, shape.num_train, replace=False))
    return MadeStore(Topology(indptr, indices), DenseFeatures(x, "float32"), labels, train, shape.name)


def plan_of(shape: Shape, **train: object) -> Plan:
    """GraphSAGE of two layers of 256, fan-outs [25, 10], batches of 1,024."""
    facts = GraphInfo(
        name=shape.name, path="/nowhere", checksum="made", synthetic=True, num_train=shape.num_train,
        num_nodes=shape.num_nodes, num_edges=shape.num_edges, num_features=shape.num_features,
        num_classes=shape.num_classes, has_sparse_features=False,
    )  # fmt: skip
    dataset = {"name": shape.name, "undirected": False, "features": "as_stored"}
    model = {"kind": "graphsage", "num_layers": 2, "hidden_channels": 256, "dropout": 0.5}
    settings = {"epochs": 3, "num_neighbors": [25, 10], "batch_size": 1024, "device": "cpu", **train}
    experiment = NodeClassificationExperiment.model_validate({"dataset": dataset, "model": model, "train": settings})
    machine = MachineInfo(num_cores=torch.get_num_threads(), num_gpus=1)
    return resolve(experiment, machine=machine, dataset=facts, run_id="on-gpu")


def task_of(plan: Plan) -> NodeClassificationPlan:
    """Its part of a plan."""
    assert isinstance(plan.task, NodeClassificationPlan)
    return plan.task


def access_to(store: MadeStore, plan: Plan, device: torch.device, gpu_graph_bytes: int | None) -> LocalAccess:
    """By loaders of the CPU, or by those of the device with so much of its memory; where that is the CPU, by the shim.

    Raises `UserError` if the device has no kernels.
    """
    spec = replace(access_spec(plan, task_of(plan)), gpu=None if gpu_graph_bytes is None else GpuGraph(gpu_graph_bytes))
    group = Group(0, 1, device)
    if gpu_graph_bytes is None or device.type != "cpu":
        opened = open_access(spec, store, group)
        assert isinstance(opened, LocalAccess)
        return opened
    kernels = LaunchedKernels(shim_kernels(shim_library()))
    source = DeviceGraph.of(spec, WholeGraph.of(spec, store, group), GpuGraph(gpu_graph_bytes), kernels)
    seeds = training_nodes(spec, store, None, 1)
    return LocalAccess(spec, store, source, sampler_of(spec, store, source, group), seeds, group)
