"""A multilayer perceptron, as a baseline: what a network learns from each row by itself."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.adam import adam

from graphmill.tasks.regression import Csr, Matrix

_HIDDEN: Final = 128
_ROWS_PER_STEP: Final = 1024
_LR: Final = 0.01
_WEIGHT_DECAY: Final = 1e-4
_BETAS: Final = (0.9, 0.999)
_EPS: Final = 1e-8
_MAX_EPOCHS: Final = 200
_PATIENCE: Final = 10  # epochs without a better accuracy on the validation rows
_SEED: Final = 0  # a baseline is one number: it has no repetitions


class _Network(nn.Module):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(num_features, _HIDDEN)
        self.dropout = nn.Dropout(0.5)
        self.second = nn.Linear(_HIDDEN, num_classes)

    def forward(self, rows: Matrix) -> Tensor:
        hidden = self.first(rows) if isinstance(rows, Tensor) else self._sparse(rows) + self.first.bias
        logits: Tensor = self.second(self.dropout(hidden.relu()))
        return logits

    def _sparse(self, rows: Csr) -> Tensor:
        found: Tensor = nn.functional.embedding_bag(
            torch.from_numpy(rows.indices),
            self.first.weight.T,
            torch.from_numpy(rows.indptr),
            mode="sum",
            per_sample_weights=torch.from_numpy(rows.values.astype(np.float32)),
            include_last_offset=True,
        )
        return found


def guesses(
    x: Matrix, labels: NDArray[np.int64], train: NDArray[np.int64], val: NDArray[np.int64], num_classes: int
) -> NDArray[np.int64]:
    """What a network with one hidden layer of 128 says of every row, after it learnt from the rows `train`.

    It is the one of the best epoch by the accuracy on the rows `val`; training ends where 10 epochs are no better.

    Args:
        x: [num_rows, num_features].
        labels: classes [num_rows], or 0 and 1 of each of several labels [num_rows, num_classes].
        train: rows to learn from.
        val: rows to choose the epoch by.
        num_classes: of classes, or labels.

    Returns:
        Classes [num_rows]; of several labels 0 and 1 of each, [num_rows, num_classes].
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(_SEED)
        network = _Network(x.shape[1] if isinstance(x, Tensor) else x.num_columns, num_classes)
        optimizer = _Adam(list(network.parameters()))
        best, best_state, stale = -1.0, network.state_dict(), 0
        for _ in range(_MAX_EPOCHS):
            _train(network, optimizer, x, labels, train)
            found = float((_guessed(network, x, labels, val) == labels[val]).mean()) if len(val) else 0.0
            best, best_state, stale = (found, _copied(network), 0) if found > best else (best, best_state, stale + 1)
            if stale == _PATIENCE:
                break
        network.load_state_dict(best_state)
        return _guessed(network, x, labels, np.arange(_num_rows(x)))


class _Adam:
    """`torch.optim.Adam` by its function: to make the class would import torch's compiler (`FlatOptimizer`)."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._means, self._squares = ([torch.zeros_like(each.data) for each in parameters] for _ in range(2))
        self._steps = [torch.zeros(()) for _ in parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters by their gradients, which are cleared."""
        values, grads = list(self._parameters), [each.grad for each in self._parameters if each.grad is not None]
        beta1, beta2 = _BETAS
        adam(
            values,  # type: ignore[arg-type]  # a list of parameters is one of tensors
            grads,
            self._means,
            self._squares,
            [],
            self._steps,
            foreach=False,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=_LR,
            weight_decay=_WEIGHT_DECAY,
            eps=_EPS,
            maximize=False,
        )
        for each in self._parameters:
            each.grad = None


def _train(network: _Network, optimizer: _Adam, x: Matrix, labels: NDArray[np.int64], train: NDArray[np.int64]) -> None:
    network.train()
    order = train[torch.randperm(len(train)).numpy()]
    for ids in _blocks(order):
        logits, truths = network(_rows(x, ids)), torch.from_numpy(labels[ids])
        if labels.ndim == 1:
            loss = nn.functional.cross_entropy(logits, truths)
        else:
            loss = nn.functional.binary_cross_entropy_with_logits(logits, truths.to(logits.dtype))
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        optimizer.step()


@torch.no_grad()
def _guessed(network: _Network, x: Matrix, labels: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    network.eval()
    logits = [network(_rows(x, each)) for each in _blocks(ids)]
    found = [(each.argmax(dim=1) if labels.ndim == 1 else (each > 0).long()).numpy() for each in logits]
    return np.concatenate(found) if found else np.empty((0, *labels.shape[1:]), dtype=np.int64)


def _copied(network: _Network) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def _blocks(ids: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    return (ids[start : start + _ROWS_PER_STEP] for start in range(0, len(ids), _ROWS_PER_STEP))


def _rows(x: Matrix, ids: NDArray[np.int64]) -> Matrix:
    return x[torch.from_numpy(ids)] if isinstance(x, Tensor) else x.rows(ids)


def _num_rows(x: Matrix) -> int:
    return len(x) if isinstance(x, Tensor) else x.num_rows
