"""What torch.save wrote is read without torch, and nothing that a file names is called."""

import os

import numpy as np
import pytest
import torch

from graphmill.base.errors import UserError
from graphmill.graph.pickled import UNPICKLABLE
from graphmill.graph.saved import array_of, data_of, read_saved

MOST = 1 << 24


def saved(tmp_path, value):
    torch.save(value, tmp_path / "it.pt")
    return tmp_path / "it.pt"


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_tensors_are_those_that_were_saved(tmp_path, dtype):
    whole = torch.arange(60).reshape(3, 4, 5).to(getattr(torch, dtype))
    given = {"whole": whole, "part": whole[1:, ::2], "turned": whole.mT, "none": whole[:0], "one": whole[0, 0, 0]}
    found = read_saved(saved(tmp_path, given), max_bytes=MOST)
    assert set(found) == set(given)
    for name, tensor in given.items():
        assert found[name].dtype == np.dtype(dtype)
        assert np.array_equal(array_of(found[name]), tensor.numpy())


def test_containers_and_arrays(tmp_path):
    found = read_saved(saved(tmp_path, [1, "two", {"x": np.arange(3)}, (torch.ones(2),), None]), max_bytes=MOST)
    assert found[:2] == [1, "two"]
    assert array_of(found[2]["x"]).tolist() == [0, 1, 2]
    assert data_of(found) is None
    with pytest.raises(TypeError):
        array_of("two")


class Named:
    """Whoever unpickles it calls os.mkdir."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def test_nothing_that_a_file_names_is_called(tmp_path):
    path = saved(tmp_path, {"x": Named(tmp_path / "made")})
    with pytest.raises(UNPICKLABLE, match="mkdir"):
        read_saved(path, max_bytes=MOST)
    assert not (tmp_path / "made").exists()
    with pytest.raises(UNPICKLABLE, match="_rebuild_sparse_tensor"):
        read_saved(saved(tmp_path, torch.eye(3).to_sparse()), max_bytes=MOST)


def test_a_tensor_that_claims_more_than_its_storage(tmp_path):
    with pytest.raises(UNPICKLABLE, match="in a storage of 1 numbers"):
        read_saved(saved(tmp_path, torch.ones(1).expand(1 << 20)), max_bytes=MOST)
    with pytest.raises(ValueError, match="at most 10 are read"):
        read_saved(saved(tmp_path, torch.ones(1)), max_bytes=10)


def test_damage_is_an_error_and_no_crash(tmp_path):
    whole = saved(tmp_path, {"edge": torch.arange(40).reshape(20, 2), "x": np.ones(4)}).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 4)):
            broken[place] = rng.integers(0, 256)
        if rng.random() < 0.2:
            del broken[int(rng.integers(0, len(whole))) :]
        (tmp_path / "broken.pt").write_bytes(broken)
        try:
            found = read_saved(tmp_path / "broken.pt", max_bytes=MOST)
            if isinstance(found, dict):
                [array_of(each) for each in found.values()]
        except (*UNPICKLABLE, UserError):
            continue
