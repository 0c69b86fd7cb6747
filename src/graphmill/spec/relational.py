"""R-GCN: a model that has a matrix for each type of the edges."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.experiment import Fraction
from graphmill.spec.synonyms import HIDDEN_WIDTH
from graphmill.spec.typed_graph import TypedInfo, no_union_of_types


class RelationalSpec(Spec):
    """R-GCN (Schlichtkrull et al. 2018, arXiv 1703.06103) on a graph whose edges have types.

    A matrix for the node itself and one for the mean over the sampled neighbours by each type of edge. Sparse features
    are projected to hidden_channels before the first layer.
    """

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["rgcn"] = "rgcn"
    hidden_channels: PositiveInt = Field(64, description="width of every layer but the last")
    num_layers: PositiveInt = Field(2, description="layers; each reads one hop, so as many as there are fan-outs")
    num_bases: PositiveInt | None = Field(
        None,
        description="of each layer: the matrix of a type of edge is a sum of so many, by shares of its own (basis "
        "decomposition); null: each type has a matrix of its own",
    )
    dropout: Fraction = Field(0.5, description="probability of dropping a hidden channel")
    input_dropout: Fraction = Field(0.0, description="probability of dropping an input feature")

    def widths(self, num_features: int, num_classes: int, *, has_sparse_features: bool) -> list[int]:
        """Channels that the first layer reads, and that each layer gives."""
        first = self.hidden_channels if has_sparse_features else num_features
        return [first, *[self.hidden_channels] * (self.num_layers - 1), num_classes]

    def parameters(self, widths: Sequence[int], num_relations: int) -> int:
        """Of the layers: their matrices, shares of bases and biases."""
        matrices, shares = 1 + (self.num_bases or num_relations), num_relations * (self.num_bases or 0)
        return sum(matrices * inner * outer + shares + outer for inner, outer in itertools.pairwise(widths))

    def activation_bytes(
        self, widths: Sequence[int], hops: Sequence[int], fanouts: Sequence[int], relations: int
    ) -> int:
        """What the backward pass keeps, at most, and the gradients beside it.

        `hops`: nodes that each hop adds, the seeds first. Of a layer's rows: what it reads, its two summands and their
        activation; of each pair of a row and a type of edge: the mean that is multiplied, and the product.
        """
        kept = 0
        for (inner, outer), (rows, edges) in zip(itertools.pairwise(widths), _layers(hops, fanouts), strict=True):
            pairs = rows * relations if edges is None else min(edges, rows * relations)
            kept += 4 * (rows * (inner + 3 * outer) + pairs * (inner + outer))
        return 2 * kept + 2 * 4 * sum(hops) * widths[0]


def _layers(hops: Sequence[int], fanouts: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    """Rows and sampled edges of each layer, the first layer first; None: all neighbours, however many."""
    for hop in reversed(range(len(fanouts))):
        rows = sum(hops[: hop + 1])
        yield rows, None if fanouts[hop] == -1 else rows * fanouts[hop]


def refuse_untyped(model: object, dataset: TypedInfo, *, undirected: bool) -> None:
    """Raise a `UserError` if an R-GCN is asked of edges that have no types, or fewer than it has bases."""
    if not isinstance(model, RelationalSpec):
        return
    count = len(dataset.edge_types)
    if not count:
        raise UserError(
            f"model.kind is rgcn, which has matrices for types of edges, and the edges of {dataset.name} have no types",
            fix="name a graph that has types (graphmill inspect NAME shows them; prepare reads them from a .npz file"
            " with edge_type and edge_type_names), or set model.kind=graphsage, gat or gatv2",
        )
    if undirected:
        raise no_union_of_types(dataset.name)
    if model.num_bases is not None and model.num_bases > count:
        raise UserError(
            f"model.num_bases is {model.num_bases}, but the edges of {dataset.name} have {count} types: more bases than"
            " types are no decomposition",
            fix=f"set model.num_bases to {count} or less, or leave it out: a matrix for each type",
        )
