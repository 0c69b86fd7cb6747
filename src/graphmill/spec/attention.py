"""What models that attend to neighbours have in common."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.runtime.gpus import BF16_FROM, TRITON_FROM, Capability, precisions_on, text_of
from graphmill.spec.experiment import Fraction, TrainSpec
from graphmill.spec.synonyms import HIDDEN_WIDTH

MOST_CHANNELS_ON_GPU = 4096  # of a head: a program of its kernels holds a head whole


class AttentionSpec(Spec):
    """gat: Velickovic et al. 2018, arXiv 1710.10903; gatv2: Brody et al. 2022, arXiv 2105.14491."""

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.hidden_channels")

    kind: Literal["gat", "gatv2"]
    hidden_channels: PositiveInt = Field(16, description="width of every head")
    heads: PositiveInt = Field(4, description="of every layer, one beside the other")
    attention_dropout: Fraction = Field(0.0, description="probability of dropping an edge's share of the attention")
    attention: Literal["fused", "reference"] = Field(
        "fused",
        description="one operator, on CPUs in fp32, on GPUs also in bf16; or plain PyTorch, which holds edges x heads x"
        " channels",
    )

    checkpoint_activations: bool = Field(
        False,
        description="activation checkpointing: of each layer the backward pass keeps what it reads alone, and computes "
        "the rest again; the same weights, less memory, more time",
    )

    @property
    def width(self) -> int:
        """Width of a hidden layer, of all its heads."""
        return self.hidden_channels * self.heads

    def parameters_of_layer(self, in_channels: int, channels: int, edge_features: int, *, concat: bool = True) -> int:
        """Parameters of a layer: projections of nodes and edges, attention vectors, bias; `channels` of a head."""
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


def _fused_parts(model: object) -> list[Any]:
    parts = (model, getattr(model, "gat", None), getattr(model, "vgae", None))
    return [part for part in parts if getattr(part, "attention", None) == "fused"]


def is_fused(model: object) -> bool:
    """Whether a model, or one that a fusion scores with, attends by the operator `graphmill::attention`."""
    return bool(_fused_parts(model))


def width_clash(model: object) -> tuple[str, str] | None:
    """(what clashes, what to set) where a head is wider than a program of the GPU's kernels holds; None: none is."""
    for part in _fused_parts(model):
        channels = part.hidden_channels if isinstance(part, AttentionSpec) else part.hidden_channels // part.heads
        if channels > MOST_CHANNELS_ON_GPU:
            return (
                f"model.attention is fused, which has at most {MOST_CHANNELS_ON_GPU} channels a head on GPUs, and "
                f"model.hidden_channels makes {channels}",
                "set more model.heads and fewer model.hidden_channels, or model.attention=reference",
            )
    return None


def refuse_fused(model: object, train: TrainSpec) -> None:
    """Raise a `UserError` if attention is to be fused in a number format that the CPU's operator has not."""
    if is_fused(model) and train.device == "cpu" and train.precision == "bf16":
        raise UserError(
            "model.attention is fused, which runs in fp32 on CPUs (in bf16 on GPUs only), and train.precision is bf16",
            fix="set train.precision=fp32, or model.attention=reference",
        )


def gpu_clash(precision: str, gpu: str, capability: Capability | None) -> tuple[str, str] | None:
    """(what clashes, what to set) where fused attention does not run on a GPU; None: it does, or the GPU is unknown."""
    if capability is None or precision in precisions_on(capability):
        return None
    has = f"{gpu} has compute capability {text_of(capability)}"
    if capability < TRITON_FROM:
        return (
            f"model.attention is fused, which needs {text_of(TRITON_FROM)}, and {has}",
            "set model.attention=reference",
        )
    return (
        f"model.attention is fused, which runs in bf16 from compute capability {text_of(BF16_FROM)} on, and {has}",
        "set train.precision=fp32, or model.attention=reference",
    )


def refuse_gpus(model: object, precision: str, gpus: Iterable[tuple[str, Capability | None]]) -> None:
    """Raise a `UserError` if attention is to be fused and a GPU, by name, has no such kernel, or none of its width."""
    for gpu, capability in gpus if is_fused(model) else ():
        clash = gpu_clash(precision, gpu, capability) or width_clash(model)
        if clash is not None:
            raise UserError(clash[0], fix=clash[1])
