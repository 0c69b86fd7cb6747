"""Everything that a step, a checkpoint and an evaluation compute, with the model on another device than the CPU.

No GPU is needed: `programs/pretended_device.py` says what its device shows, and what it cannot.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from other_tasks import LINKS, make_captures, make_graphs, make_links, make_values
from relation_problem import relation_problem
from rounding import drift
from waiting import HANG_S

from graphmill.graph.features import DenseFeatures, SparseFeatures
from graphmill.spec.load import inline_experiment
from graphmill.spec.plan import MachineInfo, Plan
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.store import write_traffic
from graphmill.tasks.traffic.page import TrafficExperiment

PROGRAM = Path(__file__).parent / "programs" / "on_device.py"
MACHINE, WITH_GPU = (MachineInfo(num_cores=1, num_gpus=number) for number in (0, 1))
SAGE = {"kind": "graphsage", "num_layers": 2, "hidden_channels": 8, "dropout": 0.5}
GCN = {"kind": "custom", "target": "torch_geometric.nn.GCN", "options": {"hidden_channels": 8, "num_layers": 2}}
CLASSIFICATIONS = {
    "averaged inputs": ("dense", SAGE, {}),
    "averaged inputs in bfloat16": ("dense", SAGE, {"precision": "bf16"}),
    "inputs dropped": ("dense", {**SAGE, "input_dropout": 0.3}, {}),
    "sparse inputs": ("sparse", SAGE, {}),
    "sparse inputs dropped": ("sparse", {**SAGE, "input_dropout": 0.3}, {}),
    "a model of PyG": ("dense", GCN, {}),
    "a model of PyG on sparse inputs": ("sparse", GCN, {}),
    "local SGD": ("dense", SAGE, {"sync": {"scheme": "local_sgd", "average_optimizer_state": True}}),
    "DiLoCo": (
        "dense",
        SAGE,
        {"sync": {"scheme": "diloco", "payload": "bf16"}, "optimizer": {"kind": "adam", "max_grad_norm": 0.1}},
    ),
}
# A graph that lies on the device, whose kernels are their shim's: hidden rows of evaluation fit there, or do not.
LYING = {"device": "cuda", "gpu_graph_gib": 1.0}
LAID_OUT = {
    "drawn on the device": ("dense", SAGE, {**LYING, "gpu_draws": "device"}),
    "drawn on the CPU for it": ("dense", SAGE, {**LYING, "gpu_draws": "cpu"}),
    "drawn by whoever is faster": ("dense", SAGE, LYING),
    "in two places": ("dense", SAGE, {**LYING, "gpu_draws": "device", "gpu_graph_gib": 35_000 / 2**30}),
    "a model of PyG, in two places": ("dense", GCN, {**LYING, "gpu_draws": "device", "gpu_graph_gib": 35_000 / 2**30}),
}
if shutil.which(os.environ.get("CXX", "c++")) is None:
    LAID_OUT = {}
RGCN = {"kind": "rgcn", "num_layers": 2, "hidden_channels": 8, "dropout": 0.5}
RELATIONS = {
    "R-GCN": ("typed dense", RGCN, {}),
    "R-GCN in bfloat16": ("typed dense", RGCN, {"precision": "bf16"}),
    "R-SAGE": ("typed dense", {**RGCN, "kind": "rsage"}, {}),
    "HGT": ("typed dense", {**RGCN, "kind": "hgt"}, {}),
    "HGT on sparse inputs": ("typed sparse", {**RGCN, "kind": "hgt", "input_dropout": 0.3}, {}),
    "R-GCN, bases and sparse inputs": ("typed sparse", {**RGCN, "num_bases": 2, "input_dropout": 0.3}, {}),
}
FEW = {"num_neighbors": [4, 3]}
# Triton's kernels need a GPU. Torch's own draws, which hide ids, are another device's on a GPU, and the CPU's here.
PLAIN = {"kind": "gat", "attention": "reference", "dropout": 0.5, "id_dropout": 0.5}
OTHERS = {
    "values of nodes": {"task": {"kind": "node_regression"}, "dataset": {"name": "synthetic/values"}, "train": FEW},
    "links": {
        "task": {"kind": "link_prediction"}, "dataset": {"name": LINKS}, "model": {**SAGE, "dropout": 0.0}, "train": FEW
    },
    "whole graphs": {"task": {"kind": "graph_classification"}, "dataset": {"name": "synthetic/motifs"}},
    "captures": {"task": {"kind": "intrusion"}, "dataset": {"name": "synthetic/can"}, "model": PLAIN},
}  # fmt: skip
DCRNN = {"kind": "dcrnn", "rnn_units": 4, "num_layers": 2}


def communities(*, sparse: bool) -> LabelledGraph:
    """300 nodes in three classes, with features that tell them apart."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    x = rng.normal(size=(300, 9)).astype(np.float32) + np.eye(3, 9, dtype=np.float32)[labels]
    x *= rng.random(x.shape) < 0.6
    csr = (np.concatenate([[0], np.cumsum((x != 0).sum(axis=1))]), np.nonzero(x)[1].astype(np.int32), x[x != 0])
    return LabelledGraph(
        edge_index=rng.integers(0, 300, (2, 3000)),
        features=SparseFeatures(*csr, 9) if sparse else DenseFeatures(x, "float32"),
        labels=labels,
        split=np.arange(300).astype(np.int8) % 3,
        name="communities",
        source="test",
        synthetic=True,
    )


def plans(root: Path) -> dict[str, Plan]:
    for kind in ("dense", "sparse"):
        write_store(communities(sparse=kind == "sparse"), root / kind)
        write_store(relation_problem(f"typed {kind}", is_sparse=kind == "sparse"), root / f"typed {kind}")
    made = {}
    for name, (data, model, train) in (CLASSIFICATIONS | RELATIONS | LAID_OUT).items():
        settings = {"epochs": 1, "batch_size": 16, "num_neighbors": [4, 3], "threads": 1, "ranks": 1, **train}
        experiment = NodeClassificationExperiment.model_validate(
            {
                "dataset": {"name": str(root / data), "undirected": name not in RELATIONS},
                "model": model,
                "train": settings,
            }
        )
        machine = WITH_GPU if name in LAID_OUT else MACHINE
        made[name] = plan_experiment(experiment, dataset_root=root, run_id="run", machine=machine)
    for name, sensors in (("DCRNN, dense walks", 6), ("DCRNN, sparse walks", 60)):
        store = write_traffic(generate(num_sensors=sensors, num_steps=200, missing_share=0.1, seed=1), root / name)
        asked = {"dataset": {"name": str(store.path), "history": 4, "horizon": 3}, "model": DCRNN}
        train = {"epochs": 1, "batch_size": 8, "threads": 1, "ranks": 1}
        experiment = TrafficExperiment.model_validate({**asked, "train": train})
        made[name] = plan_experiment(experiment, dataset_root=root, run_id="run", machine=MACHINE)
    for make in (make_values, make_links, make_graphs, make_captures):
        make(root)
    for name, sections in OTHERS.items():
        train = {"epochs": 1, "batch_size": 16, "threads": 1, "ranks": 1, **sections.get("train", {})}
        experiment = inline_experiment({"name": "x", **sections, "train": train}, "the test")
        made[name] = plan_experiment(experiment, dataset_root=root, run_id="run", machine=MACHINE)
    return made


@pytest.fixture(scope="module")
def reports(request, tmp_path_factory) -> dict[str, list[dict]]:
    """Of all that the tests of this session ask for, and of what others are compared with."""
    root = tmp_path_factory.mktemp("data")
    here = [item for item in request.session.items if item.path == Path(__file__)]
    asked = {item.callspec.params["name"] for item in here if hasattr(item, "callspec")}
    files = {}
    for number, (name, plan) in enumerate(plans(root).items()):
        if name not in asked | {"averaged inputs", "a model of PyG"}:
            continue
        files[name] = root / f"{number}.json"
        files[name].write_text(plan.model_dump_json())
    tools = os.pathsep.join(filter(None, (str(Path(__file__).parents[2] / "tools"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, PROGRAM, *files.values()],
        check=False, capture_output=True, text=True, timeout=HANG_S, env={**os.environ, "PYTHONPATH": tools},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(files, json.loads(done.stdout), strict=True))


# What the first of a group computes is computed by the others as well, in another form.
AT_LENGTH = {
    *("inputs dropped", "sparse inputs", "a model of PyG on sparse inputs", "local SGD", "drawn on the CPU for it"),
    *("a model of PyG, in two places", "R-GCN", "R-GCN in bfloat16", "R-SAGE", "HGT", "whole graphs"),
    "DCRNN, dense walks",
}
ALL = [*CLASSIFICATIONS, *LAID_OUT, *RELATIONS, *OTHERS, "DCRNN, dense walks", "DCRNN, sparse walks"]


def marked(names: Iterable[str]) -> list:
    return [pytest.param(name, marks=[pytest.mark.slow] if name in AT_LENGTH else []) for name in names]


NAMES = marked(ALL)


@pytest.mark.parametrize("name", NAMES)
def test_a_device_computes_what_the_cpu_does(reports, name):
    cpu, device = reports[name]
    assert device["on_device"]
    assert not cpu["on_device"]
    computed = torch.bfloat16 if "bfloat16" in name else torch.float32
    # In bfloat16 numbers are rounded when they are stored, and added up in float32.
    terms = 3 if computed == torch.bfloat16 else 1000
    for updates, (one, other) in enumerate(zip(cpu["losses"], device["losses"], strict=True), start=1):
        assert abs(one - other) <= drift(one, terms=terms, updates=updates, computed=computed)
    one, other = cpu["val"], device["val"]
    assert one["num_seeds"] == other["num_seeds"]
    assert abs(one["loss"] - other["loss"]) <= drift(one["loss"], terms=terms, updates=updates, computed=computed)
    assert device["comes_back"], "a checkpoint holds what the device held"


@pytest.mark.parametrize("name", NAMES)
def test_no_step_waits_for_the_device(reports, name):
    """Nor does what comes between steps: losses, hashes and votes are read a round later, copies go beside.

    In the first step what never changes is copied, once. What a layer of PyG asks for itself is not ours to mend: its
    GCN counts the loops that are there already, as the plain attention that fused kernels are compared with does.
    """
    first, *later = reports[name][1]["waits"]
    assert set(first) <= {"a blocking copy from the CPU", "a mask was counted"}
    counts_loops = "PyG" in name or name == "captures"
    assert len(later) == 4  # three steps, and what follows the last
    waits = [each for step in later for each in step]
    assert [each for each in waits if not counts_loops or each != "a mask was counted"] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_later_is_the_same_to_the_bit(reports, name):
    """The weights, their recorded hash and the sum of losses, of steps that read each loss before the next."""
    assert [each["as_if_it_waited"] for each in reports[name]] == [True, True]


@pytest.mark.parametrize("name", marked(name for name in ALL if "DCRNN" not in name))
def test_a_copied_batch_is_known_to_the_stream_that_computes(reports, name):
    """Else its memory could be given out again while the step reads it."""
    assert reports[name][1]["unknown"] == 0


@pytest.mark.parametrize("name", marked(LAID_OUT))
def test_where_a_graph_lies_and_who_draws_of_it_changes_no_bit(reports, name):
    """Losses, and logits of exact inference, beside a run whose batches the CPU makes and copies."""
    known, found = (reports[each][1] for each in ("a model of PyG" if "PyG" in name else "averaged inputs", name))
    assert found["losses"] == known["losses"]
    assert found["exact"]["logits"] == known["exact"]["logits"]


@pytest.mark.parametrize("name", marked(LAID_OUT))
def test_exact_inference_copies_ids_and_waits_once_a_piece(reports, name):
    """For the sizes of what was drawn, of which every block here has one piece; at its end, or once more a block where
    hidden rows lie on the host; and twice to find the rows that the last of two layers reads.
    """
    found = reports[name][1]["exact"]
    assert found["copied"]
    assert all(len(shape) == 1 for shape in found["copied"]), "no row of features crosses by a copy"
    if "PyG" not in name:
        expected = 2 + (2 * found["blocks"] if name == "in two places" else found["blocks"] + 1)
        assert found["waits"] == ["a copy to the CPU"] * expected


def test_whoever_draws_is_recorded(reports):
    """What was measured is on no CPU."""
    draws = {name: reports[name][1]["draws"] for name in LAID_OUT if name in reports}
    assert all(reports[name][0]["draws"] == [] for name in reports)
    assert {len(each) for each in draws.values()} <= {1}
    for name, (each,) in draws.items():
        measured = name == "drawn by whoever is faster"
        assert each["asked"] == ("measured" if measured else "cpu" if "CPU" in name else "device")
        assert each["by"] == each["asked"] or measured
        assert (each["device_s"] is not None and each["cpu_s"] is not None) is measured
        assert not measured or (each["by"] == "device") is (each["device_s"] <= each["cpu_s"])
