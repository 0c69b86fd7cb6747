"""SIGN: a perceptron on features that were propagated before training; its keys, what it takes, what it cannot have."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.experiment import Experiment, Fraction
from graphmill.spec.synonyms import HIDDEN_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Propagation:
    """What is made of features before anything is learnt."""

    hops: int
    reads: Literal["all", "last"]
    values_per_hop: int | None  # of a sparse row; None: all

    @property
    def num_blocks(self) -> int:
        """How many rows of features stand side by side for each node."""
        return self.hops + 1 if self.reads == "all" else 1

    def table_bytes(self, num_nodes: int, num_features: int, *, is_sparse: bool, num_extra_columns: int = 0) -> int:
        """What the rows of all nodes take at most, while they are put together.

        Of sparse ones without each node's own, of which a plan does not know how many values they have.
        `num_extra_columns`: columns that stand beside those of the features; they are there twice meanwhile.
        """
        if is_sparse:
            kept = min(num_features, self.values_per_hop or num_features)
            return num_nodes * (2 * 8 * (self.hops * kept + num_extra_columns) + 4 * num_extra_columns)
        blocks = self.num_blocks if self.reads == "all" else 2
        return 4 * num_nodes * (num_features * blocks + 2 * num_extra_columns)


class SignSpec(Spec):
    """A perceptron on features of a node and of its hops, propagated before training (SIGN, SGC).

    SIGN: Frasca et al. 2020, arXiv 2004.11198; SGC, with hops_read=last and num_layers=1: Wu et al. 2019, arXiv
    1902.07153. Nothing is sampled: a step reads rows.
    """

    also_called: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels"),
        **dict.fromkeys(("k", "num_hops", "propagated_hops"), "model.hops"),
        **dict.fromkeys(("use_labels", "use_label", "label_emb", "label_reuse"), "model.label_propagation"),
    }
    called_elsewhere: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        name: {"kind": "sign", "hops": 2, "hops_read": "last", "num_layers": 1} for name in ("sgc", "sgconv", "sgcn")
    }

    kind: Literal["sign"] = "sign"
    hops: int = Field(2, ge=1, le=16, description="how often features are propagated: x, S x, …, S^hops x")
    hops_read: Literal["all", "last"] = Field(
        "all", description="all: the model reads x, S x, …, side by side; last: S^hops x alone, as SGC does"
    )
    values_per_hop: PositiveInt | None = Field(
        512,
        description="of sparse features: the largest so many values of a node are kept at each hop, which bounds memory"
        " and time; null: all that are not 0; dense features are kept whole",
    )
    hidden_channels: PositiveInt = Field(256, description="width of every layer but the last")
    num_layers: PositiveInt = Field(2, description="linear layers; 1: a regression on the propagated features")
    dropout: Fraction = Field(0.5, description="probability of dropping a hidden channel")
    input_dropout: Fraction = Field(0.0, description="probability of dropping a propagated feature")
    label_propagation: bool = Field(
        False,
        description="whether the model reads, beside features, the labels of training nodes propagated along edges, of "
        "which a training node never reads its own; for classes and several labels",
    )

    @property
    def propagation(self) -> Propagation:
        """What is made of features before training."""
        return Propagation(hops=self.hops, reads=self.hops_read, values_per_hop=self.values_per_hop)

    def num_extra_columns(self, out_channels: int) -> int:
        """Columns that stand beside those of the features: shares of the classes, or labels."""
        return out_channels if self.label_propagation else 0

    def widths(self, num_features: int, out_channels: int) -> list[int]:
        """Channels that the first layer reads, and that each layer gives."""
        read = num_features * self.propagation.num_blocks + self.num_extra_columns(out_channels)
        return [read, *[self.hidden_channels] * (self.num_layers - 1), out_channels]

    def parameters(self, num_features: int, out_channels: int) -> int:
        """Number of parameters: matrices and biases."""
        widths = self.widths(num_features, out_channels)
        return sum(inner * outer + outer for inner, outer in itertools.pairwise(widths))

    def activation_bytes(self, rows: int, out_channels: int) -> int:
        """What the backward pass of so many rows keeps, and the gradients beside it."""
        return 2 * 4 * rows * sum(self.widths(0, out_channels)[1:])


def propagation_of(model: object) -> Propagation | None:
    """What is made of features before a model is trained; None: it samples neighbours."""
    return model.propagation if isinstance(model, SignSpec) else None


def hops_read(model: object, fanouts: Sequence[int]) -> int:
    """How many hops from a node a model reads, where a sampled one draws `fanouts`."""
    return model.hops if isinstance(model, SignSpec) else len(fanouts)


def columns_read(model: object, num_features: int, out_channels: int) -> int:
    """Columns of the features that a model reads, of a node with `num_features`."""
    return model.widths(num_features, out_channels)[0] if isinstance(model, SignSpec) else num_features


def refuse_sampling(model: object, experiment: Experiment, name: str, num_parts: int | None = None) -> None:
    """Raise a `UserError` if a model that samples nothing is asked to, or its graph is not whole.

    Args:
        model: the section.
        experiment: which has the other keys.
        name: of the prepared graph.
        num_parts: into which that is cut; None: it is whole.
    """
    if not isinstance(model, SignSpec):
        return
    train, said = experiment.train, "model.kind is sign, which reads features that were propagated before training"
    if "num_neighbors" in train.model_fields_set:
        raise UserError(
            f"{said}, and train.num_neighbors says how many neighbours to sample",
            fix="leave train.num_neighbors out, and set model.hops; or set model.kind=graphsage",
        )
    if getattr(train, "edge_dropout", 0):
        raise UserError(f"{said}, and train.edge_dropout drops sampled edges", fix="leave train.edge_dropout out")
    if train.presampled_in is not None:
        raise UserError(f"{said}, and train.presampled has sampled epochs", fix="leave train.presampled out")
    if experiment.roles is not None:
        raise UserError(f"{said}, and roles has processes that sample", fix="leave roles out, or model.kind=graphsage")
    refuse_parts(model, name, num_parts)


def refuse_parts(model: object, name: str, num_parts: int | None) -> None:
    """Raise a `UserError` if features were to be propagated over a graph of which no rank has all."""
    if isinstance(model, SignSpec) and num_parts is not None:
        raise UserError(
            f"model.kind is sign, which propagates features over a whole graph, and {name} is in {num_parts} parts",
            fix="name the graph that was partitioned, or set model.kind=graphsage",
        )


def refuse_label_propagation(model: object, name: str) -> None:
    """Raise a `UserError` if labels were to be propagated where nodes have values; `name`: of the prepared graph."""
    if isinstance(model, SignSpec) and model.label_propagation:
        raise UserError(
            f"model.label_propagation is true, which propagates classes or labels, and nodes of {name} have values",
            fix="leave model.label_propagation out; it is for task.kind=node_classification",
        )
