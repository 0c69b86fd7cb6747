"""What the first layer of SIGN makes of the hops that stand side by side."""

import pytest
import torch

from graphmill.graph.batch import DenseRows, SparseRows
from graphmill.nn.sign import Sign

DENSE = DenseRows(torch.eye(4))
SPARSE = SparseRows(torch.arange(5), torch.arange(4, dtype=torch.int32), torch.ones(4), 4)


@pytest.mark.parametrize("rows", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_hops_before_the_last_count_a_tenth_and_columns_beside_them_whole(rows):
    sizes = {"in_channels": 1, "num_blocks": 3, "num_extra_columns": 1, "hidden_channels": 1, "out_channels": 1}
    no_dropout = {"dropout": 0.0, "input_dropout": 0.0}
    model = Sign(**sizes, **no_dropout, is_sparse=rows is SPARSE, num_layers=1, seed=0).eval()
    torch.nn.init.ones_(model.first)
    assert model.evaluated(rows).flatten().tolist() == pytest.approx([0.1, 0.1, 1, 1])
