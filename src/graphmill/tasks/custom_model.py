"""Anybody's model, by dotted path."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.spec.experiment import CustomModelSpec


def construct(spec: CustomModelSpec, filled_in: Mapping[str, object]) -> nn.Module:
    """The module that `spec` names, made with its options and with what the task fills in unless they say otherwise."""
    factory = _load(spec.target)
    try:
        model = factory(**{**filled_in, **spec.options})
    except TypeError as error:
        accepted = list(inspect.signature(factory).parameters)
        raise UserError(
            f"{spec.target} does not take model.options {sorted(spec.options)} with {' and '.join(filled_in)}: {error}",
            fix=f"set model.options; it takes {', '.join(accepted)}",
        ) from None
    if not isinstance(model, nn.Module):
        raise UserError(
            f"{spec.target} made a {type(model).__name__}, not a torch.nn.Module", fix="name a class of modules"
        )
    return model


def _load(target: str) -> Callable[..., Any]:
    module_name, _, name = target.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UserError(
            f"model.target {target!r} cannot be imported: {error}",
            fix="install it, or give a dotted path such as torch_geometric.nn.GCN",
        ) from None
    if not hasattr(module, name):
        raise UserError(f"{module_name} has no {name!r}; {did_you_mean(name, dir(module))}", fix="mend model.target")
    factory: Callable[..., Any] = getattr(module, name)
    return factory
