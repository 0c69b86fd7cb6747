"""The kernels of native/device/kernels.cu on the CPU: compiled once for each state of their sources."""

import shutil

import pytest

from cubins.shim import set_order, shim_library
from graphmill.device.kernels import DeviceKernels, shim_kernels


@pytest.fixture(scope="session")
def shim_path():
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler for the shim")
    return shim_library()


@pytest.fixture
def kernels(shim_path) -> DeviceKernels:
    return shim_kernels(shim_path)


@pytest.fixture(params=[0, 1, 20261127], ids=["ascending", "descending", "shuffled"])
def kernels_in_any_order(request, shim_path):
    """With blocks in one order or another."""
    set_order(shim_path, request.param)
    yield shim_kernels(shim_path)
    set_order(shim_path, 0)
