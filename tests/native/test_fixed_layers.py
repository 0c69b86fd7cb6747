"""Small graphs with fixed weights, and windows as graphs: results, gradients, and what is refused."""

import numpy as np
import pytest

from graphmill import _native


def rows(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ENDS = np.array([[0, 0, 1, 2], [1, 0, 2, 1]], np.int32)  # the second edge gives way to a loop


def edges():
    return _native.GraphEdges(np.array([3, 1]), np.array([4, 0]), ENDS)


def test_means_are_of_edges_from_other_nodes():
    attr, out = rows(4, 2), np.full((4, 2), 9, np.float32)
    edges().means(attr, out)
    expected = [[0, 0], (attr[0] + attr[3]) / 2, attr[2], [0, 0]]
    np.testing.assert_allclose(out, np.array(expected, np.float32), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 7, 29])
@pytest.mark.parametrize("relu", [False, True])
def test_a_linear_layer_and_its_gradient(count, relu):
    weight, bias, x, grad = rows(45, 33), rows(45, 1)[:, 0].copy(), rows(count, 33, seed=1), rows(count, 45, seed=2)
    layer, out, of_x = _native.FixedLinear(weight, bias, relu), np.empty_like(grad), np.empty_like(x)
    layer.forward(x, out)
    expected = x.astype(float) @ weight.T + bias
    bound = 40 * 2**-23 * (np.abs(x).astype(float) @ np.abs(weight.T) + np.abs(bias))
    assert (np.abs(out - (np.maximum(expected, 0) if relu else expected)) <= bound).all()
    layer.backward(grad, out, of_x)
    passed = np.where(out > 0, grad, 0) if relu else grad
    assert (np.abs(of_x - passed.astype(float) @ weight) <= 50 * 2**-23 * (np.abs(passed) @ np.abs(weight))).all()


@pytest.mark.parametrize("has_att", [False, True])
def test_attention_moves_as_its_gradient_says(has_att):
    """Along a direction, by a difference of the layer's results: in float32, so of a step that is not small."""
    heads, channels, features, width = 2, 4, 3, 8
    scores = width if has_att else heads
    projection = rows(width + (0 if has_att else heads) + scores, 5) / 2
    att = rows(1, width)[0] if has_att else None
    layer = _native.FixedAttention(
        heads, projection, None, rows(features, scores), att, np.ones(width, np.float32), channels, 0.2, False
    )
    graph, x, attr, loops = edges(), rows(4, 5, seed=3), rows(4, features, seed=4), rows(4, features, seed=5)
    out, grad = np.empty((4, width), np.float32), rows(4, width, seed=6)
    layer.forward(graph, x, attr, loops, out)
    of_x, of_attr = np.empty_like(x), np.zeros_like(attr)
    layer.backward(graph, attr, loops, out, grad, of_x, of_attr)

    def value(step):
        moved = np.empty_like(out)
        layer.forward(graph, (x + step * rows(4, 5, seed=7)).astype(np.float32), attr, loops, moved)
        return float((moved.astype(float) * grad).sum())

    step = 2e-3
    assert (of_x * rows(4, 5, seed=7)).sum() == pytest.approx((value(step) - value(-step)) / (2 * step), rel=0.02)
    assert np.abs(of_attr[[0, 2, 3]]).max() > 0


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="beyond the nodes"):
        _native.GraphEdges(np.array([2]), np.array([4]), ENDS)
    with pytest.raises(ValueError, match="fewer edges"):
        _native.GraphEdges(np.array([3]), np.array([5]), ENDS)
    with pytest.raises(ValueError, match="more edges"):
        _native.GraphEdges(np.array([3]), np.array([3]), ENDS)
    with pytest.raises(ValueError, match="num_nodes"):
        edges().means(rows(4, 2), np.empty((3, 2), np.float32))
    with pytest.raises(ValueError, match="projection"):
        _native.FixedAttention(2, rows(9, 5), None, None, None, None, 4, 0.2, False)
    with pytest.raises(ValueError, match="beyond the frames"):
        _native.window_graphs(np.zeros(9, np.uint32), np.zeros((9, 8), np.uint8), np.array([0]), 10)
    with pytest.raises(ValueError, match="beyond the bytes"):
        _native.hex_bytes(
            np.zeros(4, np.uint8), np.array([1]), np.array([5]), np.zeros((1, 8), np.uint8), np.zeros(1, bool)
        )
    layer = _native.FixedAttention(2, rows(12, 5), None, None, None, None, 4, 0.2, False)
    with pytest.raises(ValueError, match="forward comes before"):
        layer.backward(edges(), None, None, rows(4, 8), rows(4, 8), np.empty((4, 5), np.float32), None)


def test_no_windows_are_no_graphs():
    made = _native.window_graphs(np.zeros(9, np.uint32), np.zeros((9, 8), np.uint8), np.zeros(0, np.int64), 5)
    assert [each.shape for each in made] == [(0,), (0,), (0,), (0, 10), (0,), (0,), (0, 11)]
