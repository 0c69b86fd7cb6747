"""What models that attend to neighbours have in common."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.experiment import Fraction, TrainSpec
from graphmill.spec.synonyms import HIDDEN_WIDTH


class AttentionSpec(Spec):
    """gat: Velickovic et al. 2018, arXiv 1710.10903; gatv2: Brody et al. 2022, arXiv 2105.14491."""

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["gat", "gatv2"]
    hidden_channels: PositiveInt = Field(16, description="width of every head")
    heads: PositiveInt = Field(4, description="of every layer, one beside the other")
    attention_dropout: Fraction = Field(0.0, description="probability of dropping an edge's share of the attention")
    attention: Literal["fused", "reference"] = Field(
        "fused", description="one operator, on CPUs in fp32; or plain PyTorch, which holds edges x heads x channels"
    )

    checkpoint_activations: bool = Field(
        False,
        description="activation checkpointing: of each layer the backward pass keeps what it reads alone, and computes "
        "the rest again; the same weights, less memory, more time",
    )

    @property
    def width(self) -> int:
        """Of all heads of a hidden layer."""
        return self.hidden_channels * self.heads

    def parameters_of_layer(self, in_channels: int, channels: int, edge_features: int, *, concat: bool = True) -> int:
        """Projections of nodes and edges, attention vectors and the bias; `channels` of a head."""
        width = channels * self.heads
        bias = width if concat else channels
        if self.kind == "gat":
            return (in_channels + edge_features + 2 + (edge_features > 0)) * width + bias
        return (2 * (in_channels + 1) + edge_features + 1) * width + bias

    def activation_bytes_of_layer(self, nodes: int, edges: int) -> int:
        """What the backward pass of a layer keeps.

        Of a node: both projections, the result, what the activation let through, scores of the heads; of an edge where
        attention is not fused: its scores, and the messages, forward and backward.
        """
        per_edge = 0 if self.attention == "fused" else 4 * (3 * self.width + 6 * self.heads)
        return nodes * 4 * (5 * self.width + 3 * self.heads) + edges * per_edge


def kept_bytes(of_layers: Sequence[int], of_inputs: int, *, checkpointed: bool) -> int:
    """What the backward pass of layers keeps; checkpointed: what all of them read, the rest a layer at a time."""
    return max(of_layers) + of_inputs if checkpointed else sum(of_layers)


def refuse_fused(model: object, train: TrainSpec) -> None:
    """Raise a `UserError` if attention is to be fused where there is no such operator yet."""
    if not isinstance(model, AttentionSpec) or model.attention != "fused":
        return
    for key, value, here in (("train.device", train.device, "cuda"), ("train.precision", train.precision, "bf16")):
        if value == here:
            raise UserError(
                f"model.attention is fused, which runs on CPUs in fp32, and {key} is {value}",
                fix="set model.attention=reference, or train.device=cpu and train.precision=fp32",
            )
