"""Models that read types: R-GCN, R-SAGE and HGT have matrices for types of edges, the last two for types of nodes."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from graphmill.config.frozen import Spec
from graphmill.spec.experiment import Fraction
from graphmill.spec.synonyms import HIDDEN_WIDTH


class RelationalSpec(Spec):
    """rgcn: R-GCN (Schlichtkrull et al. 2018, arXiv 1703.06103); rsage: GraphSAGE by types, as PyG's to_hetero.

    A matrix for the node itself (rsage: one for each type of nodes) and one for the mean over the sampled neighbours by
    each type of edge. Sparse features are projected to hidden_channels before the first layer.
    """

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["rgcn", "rsage"] = "rgcn"
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

    def parameters(self, widths: Sequence[int], num_relations: int, num_node_types: int) -> int:
        """Number of parameters of the layers: their matrices, shares of bases and biases."""
        own = num_node_types if self.kind == "rsage" else 1
        matrices, shares = own + (self.num_bases or num_relations), num_relations * (self.num_bases or 0)
        return sum(matrices * inner * outer + shares + own * outer for inner, outer in itertools.pairwise(widths))

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


class HgtSpec(Spec):
    """Heterogeneous graph transformer (Hu et al. 2020, arXiv 2003.01332): attention by types of nodes and of edges.

    Features are projected to hidden_channels, by the type of the node, before the first layer.
    """

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["hgt"] = "hgt"
    hidden_channels: PositiveInt = Field(64, description="width of every layer, of all heads together")
    heads: PositiveInt = Field(4, description="of every layer, one beside the other")
    num_layers: PositiveInt = Field(2, description="layers; each reads one hop, so as many as there are fan-outs")
    dropout: Fraction = Field(0.2, description="probability of dropping a channel of what a layer adds")
    input_dropout: Fraction = Field(0.0, description="probability of dropping an input feature")

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_channels % self.heads:
            raise ValueError(f"hidden_channels {self.hidden_channels} must be a multiple of heads {self.heads}")
        return self

    def parameters(self, of: "HgtSizes") -> int:
        """Matrices and biases of types of nodes, matrices of types of edges, priors, skips, projection and result."""
        width, kinds = self.hidden_channels, of.num_node_types
        projection = (1 if of.is_sparse else kinds) * of.num_features * width + kinds * width
        of_kinds = kinds * (4 * (width * width + width) + 1)
        of_relations = of.num_relations * (2 * width * width // self.heads + self.heads)
        return projection + self.num_layers * (of_kinds + of_relations) + (width + 1) * of.out_channels

    def activation_bytes(self, hops: Sequence[int], fanouts: Sequence[int], relations: int) -> int:
        """What the backward pass keeps, at most, and the gradients beside it.

        Of a pair of a source and a type of edge: what is read, keys and messages. Of a row: queries, what was mixed,
        its activation, what is added and the sum. Of an edge: scores, and numbers of the attention.
        """
        kept, width = 0, self.hidden_channels
        for rows, edges in _layers(hops, fanouts):
            most = sum(hops) * relations
            pairs, drawn = (most, most) if edges is None else (min(edges, most), edges)
            kept += 4 * (3 * pairs * width + 6 * rows * width + 4 * drawn * self.heads)
        return 2 * kept + 2 * 4 * sum(hops) * width


@dataclass(frozen=True, slots=True, kw_only=True)
class HgtSizes:
    """What the parameters of an HGT depend on."""

    num_features: int
    is_sparse: bool
    num_node_types: int
    num_relations: int
    out_channels: int


TYPED_MODELS: Final = (RelationalSpec, HgtSpec)
"""Those that read types of edges."""


def _layers(hops: Sequence[int], fanouts: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    """Rows and sampled edges of each layer, the first layer first; None: all neighbours, however many."""
    for hop in reversed(range(len(fanouts))):
        rows = sum(hops[: hop + 1])
        yield rows, None if fanouts[hop] == -1 else rows * fanouts[hop]
