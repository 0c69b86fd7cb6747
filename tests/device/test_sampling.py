"""Batches of the GPU's kernels, run by the shim, equal the native samplers': each option, blocks in any order."""

import numpy as np
import pytest
import torch

from graphmill import _native
from graphmill.base.errors import InvalidInputError
from graphmill.device.sampling import DeviceSampler
from graphmill.device.structures import DeviceColumns
from graphmill.device.typed import TypedDeviceSampler, TypedRule, TypedSeedsOnDevice
from shim_equality import CASES, SMALL, Size, compare

MOST = Size(20_000, 300)
EDGES = 1_000_000 / len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_million_edges_are_the_native_ones(kernels, case):
    """All options together; a kernel whose lanes are fibers is slow, and samples fewer."""
    compare(case, kernels, MOST, EDGES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_order_of_blocks_changes_nothing(kernels_in_any_order, case):
    compare(case, kernels_in_any_order, SMALL, 3_000)


def star(num_leaves: int, **columns) -> DeviceColumns:
    """All leaves point to node 0."""
    indptr = torch.tensor([0] + [num_leaves] * (num_leaves + 1))
    indices = torch.arange(1, num_leaves + 1, dtype=torch.int32)
    return DeviceColumns(indptr=indptr, indices=indices, num_sources=num_leaves + 1, **columns)


def test_a_few_heavy_edges_leave_the_rest_to_be_added_up(kernels):
    """Weights of which rejection draws the same edge for ever: what is left is summed, as on the CPU."""
    weights = np.array([1e-12] * 4 + [1.0] + [1e-12] * 4)
    sums = np.cumsum(weights)
    columns = star(9, weights=torch.from_numpy(sums))
    relation = _native.Relation(0, 0, columns.indptr.numpy(), columns.indices.numpy(), None, sums, None)
    native = _native.TypedNeighborSampler([10], [relation])
    device = TypedDeviceSampler(kernels, [10], [columns])
    seed = np.zeros(1, np.int64)
    found = set()
    for key in range(50):
        theirs = native.sample([0], [seed], [None], [[4]], 1, key)
        ours = device.sample([TypedSeedsOnDevice(0, torch.from_numpy(seed))], TypedRule([[4]], key))
        assert ours.edge_ids[0].tolist() == theirs.edge_ids(0).tolist()
        found.update(ours.edge_ids[0].tolist())
    assert found == set(range(9))


def test_what_lies_behind_a_batch_is_not_read(kernels):
    """Results have room for full rows; `trimmed` cuts them to what there is."""
    sampled = DeviceSampler(kernels, star(3), resample=False).sample(torch.tensor([0, 1]), [8, 8], 5)
    assert len(sampled.indices) > 3
    trimmed = sampled.trimmed()
    assert trimmed.node_ids.tolist() == [0, 1, 2, 3]
    assert trimmed.indptr.tolist() == [0, 3, 3, 3, 3]
    assert trimmed.indices.tolist() == [1, 2, 3]
    assert trimmed.num_nodes_per_hop == [2, 2, 0]
    assert sampled.trimmed(sampled.sizes.tolist()).indptr.tolist() == trimmed.indptr.tolist()


def test_an_empty_batch_is_empty(kernels):
    trimmed = (
        DeviceSampler(kernels, star(3), resample=True).sample(torch.empty(0, dtype=torch.int64), [2, 2], 1).trimmed()
    )
    assert trimmed.indptr.tolist() == [0]
    assert trimmed.num_rows_per_hop == [0, 0]


@pytest.mark.parametrize("seeds", [[-1], [4], [2, 2]])
def test_seeds_that_the_graph_has_not_are_refused(kernels, seeds):
    with pytest.raises(InvalidInputError, match="seed"):
        DeviceSampler(kernels, star(3), resample=False).sample(torch.tensor(seeds), [2], 1)


def test_a_type_that_kernels_do_not_read_is_refused():
    with pytest.raises(InvalidInputError, match="int64"):
        DeviceColumns(indptr=torch.zeros(2, dtype=torch.int32), indices=torch.zeros(0), num_sources=1)
    with pytest.raises(InvalidInputError, match="int32 or int64"):
        DeviceColumns(indptr=torch.zeros(2, dtype=torch.int64), indices=torch.zeros(0), num_sources=1)
