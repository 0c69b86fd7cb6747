"""Dropout by coordinates: a mask is a function of (key, column), fair, and pinned."""

import numpy as np
import pytest
import torch

from graphmill.graph.batch import SparseRows
from graphmill.nn.draws import drawn_bits, drop_values, kept, row_keys
from graphmill.nn.operators import sparse_dropout


def test_a_row_key_depends_on_its_node_alone():
    ids = torch.tensor([5, 0, 2**40, 7])
    together = row_keys(9, ids)
    assert [int(row_keys(9, ids[i : i + 1])) for i in range(4)] == together.tolist()
    assert row_keys(9, ids.flip(0)).tolist() == together.flip(0).tolist()
    assert not torch.equal(row_keys(8, ids), together)


def test_bits_are_32_and_look_random():
    bits = drawn_bits(row_keys(1, torch.arange(4000)).unsqueeze(1), torch.arange(64))
    assert bits.min() >= 0
    assert bits.max() < 2**32
    for bit in range(32):
        share = float(((bits >> bit) & 1).double().mean())
        assert abs(share - 0.5) < 4 * 0.5 / 256_000**0.5, f"bit {bit}"


def test_masks_of_neighbouring_rows_and_columns_are_unrelated():
    mask = kept(row_keys(3, torch.arange(2000)).unsqueeze(1), torch.arange(200), 0.5).double() - 0.5
    for one, other in ((mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1]), (mask[:, 32:], mask[:, :-32])):
        correlation = float((one * other).mean() * 4)
        assert abs(correlation) < 5 / one.numel() ** 0.5


def test_the_bits_are_pinned():
    """Golden: the native operators and other devices draw the same."""
    bits = drawn_bits(torch.tensor([0x0123456789ABCDEF]), torch.arange(4))
    assert bits.tolist() == [2455965561, 906126875, 1884158910, 1481777264]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropped_values_are_zero_and_the_rest_scaled(p):
    values, keys = torch.ones(500, 40), row_keys(2, torch.arange(500)).unsqueeze(1)
    out = drop_values(values, keys, torch.arange(40), p)
    survivors = kept(keys, torch.arange(40), p)
    assert torch.equal(out != 0, survivors)
    assert (out[survivors] == torch.tensor(1 / (1 - p), dtype=torch.float32)).all()


def test_sparse_values_are_dropped_like_dense_ones():
    """A value's fate depends on its node and feature, not on how the row is stored."""
    x = torch.randn(30, 50) * (torch.rand(30, 50) < 0.2)
    rows, columns = x.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=30).cumsum(0)])
    keys = row_keys(4, torch.arange(30) * 3)
    sparse = sparse_dropout(SparseRows(indptr, columns.int(), x[rows, columns], 50), keys, 0.3)
    dense = drop_values(x, keys.unsqueeze(1), torch.arange(50), 0.3)
    assert torch.equal(sparse.values, dense[rows, columns])
    assert sparse.indptr is indptr


def test_keys_keep_all_64_bits():
    keys = row_keys(2**63 + 5, torch.arange(1000)).numpy().view(np.uint64)
    assert len(np.unique(keys)) == 1000
    assert keys.max() > 2**63
