"""Logistic regression on pairs of ids, against scikit-learn's on counts that were made by hand."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from graphmill.tasks.intrusion.baselines import scores_by_pairs
from graphmill.tasks.intrusion.data.windows import WindowGraphs


def windows(pairs: list[dict[tuple[int, int], int]]) -> WindowGraphs:
    """A graph a window, of how often one id follows another."""
    nodes = [sorted({each for pair in window for each in pair}) for window in pairs]
    edges = [
        [(ids.index(a), ids.index(b), count) for (a, b), count in window.items()]
        for ids, window in zip(nodes, pairs, strict=True)
    ]
    flat = [edge for window in edges for edge in window]
    return WindowGraphs(
        num_nodes=np.array([len(ids) for ids in nodes]),
        num_edges=np.array([len(window) for window in edges]),
        node_ids=np.array([each for ids in nodes for each in ids], dtype=np.uint32),
        x=np.zeros((sum(map(len, nodes)), 1), dtype=np.float32),
        edge_index=np.array([[a for a, _, _ in flat], [b for _, b, _ in flat]], dtype=np.int32),
        edge_attr=np.array([[count] for _, _, count in flat], dtype=np.float32),
        attack_share=np.zeros(len(pairs), dtype=np.float32),
        times=np.zeros((len(pairs), 2)),
        first_frames=np.arange(len(pairs)),
    )


def test_they_are_those_of_scikit_learn_and_see_the_order_of_frames():
    draw = np.random.default_rng(0)
    made, labels = [], np.arange(40) % 2
    for is_attack in labels:  # the same ids as often: an attack changes who follows whom
        forth, back = draw.integers(5, 9), draw.integers(0, 3)
        made.append({(1, 2): int(back if is_attack else forth), (2, 1): int(forth if is_attack else back), (1, 3): 4})
    made[-1][(7, 8)] = 3  # a pair that no training window has
    is_fitted = np.arange(40) < 20
    found = scores_by_pairs(windows(made), labels, is_fitted)
    table = np.array([[each.get(pair, 0) for pair in ((1, 2), (2, 1), (1, 3), (7, 8))] for each in made])
    # Two classes have the weights w/2 and -w/2 here, whose squares sum to half of w's: C = 2 there is C = 1 here.
    expected = LogisticRegression(C=2.0, tol=1e-9, max_iter=10_000).fit(table[:20], labels[:20])
    np.testing.assert_allclose(found, expected.decision_function(table), atol=2e-2)
    assert np.array_equal(found > 0, labels == 1)
