"""Models of windows of CAN frames, and how they learn from each other: what an experiment says of them."""

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveInt, model_validator

from graphmill.config.frozen import Spec
from graphmill.spec.attention import AttentionSpec, kept_bytes
from graphmill.spec.experiment import Fraction

NUM_FEATURES: Final = 10
"""Of a node, beside its id."""
NUM_EDGE_FEATURES: Final = 11
NUM_CLASSES: Final = 2

Scale = Literal["large", "small"]
_SCALES: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "gat": {
        "large": {
            "hidden_channels": 48,
            "heads": 8,
            "num_layers": 3,
            "id_channels": 16,
            "id_rows": 1024,
            "fc_layers": 3,
        },
        "small": {"hidden_channels": 24, "heads": 4, "num_layers": 2, "id_channels": 8, "id_rows": 256, "fc_layers": 2},
    },
    "vgae": {
        "large": {"hidden_channels": 480, "latent_channels": 48, "id_channels": 32, "id_rows": 1024},
        "small": {"hidden_channels": 80, "latent_channels": 16, "id_channels": 8, "id_rows": 256},
    },
}


class ScaledSpec(Spec):
    """A model that comes in two sizes."""

    family: ClassVar[str]

    scale: Scale = Field("large", description="sizes of all that is not given")

    @model_validator(mode="before")
    @classmethod
    def _of_scale(cls, given: Any) -> Any:  # noqa: ANN401  # whatever was written
        if not isinstance(given, Mapping):
            return given
        return {**_SCALES[cls.family].get(given.get("scale", "large"), {}), **given}


def _refuse_no_power_of_two(rows: int) -> int:
    if rows & (rows - 1):
        raise ValueError(f"{rows} is not a power of 2")
    return rows


PowerOfTwo = Annotated[PositiveInt, AfterValidator(_refuse_no_power_of_two)]


class CanGatSpec(ScaledSpec, AttentionSpec):
    """Attention over the ids of a window, jumping knowledge by concatenation, mean over nodes, a linear stack.

    Jumping knowledge: Xu et al. 2018, arXiv 1806.03536. Ids are embedded by hashing (Svenstrup et al. 2017, arXiv
    1709.03933): one that was never seen is told from others, and costs no row of its own.
    """

    family: ClassVar[str] = "gat"

    kind: Literal["gat", "gatv2"] = Field("gat", description="how edges are scored")
    num_layers: PositiveInt = Field(3, description="of attention; small: 2")
    hidden_channels: PositiveInt = Field(48, description="width of every head; small: 24")
    heads: PositiveInt = Field(8, description="of every layer, one beside the other; small: 4")
    id_channels: PositiveInt = Field(16, description="of an id's embedding; small: 8")
    id_rows: PowerOfTwo = Field(1024, description="of the table that ids are hashed into, a power of 2; small: 256")
    id_dropout: Fraction = Field(0.1, description="probability of hiding an id while training, as if it were unknown")
    fc_layers: PositiveInt = Field(3, description="linear layers after the mean over nodes; small: 2")
    dropout: Fraction = Field(0.2, description="probability of dropping a channel, after every layer")
    edge_features: bool = Field(True, description="whether the 11 features of edges are read")

    @property
    def edge_dim(self) -> int:
        """Features of edges that are read."""
        return NUM_EDGE_FEATURES if self.edge_features else 0

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters: the table of ids, layers of attention, linear layers."""
        widths = [self.id_channels + NUM_FEATURES, *[self.width] * (self.num_layers - 1)]
        layers = sum(self.parameters_of_layer(width, self.hidden_channels, self.edge_dim) for width in widths)
        stack = [self.num_layers * self.width, *[self.hidden_channels] * (self.fc_layers - 1), NUM_CLASSES]
        linear = sum((inner + 1) * outer for inner, outer in itertools.pairwise(stack))
        return self.id_rows * self.id_channels + layers + linear + 2

    def activation_bytes(self, nodes: int, edges: int) -> int:
        """What the backward pass keeps."""
        layers = [self.activation_bytes_of_layer(nodes, edges)] * self.num_layers
        inputs = 4 * nodes * (self.id_channels + NUM_FEATURES + self.num_layers * self.width)
        return kept_bytes(layers, inputs, checkpointed=self.checkpoint_activations)


class CanVgaeSpec(ScaledSpec):
    """Variational autoencoder of windows (Kipf & Welling 2016, arXiv 1611.07308), of two layers of attention each way.

    From a latent vector of every node it gives back the node's features, its id, and the ids that follow it. What it
    cannot give back was not in what it was trained on.
    """

    family: ClassVar[str] = "vgae"

    kind: Literal["vgae"] = Field(description="a variational autoencoder")
    conv: Literal["gat", "gatv2"] = Field("gat", description="how edges are scored")
    hidden_channels: PositiveInt = Field(
        480, description="width of the first layer, half of it of the second; a multiple of twice the heads; small: 80"
    )
    heads: PositiveInt = Field(4, description="of every layer, one beside the other")
    latent_channels: PositiveInt = Field(48, description="of a node; small: 16")
    id_channels: PositiveInt = Field(32, description="of an id's embedding; small: 8")
    id_rows: PowerOfTwo = Field(1024, description="of the table that ids are hashed into, a power of 2; small: 256")
    id_dropout: Fraction = Field(0.1, description="probability of hiding an id while training, as if it were unknown")
    id_buckets: PowerOfTwo = Field(
        256, description="classes that ids are hashed into where they are to be given back, a power of 2"
    )
    dropout: Fraction = Field(0.15, description="probability of dropping a channel, after every layer")
    edge_features: bool = Field(True, description="whether the 11 features of edges are read")
    attention: Literal["fused", "reference"] = Field(
        "fused", description="one operator, on CPUs in fp32, on GPUs also in bf16; or plain PyTorch"
    )
    checkpoint_activations: bool = Field(
        False, description="keep what each layer of attention reads, and compute the rest again in the backward pass"
    )
    id_weight: NonNegativeFloat = Field(0.1, description="of the cross-entropy of ids, beside the squared error")
    neighbour_weight: NonNegativeFloat = Field(0.05, description="of the binary cross-entropy of the ids that follow")
    kl_weight: NonNegativeFloat = Field(0.01, description="of the divergence from the standard normal distribution")
    score: Literal["mean", "max"] = Field("max", description="of a window: over the errors of its nodes")

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.hidden_channels % (2 * self.heads):
            raise ValueError(f"hidden_channels is {self.hidden_channels}, no multiple of twice the {self.heads} heads")
        return self

    @property
    def edge_dim(self) -> int:
        """Features of edges that are read."""
        return NUM_EDGE_FEATURES if self.edge_features else 0

    @property
    def _layers(self) -> list[tuple[int, int]]:
        """Channels into and out of each layer of attention."""
        wide, narrow = self.hidden_channels, self.hidden_channels // 2
        return [(self.id_channels + NUM_FEATURES, wide), (wide, narrow), (self.latent_channels, narrow), (narrow, wide)]

    def _attention(self, channels: int) -> AttentionSpec:
        return AttentionSpec(
            kind=self.conv, hidden_channels=channels // self.heads, heads=self.heads, attention=self.attention
        )

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters."""
        wide, narrow, latent, buckets = (
            *(self.hidden_channels, self.hidden_channels // 2),
            *(self.latent_channels, self.id_buckets),
        )
        layers = sum(
            self._attention(out).parameters_of_layer(inner, out // self.heads, self.edge_dim)
            for inner, out in self._layers
        )
        heads = 2 * (narrow + 1) * latent + (wide + 1) * NUM_FEATURES + (latent + 1) * buckets
        following = (latent + 1) * narrow + (narrow + 1) * narrow + (narrow + 1) * buckets
        return self.id_rows * self.id_channels + layers + heads + following

    def activation_bytes(self, nodes: int, edges: int) -> int:
        """What the backward pass keeps; logits of ids and of those that follow among it."""
        of_layers = [self._attention(out).activation_bytes_of_layer(nodes, edges) for _, out in self._layers]
        inputs = 4 * nodes * sum(inner for inner, _ in self._layers)
        layers = kept_bytes(of_layers, inputs, checkpointed=self.checkpoint_activations)
        return layers + nodes * 4 * (6 * self.id_buckets + 4 * self.latent_channels + self.hidden_channels)


class FusionSpec(Spec):
    """One score of two: logistic regression on those of an autoencoder and of a classifier (stacking: Wolpert 1992).

    Both come from `sources`, and stay as they are; the regression is fitted on validation windows.
    """

    kind: Literal["fusion"]
    gat: CanGatSpec = Field(CanGatSpec(), description="the classifier, as it was trained: `sources.gat`")
    vgae: CanVgaeSpec = Field(CanVgaeSpec(kind="vgae"), description="the autoencoder: `sources.vgae`")

    @property
    def num_parameters(self) -> int:
        """Number of fitted parameters: a weight for each of two scores, and a bias."""
        return 3

    def activation_bytes(self, nodes: int, edges: int) -> int:
        """Bytes that the larger of the two models holds while it scores; nothing is kept of either."""
        return max(self.vgae.activation_bytes(nodes, edges), self.gat.activation_bytes(nodes, edges)) // 2


IntrusionModelSpec = Annotated[CanGatSpec | CanVgaeSpec | FusionSpec, Field(discriminator="kind")]


class DistillSpec(Spec):
    """Learn from a larger model as well as from the labels (Hinton et al. 2015, arXiv 1503.02531): `sources.teacher`.

    A classifier learns its teacher's probabilities at a temperature T: alpha · T² · KL + (1 − alpha) · cross-entropy.
    An autoencoder learns its teacher's latent means, through a linear map if their widths differ, and what it gives
    back: alpha · (half the squared error of each) + (1 − alpha) · its own loss.
    """

    teacher: Annotated[CanGatSpec | CanVgaeSpec, Field(discriminator="kind")] = Field(
        CanGatSpec(), description="the model of the teacher, as it was trained"
    )
    alpha: float = Field(0.7, ge=0, le=1, description="how much the teacher counts beside the labels")
    temperature: float = Field(4.0, gt=0, description="of the probabilities of classifiers")


class CurriculumSpec(Spec):
    """Which benign windows count in an epoch, beside all that are attacked; both bounds move evenly, epoch by epoch.

    Windows are drawn from those that are hardest; of others the loss is not counted.
    """

    score: Literal["scorer", "random"] = Field(
        "scorer", description="what is hard; scorer: what the autoencoder of `sources.scorer` gives back worst"
    )
    scorer: CanVgaeSpec = Field(CanVgaeSpec(kind="vgae"), description="the autoencoder, as it was trained")
    ratio: tuple[float, float] = Field(
        (1.0, 10.0), description="benign windows for each that is attacked: first, last epoch"
    )
    percentile: tuple[float, float] = Field((75.0, 95.0), description="of difficulty, from which on: first, last epoch")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if min(self.ratio) <= 0:
            raise ValueError(f"ratio is {self.ratio}, and must be > 0")
        if not 0 <= min(self.percentile) <= max(self.percentile) <= 100:
            raise ValueError(f"percentile is {self.percentile}, and must be within 0 to 100")
        return self
