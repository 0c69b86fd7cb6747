"""The attention of a model that is called as it always is."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from graphmill.nn.attention.layers import AttentionConv, AttentionWeights


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[AttentionWeights]]:
    """What each layer of attention of `model` gives its edges meanwhile, in the order of the calls."""
    found: list[AttentionWeights] = []

    def ask(_: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return given, {**named, "return_attention_weights": True}

    def take(_: nn.Module, __: object, result: tuple[Tensor, AttentionWeights]) -> Tensor:
        found.append(result[1])
        return result[0]

    layers = layers_of(model)
    hooks = [layer.register_forward_pre_hook(ask, with_kwargs=True) for layer in layers]
    hooks += [layer.register_forward_hook(take) for layer in layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def layers_of(model: nn.Module) -> list[AttentionConv]:
    """Attention layers of a model."""
    return [module for module in model.modules() if isinstance(module, AttentionConv)]
