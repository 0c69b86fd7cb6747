"""GraphSAGE with mean aggregation on sampled mini-batches (Hamilton, Ying & Leskovec 2017, arXiv 1706.02216)."""

import math
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from graphmill.graph.batch import Block, DenseRows, InputForm, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.keyed_dropout import KeyedDropout
from graphmill.nn.layer_edges import WeightedBlock, mean_of, self_and_mean_of
from graphmill.nn.operators import RELU, Activation, activate, is_native, linear, sparse_linear
from graphmill.nn.standardise import Standardise


class JumpingKnowledge(nn.Module):
    """A linear head on a node's rows of all layers: beside each other (cat), or each channel's largest (max)."""

    def __init__(
        self,
        mode: Literal["cat", "max"],
        *,
        channels: int,
        num_layers: int,
        out_channels: int,
        training_dtype: torch.dtype,
    ) -> None:
        """`channels`: of each layer. `training_dtype`: of the factors of the product in training."""
        super().__init__()
        self.mode, self.out_channels, self.training_dtype = mode, out_channels, training_dtype
        self.weight = nn.Parameter(torch.empty(out_channels, channels * (num_layers if mode == "cat" else 1)))
        self.bias = nn.Parameter(torch.empty(out_channels))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Weights and bias uniform on ±1 / √(columns read), as `torch.nn.Linear` begins."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def read(self, rows: Sequence[Tensor]) -> Tensor:
        """What the head reads of the rows [n, channels] of each layer → [n, channels of all, or of one]."""
        return torch.cat(list(rows), dim=1) if self.mode == "cat" else reduce(torch.maximum, rows)

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        """Logits [n, out_channels] of the rows [n, channels] of each layer."""
        dtype = self.training_dtype if self.training else torch.float32
        x = self.read(rows).to(self.weight.device, dtype)  # exact inference may keep rows elsewhere
        return linear(x, self.weight, self.bias)


class MeanLayer(nn.Module):
    """h'ᵥ = W [hᵥ ; mean of h over the sampled in-neighbours of v] + b.

    Over the edges of a `WeightedBlock` the mean is by their weights, Σ w h / Σ w.
    `weight` is [out_channels, 2 * in_channels]; for sparse inputs it is applied before the mean, which is the same and
    cheaper. A residual layer of dense rows adds hᵥ to what comes of the activation, as Kipf & Welling do (2017, arXiv
    1609.02907, appendix B).
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, training_dtype: torch.dtype, is_residual: bool = False
    ) -> None:
        super().__init__()
        self.is_residual = is_residual
        self.in_channels, self.out_channels, self.training_dtype = in_channels, out_channels, training_dtype
        self.weight = nn.Parameter(torch.empty(out_channels, 2 * in_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Weights and bias uniform on ±1 / √in_channels, as `torch.nn.Linear` and so PyG's `SAGEConv` begin."""
        bound = 1 / math.sqrt(max(1, self.in_channels))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def on_self_and_mean(self, x: Tensor, activation: Activation | None) -> Tensor:
        """The layer on [self ; mean] rows [num_rows, 2 * in_channels]; float32 outside training."""
        out = linear(x.to(self.training_dtype if self.training else torch.float32), self.weight, self.bias, activation)
        return out + x[:, : self.in_channels] if self.is_residual else out

    def on_rows(self, h: Tensor, block: Block | WeightedBlock, activation: Activation | None) -> Tensor:
        """The layer on rows h [n, in_channels] of which the first num_rows are the result's own."""
        return self.on_self_and_mean(self_and_mean_of(h, block), activation)

    def on_sparse(self, x: SparseRows, block: Block | WeightedBlock, activation: Activation | None) -> Tensor:
        """The layer on sparse rows [n, in_channels]: W is applied first, so the mean runs over short dense rows."""
        of_self, of_neighbours = (part.t().contiguous() for part in self.weight.chunk(2, dim=1))
        if is_native(self.weight):
            own = sparse_linear(
                SparseRows(x.indptr[: block.num_rows + 1], x.indices, x.values, x.num_features), of_self
            )
            neighbours = sparse_linear(x, of_neighbours)
        else:  # only the device knows how many values the own rows have: both parts of all rows at once, no waiting
            both = sparse_linear(x, torch.cat([of_self, of_neighbours], dim=1))
            own, neighbours = both[: block.num_rows, : self.out_channels], both[:, self.out_channels :].contiguous()
        h = own + mean_of(neighbours, block) + self.bias
        return h if activation is None else activate(h, activation)


class GraphSage(nn.Module):
    """L mean layers, ReLU and dropout after all but the last; with jumping knowledge after all, and a head on them.

    Each layer computes only the rows that the next one reads. Dropout is keyed by (seed, epoch, step, layer, node,
    channel).
    """

    def __init__(
        self,
        *,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        dropout: float,
        input_dropout: float,
        seed: int,
        training_dtype: torch.dtype = torch.float32,
        standardise: Standardise | None = None,
        is_weighted: bool = False,
        residual: bool = False,
        jumping_knowledge: Literal["none", "cat", "max"] = "none",
    ) -> None:
        """`training_dtype`: of the inputs and weights of dense products in training; all else is float32.

        `standardise`: of dense inputs; None: they are taken as they are. `is_weighted`: means are by the weights of
        edges, the only column of `edge_attr`. `residual`: hidden layers after the first add what they read.
        """
        super().__init__()
        self.standardise, self.is_weighted = standardise, is_weighted
        num_hidden = num_layers - (jumping_knowledge == "none")
        widths = [in_channels, *[hidden_channels] * num_hidden, *[out_channels] * (num_layers - num_hidden)]
        self.layers = nn.ModuleList(
            MeanLayer(a, b, training_dtype=training_dtype, is_residual=residual and 0 < number < num_hidden)
            for number, (a, b) in enumerate(pairwise(widths))
        )
        self.dropout = KeyedDropout(seed, of_inputs=input_dropout, of_hidden=dropout)
        generator = torch.Generator().manual_seed(key_of(seed, Purpose.INITIAL_WEIGHTS) >> 1)
        for layer in self.layers:
            assert isinstance(layer, MeanLayer)
            layer.reset_parameters(generator)
        self.readout: JumpingKnowledge | None = None
        if jumping_knowledge != "none":
            self.readout = JumpingKnowledge(
                jumping_knowledge,
                channels=hidden_channels,
                num_layers=num_layers,
                out_channels=out_channels,
                training_dtype=training_dtype,
            )
            self.readout.reset_parameters(generator)

    @property
    def input_form(self) -> InputForm:
        """How dense features are wanted: averaged, unless single inputs are to be dropped or edges have weights."""
        return "rows" if self.dropout.of_inputs > 0 or self.is_weighted else "self_and_mean"

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds [num_seeds, out_channels]."""
        inputs = self._standardised(batch)
        if self.training:
            inputs = self.dropout.inputs(inputs, batch)
        rows = [self._first_layer(inputs, batch)]
        for number in range(1, len(self.layers)):
            block, activation = self._block(batch, number), self._activation(batch, number)
            rows.append(self._layer(number).on_rows(rows[-1], block, activation))
        if self.readout is None:
            return rows[-1]
        return self.readout([h[: len(rows[-1])] for h in rows])  # type: ignore[no-any-return]

    def _standardised(self, batch: MiniBatch) -> Inputs:
        match batch.inputs:
            case DenseRows(x) if self.standardise is not None:
                return DenseRows(self.standardise(x))
            case SelfAndMean(x) if self.standardise is not None:
                return SelfAndMean(self.standardise.of_self_and_mean(x, batch.blocks[0].indptr))
            case inputs:
                return inputs

    def _first_layer(self, inputs: Inputs, batch: MiniBatch) -> Tensor:
        layer, activation = self._layer(0), self._activation(batch, 0)
        match inputs:
            case SelfAndMean(x):
                return layer.on_self_and_mean(x, activation)
            case DenseRows(x):
                return layer.on_rows(x.float(), self._block(batch, 0), activation)
            case SparseRows():
                return layer.on_sparse(inputs, self._block(batch, 0), activation)

    @property
    def mean_layers(self) -> list[MeanLayer]:
        """Mean layers of the model, in order."""
        return [layer for layer in self.layers if isinstance(layer, MeanLayer)]

    def _block(self, batch: MiniBatch, number: int) -> Block | WeightedBlock:
        """The edges that layer `number` reads, counted from 0."""
        return WeightedBlock.of_layer(batch, number) if self.is_weighted else batch.blocks[number]

    def _layer(self, number: int) -> MeanLayer:
        layer = self.layers[number]
        assert isinstance(layer, MeanLayer)
        return layer

    def _activation(self, batch: MiniBatch, number: int) -> Activation | None:
        """Activation after layer `number`, counted from 0; None after the last, unless a head reads it."""
        if number == len(self.layers) - 1 and self.readout is None:
            return None
        return self.dropout.after(number, batch) if self.training else RELU
