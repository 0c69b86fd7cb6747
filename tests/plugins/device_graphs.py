"""Graphs that lie for a device that is the CPU, whose kernels are the native core's, or the GPU's own in their shim."""

import os
import shutil
from dataclasses import replace

import pytest
import torch
from native_graph_kernels import NativeKernels

from cubins.shim import shim_library
from graphmill.access.device import DeviceGraph
from graphmill.access.device_kernels import LaunchedKernels
from graphmill.access.local import LocalAccess
from graphmill.access.opening import sampler_of
from graphmill.access.seeds import training_nodes
from graphmill.access.spec import GpuGraph
from graphmill.access.whole import WholeGraph
from graphmill.device.kernels import shim_kernels
from graphmill.sync.group import Group
from graphmill.tasks.node_classification.access import access_spec
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.node_classification.parts import open_graph
from graphmill.tasks.planning import plan_experiment

NODES, FEATURES = 300, 5
ROW = 4 * FEATURES
ALONE = Group(0, 1, torch.device("cpu"))


def prepare_graph(root):
    options = {"num_nodes": NODES, "num_edges": 3000, "features": FEATURES}
    prepare("synthetic/sbm", root=root, save_as="sbm", options=options)


def plan_of(root, kind="graphsage", *, layers=2, features="auto", form=None, **train):
    model = {"kind": kind, "num_layers": layers, "hidden_channels": 8, **(form or {})}
    asked = {"dataset": {"name": "sbm", "features": features}, "model": model}
    settings = {"epochs": 2, "batch_size": 40, "num_neighbors": [4, 6, 5][:layers], "threads": 1, "device": "cpu"}
    experiment = NodeClassificationExperiment.model_validate({**asked, "train": {**settings, **train}})
    return plan_experiment(experiment, dataset_root=root, run_id="run")


def spec_of(root, kind="graphsage"):
    plan = plan_of(root, kind)
    return access_spec(plan, plan.task), open_graph(root / "sbm")


def budget(spec, store, rows, *, topology=True):
    """Bytes for so many rows."""
    known = store.topology(undirected=spec.undirected)
    return 12 * NODES + (8 * (NODES + 1) + 4 * len(known.indices) if topology else 0) + rows * ROW


def device_access(spec, store, graph_bytes, kernels, *, group, features=None, draws="measured", rows="own"):
    whole = WholeGraph.of(spec, store, group)
    if features is not None:
        whole = replace(whole, features=features)
    source = DeviceGraph.of(spec, whole, GpuGraph(graph_bytes, draws, rows), kernels)
    seeds = training_nodes(spec, store, None, group.world_size)
    return LocalAccess(spec, store, source, sampler_of(spec, store, source, group), seeds, group)


def kernels_by(name):
    """Those named: native, or shim, for which the test is skipped where there is no compiler."""
    if name == "native":
        return NativeKernels()
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        pytest.skip("there is no C++ compiler for the shim")
    return LaunchedKernels(shim_kernels(shim_library()))
