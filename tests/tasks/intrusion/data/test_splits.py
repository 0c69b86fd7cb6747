"""Splits keep neighbours together, and nothing is fitted on what is not trained on."""

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.data.frames import Frames
from graphmill.tasks.intrusion.data.splits import (
    UNUSED,
    fingerprint,
    fit,
    refuse_shared_captures,
    split_by_time,
)
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of, joined_graphs


def made_frames(seed, count=1000, num_ids=20):
    rng = np.random.default_rng(seed)
    return Frames(
        np.arange(count) / 1000,
        rng.integers(0, num_ids, count).astype(np.uint32),
        rng.integers(0, 256, (count, 8), dtype=np.uint8),
        np.full(count, 8, np.uint8),
        np.zeros(count, np.int8),
    )


@pytest.mark.parametrize(("size", "stride"), [(10, 10), (10, 3), (10, 25)])
def test_no_frame_is_in_two_splits(size, stride):
    captures, firsts = [], []
    for number in range(3):
        graphs = joined_graphs(list(graphs_of([made_frames(number)], Leftover(), size=size, stride=stride)))
        captures.append(np.full(len(graphs), number))
        firsts.append(graphs.first_frames)
    capture, first = np.concatenate(captures), np.concatenate(firsts)
    split = split_by_time(capture, first, first + size, (0.6, 0.2))
    for number in range(3):
        used = [set() for _ in range(3)]
        for row in np.flatnonzero((capture == number) & (split != UNUSED)):
            used[split[row]].update(range(first[row], first[row] + size))
        assert all(used)
        assert max(used[0]) < min(used[1]) <= max(used[1]) < min(used[2])
        assert (split[capture == number] == UNUSED).sum() <= 2 * (size // stride)


@pytest.mark.parametrize("shares", [(0.0, 0.5), (0.9, 0.2), (0.5, -0.1), (float("nan"), 0.1)])
def test_shares_that_are_none(shares):
    with pytest.raises(UserError, match="train and val"):
        split_by_time(np.zeros(3, int), np.arange(3), np.arange(3) + 1, shares)


def test_statistics_know_the_training_rows_only():
    whole = joined_graphs(list(graphs_of([made_frames(0)], Leftover(), size=50, stride=50)))
    is_training = np.arange(len(whole)) < 10
    fitted = fit(whole, is_training)
    nodes = whole.num_nodes[:10].sum()
    rows = whole.x[:nodes].astype(np.float64)
    np.testing.assert_allclose(fitted.node_mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(fitted.node_std, rows.std(0), rtol=1e-5)
    whole.x[nodes:] = 1e9
    whole.edge_attr[whole.num_edges[:10].sum() :] = 1e9
    whole.node_ids[nodes:] = 77
    again = fit(whole, is_training)
    for name in ("vocabulary", "node_mean", "node_std", "edge_mean", "edge_std"):
        assert np.array_equal(getattr(fitted, name), getattr(again, name))
    with pytest.raises(UserError, match="training"):
        fit(whole, np.zeros(len(whole), bool))


def test_a_capture_that_is_in_two_splits_is_refused():
    one, other = made_frames(0), made_frames(1)
    later = Frames(one.time + 5, one.id, one.payload, one.length, 1 - one.label)
    prints = [fingerprint(each) for each in (one, other, later)]
    assert prints[0] == prints[2] != prints[1]
    refuse_shared_captures(["a", "b", "c"], prints, ["train", "test", "train"])
    with pytest.raises(UserError, match=r"a \(train\) and c \(test\)"):
        refuse_shared_captures(["a", "b", "c"], prints, ["train", "train", "test"])
