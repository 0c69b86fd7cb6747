"""A trained model of whole graphs outside training: called as `model(x, edge_index, batch)`, as PyG's models are."""

from dataclasses import replace

from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch
from graphmill.graph.flat_batch import flat_batch
from graphmill.nn.graph_attention import GraphAttention
from graphmill.nn.standardise import Standardise
from graphmill.tasks.graph_classification.nn.gin import Gin


class GraphClassifier(nn.Module):
    """A built-in model with its inputs standardised as in training, if they were."""

    def __init__(self, model: Gin | GraphAttention, standardise: Standardise | None) -> None:
        super().__init__()
        self.model, self.standardise = model, standardise

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Logits [num_graphs, num_classes].

        Args:
            x: features of nodes [num_nodes, num_features], as they were prepared.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1.
            batch: int64 [num_nodes]: the graph of each node, ascending.
            edge_attr: features of edges [num_edges, num_edge_features], if the model was trained with some.

        Raises:
            ValueError: `batch` is not ascending, or an edge names a node that is not there.
        """
        return self.model(self._batch(x, edge_index, batch, edge_attr))  # type: ignore[no-any-return]

    def embed(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """What is classified [num_graphs, num_channels]: `graphmill predict --embeddings`."""
        return self.model.embed(self._batch(x, edge_index, batch, edge_attr))

    def _batch(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None) -> GraphBatch:
        made = flat_batch(x, edge_index, batch, edge_attr)
        return made if self.standardise is None else replace(made, x=self.standardise(x))


class OnStandardisedGraphs(nn.Module):
    """A user-defined model that was trained on standardised inputs."""

    def __init__(self, standardise: Standardise, inner: nn.Module) -> None:
        super().__init__()
        self.standardise, self.inner = standardise, inner

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, **named: Tensor) -> Tensor:
        """What the model makes of the standardised x."""
        return self.inner(self.standardise(x), edge_index, batch, **named)  # type: ignore[no-any-return]
