"""SIGN on mini-batches of propagated features (Frasca et al. 2020, arXiv 2004.11198): a perceptron of rows."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphmill.graph.batch import DenseRows, InputForm, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.keyed_dropout import KeyedDropout
from graphmill.nn.operators import RELU, Activation, activate, linear, sparse_linear
from graphmill.nn.standardise import Standardise

_NEARER = 0.1  # what rows of hops before the last are multiplied by


class Sign(nn.Module):
    """L linear layers, ReLU and dropout after all but the last, on x, S x, …, S^K x of each node side by side.

    The first layer adds up a matrix of each hop; in the paper its results stand side by side. Hops before the last are
    multiplied by 0.1, so that few labels are fitted to what is known to carry over, S^K x (SGC), before they are to the
    node's own features, and many to all; columns beside the hops are read as they are. Dropout is keyed by (seed,
    epoch, step, layer, node, channel).
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_blocks: int,
        num_extra_columns: int,
        is_sparse: bool,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        dropout: float,
        input_dropout: float,
        seed: int,
        training_dtype: torch.dtype = torch.float32,
        standardise: Standardise | None = None,
    ) -> None:
        """`in_channels`: of each of `num_blocks` hops; `num_extra_columns`: columns after those. `is_sparse`: features.

        `training_dtype`: of factors of dense products in training. `standardise`: of dense rows; None: they are taken
        as they are.
        """
        super().__init__()
        self.standardise, self.in_channels, self.num_blocks = standardise, in_channels, num_blocks
        self.num_extra_columns, self.is_sparse, self.training_dtype = num_extra_columns, is_sparse, training_dtype
        self.seed = seed
        widths = [in_channels * num_blocks + num_extra_columns, *[hidden_channels] * (num_layers - 1), out_channels]
        self.first = nn.Parameter(torch.empty(widths[0], widths[1]))
        self.first_bias = nn.Parameter(torch.zeros(widths[1]))
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths[1:]))
        self.dropout = KeyedDropout(seed, of_inputs=input_dropout, of_hidden=dropout)
        self._begin(torch.Generator().manual_seed(key_of(seed, Purpose.INITIAL_WEIGHTS) >> 1))

    def _begin(self, generator: torch.Generator) -> None:
        """Weights and biases uniform on ±1 / √in_channels, as `torch.nn.Linear`; of the first those of a hop.

        The last begin at 0, as a regression does: what few labels do not say is not told by chance either.
        """
        begun: list[tuple[Tensor, int]] = [(self.first, self.in_channels), (self.first_bias, self.in_channels)]
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            begun += [(layer.weight, layer.in_features), (layer.bias, layer.in_features)]
        for parameter, width in begun:
            bound = 1 / math.sqrt(max(1, width))
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        for parameter, _ in begun[-2:]:
            nn.init.zeros_(parameter)

    @property
    def input_form(self) -> InputForm:
        """Rows of the seeds, which are all nodes of a batch."""
        return "rows"

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds [num_seeds, out_channels]."""
        if not self.training:
            return self.evaluated(batch.inputs)
        inputs = self.dropout.inputs(self._standardised(batch.inputs), batch)
        return self._of_rows(inputs, [self.dropout.after(layer, batch) for layer in range(len(self.layers))])

    def evaluated(self, inputs: Inputs) -> Tensor:
        """Logits of rows as they were propagated, without dropout [num_rows, out_channels]."""
        return self._of_rows(self._standardised(inputs), [RELU] * len(self.layers))

    def _of_rows(self, inputs: Inputs, activations: list[Activation]) -> Tensor:
        """Logits of rows as the first layer reads them; `activations`: after each layer but the last."""
        h = self._first_layer(inputs)
        dtype = self.training_dtype if self.training else torch.float32
        for layer, activation in zip(self.layers, activations, strict=True):
            assert isinstance(layer, nn.Linear)
            h = linear(activate(h, activation).to(dtype), layer.weight, layer.bias)
        return h

    def _standardised(self, inputs: Inputs) -> Inputs:
        if isinstance(inputs, DenseRows) and self.standardise is not None:
            return DenseRows(self.standardise(inputs.x))
        return inputs

    def _first_layer(self, inputs: Inputs) -> Tensor:
        scale = self._scale(self.first)
        match inputs:
            case DenseRows(x):
                dtype = self.training_dtype if self.training else torch.float32
                return linear((x.float() * scale).to(dtype), self.first.t().contiguous(), self.first_bias)
            case SparseRows(indptr, indices, values, width):
                scaled = SparseRows(indptr, indices, values * scale[indices.long()], width)
                return sparse_linear(scaled, self.first) + self.first_bias
            case SelfAndMean():
                raise AssertionError("a model that reads rows was given averages")

    def _scale(self, like: Tensor) -> Tensor:
        """What each column is multiplied by [in_channels * num_blocks + num_extra_columns]."""
        scale = torch.full((self.num_blocks, self.in_channels), _NEARER, device=like.device)
        scale[-1] = 1
        return torch.cat([scale.flatten(), torch.ones(self.num_extra_columns, device=like.device)])
