"""Where fused attention runs is settled by the plan."""

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.attention import AttentionSpec, is_fused, refuse_gpus, width_clash
from graphmill.spec.load import inline_experiment
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.tasks.intrusion.page.models import CanVgaeSpec, FusionSpec
from graphmill.tasks.node_classification.page import GraphInfo

FACTS = GraphInfo(
    name="toy", path="/nowhere", checksum="0", synthetic=True, num_train=50, num_nodes=100, num_edges=400,
    num_features=8, num_classes=3, has_sparse_features=False,
)  # fmt: skip


def planned(gpu: str | None, **asked: object) -> Plan:
    value = {
        "name": "x",
        "model": {
            "kind": "gat",
            "num_layers": 2,
            **({"attention": asked.pop("attention")} if "attention" in asked else {}),
        },
        "train": {"epochs": 1, "num_neighbors": [5, 5], **asked},
    }
    machine = MachineInfo(num_cores=2, num_gpus=int(gpu is not None), gpu_names=(gpu,) if gpu else ())
    return resolve(inline_experiment(value, "the test"), machine=machine, dataset=FACTS, run_id="r")


def test_bf16_runs_on_gpus_and_not_on_cpus():
    assert planned("NVIDIA A100-SXM4-40GB", precision="bf16").device == "cuda"
    assert planned("NVIDIA GeForce of 2031", precision="bf16").device == "cuda"  # not known: left to the rank
    assert planned("Tesla V100-PCIE-16GB").device == "cuda"
    assert planned(None, precision="bf16", attention="reference").device == "cpu"
    for gpu, device in ((None, "auto"), ("NVIDIA A100-SXM4-40GB", "cpu")):
        with pytest.raises(UserError, match="fp32 on CPUs") as caught:
            planned(gpu, precision="bf16", device=device)
        assert "set train.precision=fp32, or model.attention=reference" in str(caught.value)


def test_a_gpu_without_bf16_is_refused_with_its_compute_capability():
    with pytest.raises(UserError, match=r"V100-PCIE-16GB has compute capability 7\.0") as caught:
        planned("Tesla V100-PCIE-16GB", precision="bf16")
    assert "set train.precision=fp32" in str(caught.value)
    with pytest.raises(UserError, match=r"needs 7\.0, and Tesla P100"):
        planned("Tesla P100-PCIE-16GB")
    assert planned("Tesla P100-PCIE-16GB", attention="reference").device == "cuda"


def test_which_models_attend_by_the_operator():
    fused = AttentionSpec(kind="gat")
    assert is_fused(fused)
    assert not is_fused(fused.model_copy(update={"attention": "reference"}))
    assert is_fused(CanVgaeSpec(kind="vgae"))
    assert is_fused(FusionSpec(kind="fusion"))
    assert not is_fused(None)
    refuse_gpus(None, "bf16", [("v100", (7, 0))])


def test_a_head_wider_than_the_gpus_kernels_hold_is_refused_before_anything_runs():
    wide = {"kind": "gatv2", "num_layers": 2, "hidden_channels": 4097}

    def planned_on(gpu: str | None, **model: object) -> Plan:
        value = {"name": "x", "model": {**wide, **model}, "train": {"epochs": 1, "num_neighbors": [5, 5]}}
        machine = MachineInfo(num_cores=2, num_gpus=int(gpu is not None), gpu_names=(gpu,) if gpu else ())
        return resolve(inline_experiment(value, "the test"), machine=machine, dataset=FACTS, run_id="r")

    with pytest.raises(UserError, match=r"at most 4096 channels a head on GPUs, and model\.hidden_channels makes 4097"):
        planned_on("NVIDIA H100 80GB HBM3")
    assert planned_on("NVIDIA H100 80GB HBM3", hidden_channels=4096).device == "cuda"
    assert planned_on("NVIDIA H100 80GB HBM3", attention="reference").device == "cuda"
    assert planned_on(None).device == "cpu"
    assert width_clash(CanVgaeSpec(kind="vgae")) is None
