"""User-defined models, by dotted path."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import nn

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.spec.dotted import import_named
from graphmill.spec.experiment import CustomModelSpec

_LOADERS: Final = ("torch.hub", "torch.utils", "torch.serialization", "torch.package", "torch.jit")


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
    fix = "name a class of modules, such as torch_geometric.nn.GCN, or a function of your own that makes one"
    module = import_named("model.target", target, module_name, fix=fix, refused=_LOADERS)
    if not hasattr(module, name):
        raise UserError(f"{module_name} has no {name!r}; {did_you_mean(name, dir(module))}", fix="change model.target")
    factory: Callable[..., Any] = getattr(module, name)
    return factory
