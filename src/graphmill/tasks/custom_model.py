"""User-defined models, by dotted path."""

import inspect
import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from graphmill.base.errors import UserError
from graphmill.spec.experiment import CustomModelSpec
from graphmill.tasks.custom_code import find_named, is_class_of_modules

_log = logging.getLogger(__name__)

_FIX: Final = "name a class of modules, such as torch_geometric.nn.GCN, or a function of your own that makes one"


def construct(spec: CustomModelSpec, filled_in: Mapping[str, object]) -> nn.Module:
    """The module that `spec` names, made with its options and with what the task fills in unless they say otherwise."""
    factory = find_named("model.target", spec.target, spec.options, fix=_FIX)
    if not is_class_of_modules(factory) and not inspect.isfunction(factory):
        what = f"a class {factory.__name__}" if inspect.isclass(factory) else f"of type {type(factory).__name__}"
        raise UserError(f"{spec.target} is {what}, and makes no module", fix=_FIX)
    width = filled_in["in_channels"]
    given = spec.options.get("in_channels", width)
    if given != width:
        raise UserError(
            f"model.options.in_channels is {given}, but the inputs of a batch have {width} channels",
            fix="remove in_channels from model.options: it is filled in",
        )
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
    if spec.fused:
        _fuse(spec.target, model)
    return model


def _fuse(target: str, model: nn.Module) -> None:
    """Replace PyG's layers in the model; `UserError` if it has none that can be replaced."""
    try:
        from graphmill.pyg.fusing import FUSED, fuse_layers, left_to_pyg
    except ImportError:
        raise UserError("model.fused needs PyG", fix="pip install torch_geometric, or set model.fused=false") from None
    names = ", ".join(layer.__name__ for layer in FUSED)
    if not fuse_layers(model):
        raise UserError(f"model.fused is true, and {target} has none of PyG's {names}", fix="set model.fused=false")
    if others := left_to_pyg(model):
        _log.info(f"model.fused: PyG's own code computes {', '.join(others)} of {target}")


def try_out(
    target: str,
    model: nn.Module,
    arguments: Mapping[str, Tensor],
    wanted: Sequence[tuple[int, ...]],
    named: Mapping[str, Tensor] = MappingProxyType({}),
) -> None:
    """Compute one made-up batch forward and backward; afterwards the model has been used, and is to be thrown away.

    Raises `UserError` unless it has float32 parameters to train, is called with the `arguments` in their order and
    those `named` by name, and makes one finite tensor of floating-point numbers, of one of the `wanted` shapes, that
    depends on its parameters.
    """
    refuse_untrainable(target, model)
    given = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in {**arguments, **named}.items())
    form = " or ".join(str(list(shape)) for shape in wanted)
    try:
        out = model.train()(*arguments.values(), **named)
        problem = _problem_of(out, wanted)
        if problem is None:
            out.float().square().mean().backward()
    except UserError:
        raise
    except Exception as error:  # whatever a stranger's code raises
        raise UserError(
            f"{target} cannot compute a batch of {given}: {type(error).__name__}: {error}{_place(error, model)}",
            fix=f"let forward take ({', '.join([*arguments, *named])}) and return {form}",
        ) from error
    if problem is not None:
        raise UserError(f"{target} makes {problem} of a batch of {given}", fix=f"let forward return {form}, float32")


def _problem_of(out: object, wanted: Sequence[tuple[int, ...]]) -> str | None:
    """What is wrong with what a model returned, to follow "it makes"."""
    if not isinstance(out, Tensor):
        return "nothing (None)" if out is None else f"a {type(out).__name__}, not a tensor,"
    if tuple(out.shape) not in wanted:
        return f"{list(out.shape)}"
    if not out.is_floating_point():
        return f"whole numbers ({out.dtype})"
    if not out.isfinite().all():
        return "values that are not finite"
    return None if out.requires_grad else "values that depend on no parameter"


def refuse_untrainable(target: str, model: nn.Module) -> None:
    """Raise a `UserError` unless a model has float32 parameters to train, whose shapes are known."""
    parameters = dict(model.named_parameters())
    lazy = [name for name, parameter in parameters.items() if isinstance(parameter, UninitializedParameter)]
    if lazy:
        raise UserError(
            f"{target} leaves the shape of {lazy[0]} open, as LazyLinear does: ranks must begin with the same weights",
            fix="give the widths when the model is made: in_channels and out_channels are filled in",
        )
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise UserError(
            f"{target} has no parameter to train", fix="name a model with parameters that require gradients"
        )
    other = [name for name, each in parameters.items() if each.is_floating_point() and each.dtype != torch.float32]
    if other:
        raise UserError(
            f"{target}: {other[0]} is {parameters[other[0]].dtype}, and parameters are float32 here",
            fix="make the model in float32; train.precision=bf16 computes in bfloat16",
        )


def _place(error: Exception, model: nn.Module) -> str:
    """The line of the model's own file that the error came through."""
    source = getattr(sys.modules.get(type(model).__module__), "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    return f" ({source}, line {lines[-1]})" if lines else ""
