"""How kernels are started: what is refused before it could read another's memory."""

import ctypes

import pytest
import torch

from graphmill.base.errors import InvalidInputError, UserError
from graphmill.device.driver import KernelDriver, address
from graphmill.device.kernels import HopRows, cuda_kernels
from graphmill.device.structures import DeviceColumns, HopRule, RelationStruct


def test_a_missing_image_is_said_with_what_to_type(tmp_path):
    with pytest.raises(UserError, match=r"no kernels for GPUs(.|\n)*tools/cubins/build\.py"):
        cuda_kernels(torch.device("cuda", 0), tmp_path / "none.fatbin")


def test_a_missing_driver_is_said(tmp_path):
    with pytest.raises(UserError, match="cannot be loaded"):
        KernelDriver(tmp_path / "libcuda.so.1", b"", lambda: 0)


def test_a_kernel_that_is_not_there_is_named(kernels):
    with pytest.raises(UserError, match=r"find the kernel nothing: named symbol not found \(500\)"):
        kernels.driver.launch("nothing", 1)


def test_no_threads_start_nothing(kernels):
    kernels.driver.launch("nothing", 0)


def test_more_threads_than_a_start_has_are_refused(kernels):
    with pytest.raises(InvalidInputError, match="more than one start"):
        kernels.driver.launch("append", 1 << 40)


def test_a_view_with_gaps_and_another_dtype_are_refused():
    values = torch.arange(10)
    assert address(values).value == values.data_ptr()
    assert address(None).value is None
    with pytest.raises(InvalidInputError, match="contiguous"):
        address(values[::2])
    with pytest.raises(InvalidInputError, match="int32"):
        address(values, torch.int32)


def test_a_row_of_more_edges_than_kernels_count_is_refused():
    with pytest.raises(InvalidInputError, match="2147483648 in-edges"):
        DeviceColumns(indptr=torch.tensor([0, 1 << 31]), indices=torch.zeros(0, dtype=torch.int32), num_sources=1)


def test_more_edges_than_kernels_number_are_refused(kernels):
    columns = DeviceColumns(indptr=torch.tensor([0, 1]), indices=torch.zeros(1, dtype=torch.int32), num_sources=1)
    rows = HopRows(torch.zeros(4, dtype=torch.int64), torch.tensor([0, 4]), 4)
    none = torch.zeros(1, dtype=torch.int64)
    assert kernels.offer(columns, rows, HopRule(1 << 30), none).room == 4
    with pytest.raises(InvalidInputError, match="4294967296 edges"):
        kernels.offer(columns, rows, HopRule(1 << 30, replace=True), none)


def test_integers_have_64_bits(kernels):
    """An address above 2^32, and numbers above 2^63, arrive as they are."""
    out = torch.zeros(4, dtype=torch.int64)
    values = torch.tensor([2**63 - 1, -(2**63), 5])
    kernels.append(values, torch.tensor([7, 10]), torch.tensor([1]), out)
    assert out.tolist() == [0, 2**63 - 1, -(2**63), 5]


def test_structures_are_laid_out_as_the_compiler_does():
    assert ctypes.sizeof(RelationStruct) == 56
    assert RelationStruct.indptr.offset == 8
