"""Dropout of a model on sampled mini-batches: of its inputs and its hidden rows, drawn by coordinates."""

from dataclasses import dataclass

import torch

from graphmill.graph.batch import DenseRows, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.keys import Purpose
from graphmill.nn.draws import drop_values, on_device_of, row_keys
from graphmill.nn.operators import RELU, Activation, sparse_dropout


@dataclass(frozen=True, slots=True)
class KeyedDropout:
    """Keyed by (seed, epoch, step, layer, node, channel); layer 0 are the inputs."""

    seed: int
    of_inputs: float  # share of single features that is dropped
    of_hidden: float

    def inputs(self, inputs: Inputs, batch: MiniBatch) -> Inputs:
        """The features of a batch with a share of them dropped; not of averages."""
        if self.of_inputs == 0:
            return inputs
        keys = row_keys(self._key(batch, 0), batch.node_ids)
        match inputs:
            case SparseRows() as x:
                return sparse_dropout(x, keys, self.of_inputs)
            case DenseRows(x):
                columns = torch.arange(x.shape[1], device=x.device)
                return DenseRows(drop_values(x, on_device_of(keys, x).unsqueeze(1), columns, self.of_inputs))
            case SelfAndMean():
                raise AssertionError("inputs that were averaged already cannot be dropped one by one: ask for rows")

    def after(self, layer: int, batch: MiniBatch) -> Activation:
        """What follows a hidden layer, counted from 0, in training: ReLU and dropout of the rows that it computes.

        Of a batch without blocks each layer computes all rows.
        """
        if self.of_hidden == 0:
            return RELU
        rows = batch.node_ids[: batch.blocks[layer].num_rows] if batch.blocks else batch.node_ids
        return Activation(row_keys(self._key(batch, layer + 1), rows), self.of_hidden)

    def _key(self, batch: MiniBatch, layer: int) -> int:
        return batch.seeds.key(self.seed, Purpose.DROPOUT, layer)
