"""Resume state for another number of ranks than wrote it."""

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.train.checkpoint import merged

values = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5)


@given(values, st.integers(1, 9))
def test_what_all_have_is_kept_to_the_bit(numbers, num_ranks):
    """So after an all-reduce of gradients nothing is lost: not even a rounding."""
    state = {"optimizer.exp_avg": torch.tensor(numbers), "optimizer.step": torch.tensor(7.0)}
    found = merged(dict(state) for _ in range(num_ranks))
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
    assert all(found[name].dtype == tensor.dtype for name, tensor in state.items())


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_counts_are_the_largest_whoever_has_it(order):
    states = [{"step": torch.tensor(float(5 - rank)), "exp_avg": torch.tensor([3.0 * rank])} for rank in order]
    found = merged(states)
    assert (found["step"].item(), found["exp_avg"].tolist()) == (5.0, [3.0])


def test_moments_are_averaged_and_counts_are_the_largest():
    states = [
        {"exp_avg": torch.tensor([1.0, 4.0]), "step": torch.tensor(5.0), "steps_done": torch.tensor(6)},
        {"exp_avg": torch.tensor([2.0, 0.0]), "step": torch.tensor(4.0), "steps_done": torch.tensor(6)},
    ]
    found = merged(states)
    assert found["exp_avg"].tolist() == [1.5, 2.0]
    assert (found["step"].item(), found["steps_done"].item()) == (5.0, 6)
    assert states[0]["exp_avg"].tolist() == [1.0, 4.0], "what was read is left as it is"
