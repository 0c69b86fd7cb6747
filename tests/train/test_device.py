"""Where a rank trains is settled before it meets the others; what is missing is said."""

import subprocess
import sys

import pytest
import torch
from waiting import HANG_S

from graphmill.base.errors import UserError
from graphmill.nn.attention import layers
from graphmill.record.run_folder import RunFolder
from graphmill.spec.load import inline_experiment
from graphmill.spec.plan import MachineInfo, resolve
from graphmill.tasks.node_classification.page import GraphInfo
from graphmill.tasks.traffic.page import TrafficExperiment, TrafficInfo
from graphmill.train import device
from graphmill.train.device import choose_allocator, is_built_for, rank_device


def test_a_run_on_cpus_asks_for_nothing():
    assert rank_device("cpu", local_rank=3) == torch.device("cpu")


def test_memory_of_gpus_grows_in_place_unless_somebody_chose_otherwise():
    environ: dict[str, str] = {}
    choose_allocator(environ)
    assert list(environ.values()) == ["expandable_segments:True"]
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        chosen = {name: "max_split_size_mb:128"}
        choose_allocator(chosen)
        assert chosen == {name: "max_split_size_mb:128"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_torch_that_cannot_use_gpus_is_named():
    with pytest.raises(UserError, match="cannot use any here") as caught:
        rank_device("cuda", local_rank=0)
    assert torch.__version__ in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_rank_without_its_gpu_ends_with_a_sentence(tmp_path):
    facts = TrafficInfo(
        name="toy", path="/nowhere", checksum="0", synthetic=True, num_train=50, num_sensors=1, num_edges=1,
        num_steps=80, interval_s=300, unit="mph", num_val=10, num_test=10,
    )  # fmt: skip
    experiment = TrafficExperiment.model_validate({"train": {"epochs": 1, "device": "cuda"}})
    plan = resolve(experiment, machine=MachineInfo(num_cores=1, num_gpus=1), dataset=facts, run_id="run")
    folder = RunFolder.create(plan, tmp_path)
    command = [sys.executable, "-m", "graphmill.train.worker", folder.path]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 2
    assert "cannot use any here" in done.stderr
    assert "Traceback" not in done.stderr
    outcome = folder.read_outcome()
    assert outcome is not None
    assert (outcome.status, outcome.exit_code) == ("bad_request", 2)


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ((7, 0), ["sm_75", "sm_80", "sm_90", "compute_90"], False),  # V100 under a build for CUDA 13
        ((7, 0), ["sm_50", "sm_60", "sm_70", "sm_80"], True),
        ((8, 6), ["sm_80"], True),
        ((8, 0), ["sm_86"], False),
        ((9, 0), ["sm_80"], False),
        ((9, 0), ["sm_80", "compute_80"], True),
        ((9, 0), ["sm_90a"], True),
        ((12, 0), ["sm_100", "sm_120"], True),
        ((10, 3), ["sm_120", "compute_120"], False),
        ((9, 4), ["gfx942"], True),
    ],
)
def test_a_build_that_has_no_code_for_a_gpu_is_known(capability, architectures, runs):
    assert is_built_for(capability, architectures) is runs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_ranks_gpu_is_the_current_one():
    number = torch.cuda.device_count()
    device = rank_device("cuda", local_rank=number - 1)
    assert (device.index, torch.cuda.current_device()) == (number - 1, number - 1)
    if number > 1:
        with pytest.raises(UserError, match="a GPU of its own"):
            rank_device("cuda", local_rank=number)


def test_attention_needs_its_kernels_on_the_gpu(monkeypatch):
    """A pretended V100 under a torch that has code for it."""
    facts = GraphInfo(
        name="toy", path="/nowhere", checksum="0", synthetic=True, num_train=50, num_nodes=9, num_edges=9,
        num_features=8, num_classes=3, has_sparse_features=False,
    )  # fmt: skip
    train = {"epochs": 1, "num_neighbors": [5, 5], "device": "cuda", "precision": "bf16"}
    experiment = inline_experiment({"name": "x", "model": {"kind": "gat"}, "train": train}, "the test")
    plan = resolve(experiment, machine=MachineInfo(num_cores=1, num_gpus=1), dataset=facts, run_id="run")
    monkeypatch.setattr(device, "rank_device", lambda planned, rank, **_: torch.device(planned, rank))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0))
    monkeypatch.setattr(layers, "has_triton", lambda: True)
    with pytest.raises(UserError, match=r"Tesla V100 has compute capability 7\.0"):
        device.device_of(plan, 0)
    assert device.device_of(plan.model_copy(update={"precision": "fp32"}), 0) == torch.device("cuda", 0)
    monkeypatch.setattr(layers, "has_triton", lambda: False)
    with pytest.raises(UserError, match="needs Triton on Tesla V100") as caught:
        device.device_of(plan, 0)
    assert "model.attention=reference" in str(caught.value)
    assert device.device_of(plan.model_copy(update={"device": "cpu"}), 0) == torch.device("cpu", 0)


def test_products_are_rounded_as_the_plan_says(monkeypatch):
    facts = TrafficInfo(
        name="toy", path="/nowhere", checksum="0", synthetic=True, num_train=50, num_sensors=1, num_edges=1,
        num_steps=80, interval_s=300, unit="mph", num_val=10, num_test=10,
    )  # fmt: skip
    known = {"machine": MachineInfo(num_cores=1, num_gpus=1), "dataset": facts, "run_id": "run"}
    monkeypatch.setattr(device, "rank_device", lambda planned, rank, **_: torch.device(planned, rank))
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for asked in (True, False):
            experiment = TrafficExperiment.model_validate({"train": {"epochs": 1, "device": "cuda", "tf32": asked}})
            device.device_of(resolve(experiment, **known), 0)
            assert torch.backends.cuda.matmul.allow_tf32 is asked
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    with pytest.raises(UserError, match=r"train\.device is cpu") as caught:
        resolve(TrafficExperiment.model_validate({"train": {"epochs": 1, "device": "cpu", "tf32": True}}), **known)
    assert "train.tf32=false" in str(caught.value)
