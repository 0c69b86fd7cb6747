"""User-defined models, by dotted path."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from torch import nn

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.trust import refuse_code_in_run_folder
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
    _refuse_what_is_no_model(target, module_name)
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UserError(
            f"model.target {target!r} cannot be imported: {error}",
            fix="install it, or give a dotted path such as torch_geometric.nn.GCN",
        ) from None
    if not hasattr(module, name):
        raise UserError(f"{module_name} has no {name!r}; {did_you_mean(name, dir(module))}", fix="change model.target")
    factory: Callable[..., Any] = getattr(module, name)
    return factory


def _refuse_what_is_no_model(target: str, module_name: str) -> None:
    """Before anything is imported: nothing of Python or torch's own loaders, and no code out of a run folder."""
    package = module_name.partition(".")[0]
    if package in sys.stdlib_module_names or module_name.startswith(_LOADERS):
        raise UserError(
            f"model.target {target!r} is not a model: it is a part of {package}",
            fix="name a class of modules, or a function of your own that makes one",
        )
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return  # the import will report it
    if found is not None and found.origin is not None:
        refuse_code_in_run_folder(target, Path(found.origin))
