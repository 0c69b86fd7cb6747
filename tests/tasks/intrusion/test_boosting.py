"""Gradient boosting on counts, gaps and payloads of ids: what it reads, and what it says where it cannot."""

import numpy as np
import pytest

from graphmill.tasks.intrusion import baselines
from graphmill.tasks.intrusion.data.windows import WindowGraphs


def windows(payload_of_attack: float, *, with_times: bool) -> WindowGraphs:
    """60 windows of two ids that follow one another; in every second one a byte of the first id is another."""
    num, draw = 60, np.random.default_rng(0)
    x = np.zeros((2 * num, 10), np.float32)
    x[::2, 3] = 0.2 + 0.01 * draw.random(num)
    x[2::4, 3] += payload_of_attack
    return WindowGraphs(
        num_nodes=np.full(num, 2),
        num_edges=np.full(num, 2),
        node_ids=np.tile(np.array([7, 9], np.uint32), num),
        x=x,
        edge_index=np.tile([[0, 1], [1, 0]], num).astype(np.int32),
        edge_attr=np.tile([[50.0], [49.0]], (num, 1)).astype(np.float32),
        attack_share=np.zeros(num, np.float32),
        times=np.stack([np.arange(num), np.arange(num) + 0.9], axis=1) if with_times else np.full((num, 2), np.nan),
        first_frames=np.arange(num),
    )


@pytest.mark.parametrize("with_times", [True, False])
def test_it_sees_a_payload_that_no_count_shows(with_times):
    labels, is_fitted = np.arange(60) % 2, np.arange(60) < 44
    scores = baselines.scores_by_boosting(windows(0.5, with_times=with_times), labels, is_fitted)
    assert scores[labels == 1][22:].min() > scores[labels == 0][22:].max()
    assert np.array_equal(scores, baselines.scores_by_boosting(windows(0.5, with_times=with_times), labels, is_fitted))


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    assert not baselines.why_no_boosting()
    monkeypatch.setattr(baselines, "find_spec", lambda _: None)
    assert "pip install 'graphmill[boosting]'" in baselines.why_no_boosting()
