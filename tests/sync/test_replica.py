"""What a replica's hash is of."""

import pytest
from torch import nn

from graphmill.sync.replica import Replica


@pytest.mark.parametrize("name", ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"])
def test_the_hash_is_of_every_parameter_buffer_and_counter(name):
    replica = Replica(nn.BatchNorm1d(4))
    before = replica.hash()
    tensor = dict(replica.named_tensors())[name]
    tensor.view(-1)[-1:] += 1
    assert replica.hash() != before
    tensor.view(-1)[-1:] -= 1
    assert replica.hash() == before
    assert replica.num_parameters == 8
