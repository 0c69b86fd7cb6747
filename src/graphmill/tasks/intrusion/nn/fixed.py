"""CAN models with weights that stay: scores of windows, and how these would move; the arithmetic of `gat`, `vgae`,
`fusion` in evaluation mode, on arrays and native layers in place of torch's operators.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from graphmill.nn.attention import GATConv, GATv2Conv
from graphmill.tasks.intrusion.nn.fixed_layers import (
    Attention,
    EdgeInputs,
    Entry,
    FixedLinear,
    Ids,
    Moves,
    Rows,
    WindowBatch,
    array,
)
from graphmill.tasks.intrusion.nn.fusion import CanFusion
from graphmill.tasks.intrusion.nn.gat import CanGat
from graphmill.tasks.intrusion.nn.ids import row_of
from graphmill.tasks.intrusion.nn.vgae import LEAST_ERROR, CanVgae

Scores = NDArray[np.float64]
_FACTORS_AT_ONCE = 512  # each at most 2, so that their product is a float64


class Fixed(Protocol):
    """A model with weights that stay."""

    def scores(self, windows: WindowBatch) -> Scores:
        """Of every window [num_graphs]: the higher, the more like an attack."""

    def moves(self, windows: WindowBatch, weights: Scores) -> Moves:
        """Of the scores, times `weights` [num_graphs] each, of the windows that `scores` was asked for last."""


def fixed(model: CanGat | CanVgae | CanFusion) -> Fixed:
    """`model` as it is now."""
    match model:
        case CanGat():
            return FixedGat(model)
        case CanVgae():
            return FixedVgae(model)
        case CanFusion():
            return FixedFusion(model)


class FixedGat:
    """`CanGat`."""

    def __init__(self, model: CanGat) -> None:
        self.entry = Entry(model.ids, model.nodes, model.edges)
        self.layers = [_attention(layer, normalise=False) for layer in model.layers]
        last = len(model.stack) - 1
        self.stack = [FixedLinear(_linear(layer), relu=at < last) for at, layer in enumerate(model.stack)]

    def scores(self, windows: WindowBatch) -> Scores:
        """Log-odds of an attack."""
        self.edge_rows = self.entry.edge_rows(windows)
        self.hidden = [self.entry.hidden(windows)]
        for layer in self.layers:
            self.hidden.append(layer(windows, self.hidden[-1], self.edge_rows))
        self.read = [np.concatenate([_means(windows, h) for h in self.hidden[1:]], axis=1)]
        for linear in self.stack:
            self.read.append(linear(self.read[-1]))
        logits = self.read[-1].astype(np.float64)
        odds: Scores = logits[:, 1] - logits[:, 0]
        return odds

    def moves(self, windows: WindowBatch, weights: Scores) -> Moves:
        """See `Fixed`."""
        grad = np.stack([-weights, weights], axis=1).astype(np.float32)
        for linear, out in zip(reversed(self.stack), reversed(self.read), strict=False):
            grad = linear.backward(grad, out)
        grad /= windows.num_nodes[:, None]
        of_means = np.split(grad, len(self.layers), axis=1)
        of_attr = _zeros_like(self.edge_rows)
        below: Rows | None = None
        for depth in reversed(range(len(self.layers))):
            above = of_means[depth].repeat(windows.num_nodes, axis=0)
            if below is not None:
                above += below
            below = self.layers[depth].backward(windows, self.edge_rows, self.hidden[depth + 1], above, of_attr)
        assert below is not None
        return self.entry.moves(windows, below, of_attr)


@dataclass(frozen=True, slots=True)
class _Made:
    """What comes back of the nodes of windows, and how wrong it is."""

    features: Rows  # [n, num_features]
    ids: Rows  # logits [n, id_buckets]
    following: list[Rows]  # of each layer; logits [n, id_buckets] at last
    buckets: Ids  # of each node's id [n]
    follows: Rows  # 1 for buckets that follow [n, id_buckets]
    errors: NDArray[np.float32]  # [n]


class FixedVgae:
    """`CanVgae`, without the variance of the latent vector: no score depends on it."""

    def __init__(self, model: CanVgae) -> None:
        self.entry = Entry(model.ids, model.nodes, model.edges)
        self.encoder, self.decoder = (
            [_attention(layer, normalise=True) for layer in layers] for layers in (model.encoder, model.decoder)
        )
        self.to_mean, self.to_features, self.to_ids = map(FixedLinear, (model.to_mean, model.to_features, model.to_ids))
        linears = [layer for layer in model.to_following if isinstance(layer, nn.Linear)]
        self.to_following = [FixedLinear(layer, relu=layer is not linears[-1]) for layer in linears]
        self.weights, self.score, self.id_buckets = model.weights, model.score, model.id_buckets

    def scores(self, windows: WindowBatch) -> Scores:
        """Logarithm of a window's mean or largest error over its nodes."""
        self.edge_rows = self.entry.edge_rows(windows)
        self.encoded = self._through(self.encoder, windows, self.entry.hidden(windows))
        z = self.to_mean(self.encoded[-1])
        self.decoded = self._through(self.decoder, windows, z)
        self.made = self._made(windows, z)
        self.found = self._of_windows(windows)
        found: Scores = np.log(np.maximum(self.found, LEAST_ERROR))
        return found

    def moves(self, windows: WindowBatch, weights: Scores) -> Moves:
        """See `Fixed`."""
        of_errors = self._of_errors(windows, weights)
        nodes = np.flatnonzero(of_errors)
        of_x, of_last, of_z = self._of_outputs(windows, of_errors[nodes, None], nodes)
        of_attr = _zeros_like(self.edge_rows)
        of_z += self._back(self.decoder, windows, self.decoded, of_last, of_attr)
        of_encoded = self.to_mean.backward(of_z, of_z)
        of_hidden = self._back(self.encoder, windows, self.encoded, of_encoded, of_attr)
        return self.entry.moves(windows, of_hidden, of_attr, of_x)

    def _through(self, layers: list[Attention], windows: WindowBatch, h: Rows) -> list[Rows]:
        """What each of the layers gives."""
        given = []
        for layer in layers:
            h = layer(windows, h, self.edge_rows)
            given.append(h)
        return given

    def _back(
        self, layers: list[Attention], windows: WindowBatch, given: list[Rows], grad: Rows, of_attr: Rows | None
    ) -> Rows:
        for layer, out in zip(reversed(layers), reversed(given), strict=True):
            grad = layer.backward(windows, self.edge_rows, out, grad, of_attr)
        return grad

    def _made(self, windows: WindowBatch, z: Rows) -> _Made:
        features = _sigmoid(self.to_features(self.decoded[-1]))
        ids = self.to_ids(z)
        following: list[Rows] = []
        for layer in self.to_following:
            following.append(layer(following[-1] if following else z))
        buckets = row_of(windows.ids, self.id_buckets)
        sources, targets = windows.ends
        follows = np.zeros_like(following[-1])
        follows[sources, buckets[targets]] = 1.0
        errors = ((features - windows.x) ** 2).mean(axis=1)
        errors += np.float32(self.weights.ids) * _cross_entropy(ids, buckets)
        errors += np.float32(self.weights.following) * _binary_cross_entropy(following[-1], follows)
        return _Made(features, ids, following, buckets, follows, errors)

    def _of_windows(self, windows: WindowBatch) -> Scores:
        """Mean or largest error of each."""
        errors = self.made.errors.astype(np.float64)
        reduce = np.maximum if self.score == "max" else np.add
        found: Scores = reduce.reduceat(errors, windows.first_nodes)
        return found if self.score == "max" else found / windows.num_nodes

    def _of_errors(self, windows: WindowBatch, weights: Scores) -> NDArray[np.float32]:
        """The gradient of each node's error [n]; of several that are the largest, equal parts."""
        of_found = np.where(self.found >= LEAST_ERROR, weights / np.maximum(self.found, LEAST_ERROR), 0.0)
        if self.score == "mean":
            of_nodes: NDArray[np.float32] = (of_found / windows.num_nodes).repeat(windows.num_nodes).astype(np.float32)
            return of_nodes
        is_largest = self.made.errors == self.found.repeat(windows.num_nodes)
        share = of_found / np.add.reduceat(is_largest, windows.first_nodes, dtype=np.int64)
        of_largest: NDArray[np.float32] = (is_largest * share.repeat(windows.num_nodes)).astype(np.float32)
        return of_largest

    def _of_outputs(self, windows: WindowBatch, of_errors: Rows, nodes: Ids) -> tuple[Rows, Rows, Rows]:
        """Gradients of x, of the last layer, and of z, all [n, …], from those of the errors of `nodes` [m, 1]."""
        made = self.made
        of_x, of_last, of_z = (
            np.zeros((len(windows.ids), width), np.float32)
            for width in (windows.x.shape[1], self.to_features.num_in, self.to_ids.num_in)
        )
        features = made.features[nodes]
        of_features = of_errors * (2 / features.shape[1]) * (features - windows.x[nodes])
        of_x[nodes] = -of_features
        of_features *= features * (1 - features)
        of_last[nodes] = self.to_features.backward(of_features.astype(np.float32), features)
        of_ids = _softmax(made.ids[nodes])
        of_ids[np.arange(len(nodes)), made.buckets[nodes]] -= 1
        of_ids *= of_errors * np.float32(self.weights.ids)
        of_z[nodes] = self.to_ids.backward(of_ids, of_ids)
        grad = _sigmoid(made.following[-1][nodes]) - made.follows[nodes]
        grad *= of_errors * np.float32(self.weights.following / grad.shape[1])
        for layer, out in zip(reversed(self.to_following), reversed(made.following), strict=True):
            grad = layer.backward(grad, out[nodes])
        of_z[nodes] += grad
        return of_x, of_last, of_z


class FixedFusion:
    """`CanFusion`."""

    def __init__(self, model: CanFusion) -> None:
        self.members: tuple[Fixed, Fixed] = FixedGat(model.gat), FixedVgae(model.vgae)
        self.mean, self.sd = array(model.scale.mean), array(model.scale.sd)
        self.weight, self.bias = array(model.head.weight)[0], array(model.head.bias)[0]

    def scores(self, windows: WindowBatch) -> Scores:
        """Log-odds of an attack."""
        of_members = np.stack([member.scores(windows) for member in self.members], axis=1)
        odds: Scores = ((of_members.astype(np.float32) - self.mean) / self.sd @ self.weight + self.bias).astype(float)
        return odds

    def moves(self, windows: WindowBatch, weights: Scores) -> Moves:
        """See `Fixed`."""
        of_member = self.weight / self.sd
        one, other = (
            member.moves(windows, weights * factor) for member, factor in zip(self.members, of_member, strict=True)
        )
        return Moves(one.of_nodes + other.of_nodes, one.of_edges + other.of_edges)


def _attention(layer: nn.Module, *, normalise: bool) -> Attention:
    assert isinstance(layer, GATConv | GATv2Conv)
    return Attention(layer, normalise=normalise)


def _linear(layer: nn.Module) -> nn.Linear:
    assert isinstance(layer, nn.Linear)
    return layer


def _zeros_like(edges: EdgeInputs | None) -> Rows | None:
    return None if edges is None else np.zeros_like(edges.attr)


def _means(windows: WindowBatch, h: Rows) -> Rows:
    """Over the nodes of each window [num_graphs, num_channels]."""
    if len(windows.num_nodes) == 1:
        mean: Rows = h.mean(axis=0, keepdims=True)
        return mean
    means: Rows = np.add.reduceat(h, windows.first_nodes, axis=0)
    means /= windows.num_nodes[:, None]
    return means


def _sigmoid(x: Rows) -> Rows:
    low = np.exp(-np.abs(x))
    found: Rows = np.where(x >= 0, 1, low) / (1 + low)
    return found


def _softmax(x: Rows) -> Rows:
    found: Rows = np.exp(x - x.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    return found


def _cross_entropy(logits: Rows, classes: Ids) -> NDArray[np.float32]:
    """Of each row [n]."""
    most = logits.max(axis=1)
    sums = np.exp(logits - most[:, None]).sum(axis=1)
    found: NDArray[np.float32] = np.log(sums) + (most - logits[np.arange(len(logits)), classes])
    return found


def _binary_cross_entropy(logits: Rows, truth: Rows) -> NDArray[np.floating[Any]]:
    """The mean over each row [n]: max(x, 0) − x y + log(1 + e^−|x|), with one logarithm for many of the last terms."""
    linear = (np.maximum(logits, 0) - logits * truth).sum(axis=1, dtype=np.float64)
    factors = 1 + np.exp(-np.abs(logits)).astype(np.float64)
    firsts = np.arange(0, logits.shape[1], _FACTORS_AT_ONCE)
    logarithms = np.log(np.multiply.reduceat(factors, firsts, axis=1)).sum(axis=1)
    found: NDArray[np.floating[Any]] = (linear + logarithms) / logits.shape[1]
    return found
