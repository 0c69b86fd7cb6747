"""Portable weights: what is written comes back with its origin, goes into a model whole or in part, or clashes."""

import json
import math
import os
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from graphmill.base.errors import UserError
from graphmill.nn.weights import Weights
from graphmill.record.weights import Origin, WeightsFile, copy_initial_weights
from graphmill.spec.weights import InitialWeights

ORIGIN = Origin(run_id="source", task="toy", dataset="d", step=30, epoch=3, plan_hash="ab", measures={"f1": 0.1 + 0.2})


def model(hidden: int = 5) -> nn.Module:
    return nn.Sequential(nn.Linear(3, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, 2))


def weights_of(module: nn.Module) -> Weights:
    return Weights.of(module.state_dict(), ORIGIN)


@pytest.fixture
def file(tmp_path):
    torch.manual_seed(1)
    source = model()
    weights_of(source).write(tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors", source


def test_what_is_written_comes_back(file):
    path, source = file
    read = Weights.read(path)
    assert read.origin == ORIGIN
    assert read.tensors.keys() == source.state_dict().keys()
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in source.state_dict().items())
    plain = load_file(path)  # any reader of safetensors
    assert all(torch.equal(plain[name], tensor) for name, tensor in source.state_dict().items())


def test_a_measure_that_is_undefined_comes_back_as_such(tmp_path):
    origin = ORIGIN.model_copy(update={"measures": {"false_alarms_per_hour": math.nan, "f1": 0.5}})
    Weights.of(model().state_dict(), origin).write(tmp_path / "w.safetensors")
    measures = Weights.read(tmp_path / "w.safetensors").origin.measures
    assert math.isnan(measures.pop("false_alarms_per_hour"))
    assert measures == {"f1": 0.5}


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_who_may_read_a_file_of_weights_is_the_umask_s_choice(tmp_path, umask):
    before = os.umask(umask)
    try:
        weights_of(model()).write(tmp_path / "w.safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "w.safetensors").stat().st_mode & 0o777 == 0o666 & ~umask


def test_the_same_weights_make_the_same_bytes(file, tmp_path):
    path, source = file
    weights_of(source).write(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_the_checksum_is_of_the_content_not_of_the_origin(file, tmp_path):
    path, source = file
    header = WeightsFile.read(path)
    assert header.recorded_checksum == header.compute_checksum() == weights_of(source).checksum()
    other = Weights.of(source.state_dict(), ORIGIN.model_copy(update={"run_id": "other", "measures": {}}))
    assert other.checksum() == header.recorded_checksum
    with torch.no_grad():
        source[2].bias[1] += 1e-6
    assert weights_of(source).checksum() != header.recorded_checksum


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_every_dtype_has_the_same_checksum_in_memory_and_in_the_file(tmp_path, dtype):
    tensors = {
        "scalar": torch.tensor(1).to(dtype),
        "empty": torch.empty(0, 3, dtype=dtype),
        "t": torch.ones(2, 3, dtype=dtype).t(),
    }
    weights = Weights.of(tensors, ORIGIN)
    weights.write(tmp_path / "w")
    assert (
        WeightsFile.read(tmp_path / "w").compute_checksum()
        == weights.checksum()
        == Weights.read(tmp_path / "w").checksum()
    )


def test_all_go_into_a_model_of_the_same_form(file):
    path, source = file
    target = model()
    before = [parameter.data_ptr() for parameter in target.parameters()]
    Weights.read(path).load_all_into(target)
    assert all(
        torch.equal(a, b) for a, b in zip(source.state_dict().values(), target.state_dict().values(), strict=True)
    )
    assert [parameter.data_ptr() for parameter in target.parameters()] == before, "in place"


def test_a_part_goes_in_and_the_rest_is_listed(file):
    path, source = file
    torch.manual_seed(2)
    target = nn.Sequential(*model(), nn.Linear(2, 2))
    kept = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    loaded = Weights.read(path).load_into(target, include=["0.*", "2.*"], exclude=["*.bias"])
    assert loaded.taken == ("0.weight", "2.weight")
    assert loaded.not_taken == (
        "0.bias", "1.bias", "1.num_batches_tracked", "1.running_mean", "1.running_var", "1.weight", "2.bias",
    )  # fmt: skip
    assert loaded.not_filled == (*loaded.not_taken, "3.bias", "3.weight")
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name] if name in loaded.taken else kept[name]), name


def test_a_clash_names_both_shapes_and_both_origins(file):
    path, _ = file
    with pytest.raises(UserError) as refused:
        Weights.read(path).load_into(model(hidden=7), name="the model of new-run")
    for word in ("0.bias", "[5] F32", "[7] F32", "run source, step 30", str(path), "the model of new-run"):
        assert word in refused.value.message
    of_second = [f"1.{name}" for name in ("bias", "running_mean", "running_var", "weight")]
    clashing = ["0.bias", "0.weight", *of_second, "2.weight"]
    assert all(name in refused.value.message for name in clashing[:6]), "all at once"
    assert "and 1 more" in refused.value.message
    assert f"init_from.exclude={json.dumps(clashing)}" in refused.value.fix
    loaded = Weights.read(path).load_into(model(hidden=7), include=["2.bias"])
    assert loaded.taken == ("2.bias",)


def test_another_dtype_is_a_clash(file):
    with pytest.raises(UserError, match=r"\[5\] F32.*\[5\] F64"):
        Weights.read(file[0]).load_into(model().double())


def test_a_refused_load_changes_nothing(file):
    target = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))
    kept = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(UserError):
        Weights.read(file[0]).load_into(target)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in target.state_dict().items())


def test_patterns_that_match_nothing_and_weights_of_another_model_are_refused(file):
    weights = Weights.read(file[0])
    with pytest.raises(UserError, match=r"'0\.wieght'.*'0\.weight'"):
        weights.load_into(model(), include=["0.wieght"])
    with pytest.raises(UserError, match=r"9\.\*"):
        weights.load_into(model(), exclude=["9.*"])
    with pytest.raises(UserError, match="hidden"):
        weights.load_into(nn.ModuleDict({"hidden": nn.Linear(3, 5)}))
    with pytest.raises(UserError, match=r"only the model has 3\.bias, 3\.weight"):
        weights.load_all_into(nn.Sequential(*model(), nn.Linear(2, 2)))


def test_a_file_of_another_program_is_read(tmp_path):
    save_file(model().state_dict(), tmp_path / "w.safetensors", {"format": "pt"})
    weights = Weights.read(tmp_path / "w.safetensors")
    assert weights.origin is None
    assert WeightsFile.read(tmp_path / "w.safetensors").recorded_checksum is None
    weights.load_all_into(model())


@pytest.mark.parametrize("place", [0, 4, -1, -60])
def test_damage_is_refused(file, place):
    path, _ = file
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"w\.safetensors"):
        Weights.read(path)


@pytest.mark.parametrize("content", [b"", b"pickle", struct.pack("<Q", 2**60) + b"{}", struct.pack("<Q", 2) + b"[]"])
def test_what_is_not_safetensors_is_refused(tmp_path, content):
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(UserError, match="safetensors"):
        WeightsFile.read(tmp_path / "w")


def test_a_source_that_changed_after_planning_is_not_copied(file, tmp_path):
    path, source = file
    asked = InitialWeights(
        source=str(path), path=str(path), checksum=WeightsFile.read(path).checked(), include=(), exclude=()
    )
    copy_initial_weights(asked, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    with torch.no_grad():
        source[0].weight += 1
    weights_of(source).write(path)
    with pytest.raises(UserError, match=f"{asked.checksum}"):
        copy_initial_weights(asked, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_origin_of_a_later_format_is_refused(file):
    path, _ = file
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    header, data = json.loads(path.read_bytes()[8 : 8 + length]), path.read_bytes()[8 + length :]
    header["__metadata__"]["graphmill"] = header["__metadata__"]["graphmill"].replace("weights/1", "weights/9")
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    with pytest.raises(UserError, match="graphmill-weights/9"):
        Weights.read(path)
