"""What scores a link, as it is asked for: an encoder or a table of embeddings, a head, negatives, a loss."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from graphmill.config.frozen import Spec
from graphmill.spec.experiment import Fraction
from graphmill.spec.node_models import GraphSageSpec, NodeAttentionSpec, NodeCustomModelSpec
from graphmill.spec.relational import HgtSpec, RelationalSpec


class EmbeddingSpec(Spec):
    """A row of numbers for each node, learnt; no features and no neighbours are read."""

    kind: Literal["embedding"] = "embedding"
    dropout: Fraction = Field(0.0, description="probability of dropping a channel of a node's row")


LinkModelSpec = Annotated[
    GraphSageSpec | NodeAttentionSpec | RelationalSpec | HgtSpec | NodeCustomModelSpec | EmbeddingSpec,
    Field(discriminator="kind"),
]


class DotSpec(Spec):
    """The dot product of the two rows."""

    kind: Literal["dot"] = "dot"


class DistMultSpec(Spec):
    """The dot product of the two rows and a row of the relation (Yang et al. 2015, arXiv 1412.6575).

    Links without relations are all of one.
    """

    kind: Literal["distmult"] = "distmult"


class ComplExSpec(Spec):
    """DistMult with complex numbers, the second row conjugated (Trouillon et al. 2016, arXiv 1606.06357).

    The only head that tells (u, v) from (v, u).
    """

    kind: Literal["complex"] = "complex"


class PerceptronSpec(Spec):
    """A perceptron on the product of the two rows, channel by channel, as OGB's examples have it."""

    kind: Literal["mlp"] = "mlp"
    hidden_channels: PositiveInt = Field(128, description="width of its hidden layers")
    num_layers: int = Field(2, ge=2, description="linear layers")
    dropout: Fraction = Field(0.0, description="probability of dropping a hidden channel")


HeadSpec = Annotated[DotSpec | DistMultSpec | ComplExSpec | PerceptronSpec, Field(discriminator="kind")]


class NegativesSpec(Spec):
    """Pairs that no known link joins, drawn anew for each link at each step."""

    count: PositiveInt = Field(16, description="for each link")
    shared: bool = Field(
        False,
        description="the same nodes for all links of a step, so thousands cost little; known links do not count",
    )
    side: Literal["auto", "target", "source", "both"] = Field(
        "auto",
        description="which end of the link is another node; both: in turns; auto: both where links have relations or "
        "no direction, else target",
    )
    by: Literal["uniform", "degree"] = Field(
        "uniform",
        description="how the other node is drawn; degree: by the number of its training links to the power of 3/4",
    )


class BinaryLossSpec(Spec):
    """Binary cross-entropy: the link against 1, the mean over its negatives against 0."""

    kind: Literal["bce"] = "bce"


class MarginLossSpec(Spec):
    """How far each negative comes closer to its link than the margin, the mean over negatives."""

    kind: Literal["margin"] = "margin"
    margin: NonNegativeFloat = Field(1.0, description="by which a link shall score above its negatives")


class SoftmaxLossSpec(Spec):
    """Cross-entropy of the link among itself and its negatives (sampled softmax)."""

    kind: Literal["softmax"] = "softmax"


LinkLossSpec = Annotated[BinaryLossSpec | MarginLossSpec | SoftmaxLossSpec, Field(discriminator="kind")]
