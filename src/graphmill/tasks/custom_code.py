"""What users define and an experiment names by dotted path: found, and called with their errors in one sentence."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.spec.dotted import import_named, is_part_of


def find_named(key: str, target: str, options: Mapping[str, Any], *, fix: str) -> Callable[..., Any]:
    """What the experiment's `key` names, to be called with `options`; nothing is called.

    `UserError` if there is no such thing, it must not be imported, or it is neither a module of torch's, nor a function
    or class that the user, or a package for such things, defines.
    """
    module_name, _, name = target.replace(":", ".").rpartition(".")
    if not module_name:
        raise UserError(f"{key} {target!r} is not a dotted path: it names no module", fix=f"write module.name; {fix}")
    module = import_named(key, target, module_name, fix=fix, options=options)
    if not hasattr(module, name):
        raise UserError(f"{module_name} has no {name!r}; {did_you_mean(name, dir(module))}", fix=f"change {key}")
    found: Callable[..., Any] = getattr(module, name)
    part = "" if _is_of_torchs(found) else is_part_of(_defined_in(found) or module_name)
    if part:
        raise UserError(f"{key} {target!r} names a part of {part}", fix=fix)
    return found


def _is_of_torchs(value: object) -> bool:
    """Whether it is a module of torch's, makes one, computes with tensors, or was compiled by torch for the user."""
    is_operation = inspect.isbuiltin(value) and value.__module__ == "torch"  # nn.functional lists some of these
    return is_operation or isinstance(value, nn.Module | torch.jit.ScriptFunction) or is_class_of_modules(value)


def is_class_of_modules(value: object) -> bool:
    """Whether calling it makes a module of torch's."""
    return inspect.isclass(value) and issubclass(value, nn.Module)


def _defined_in(value: object) -> str:
    """The module of a function, of a class, or of an object's class; "": of a built-in, which does not say."""
    while isinstance(value, functools.partial):
        value = value.func
    where = getattr(value, "__module__", None)
    return where if isinstance(where, str) else ""


def find_function(section: str, target: str, options: Mapping[str, Any], *, fix: str) -> Callable[..., Any]:
    """A function with its `options`, or what a class makes of them; `section`: of the experiment, with both."""
    found = find_named(f"{section}.target", target, options, fix=fix)
    if inspect.isclass(found) and not is_class_of_modules(found) and not _makes_callables(found):
        raise UserError(f"{target} makes a {found.__name__}, which cannot be called", fix=fix)
    if not callable(found):
        raise UserError(f"{section}.target {target!r} is a {type(found).__name__}, which cannot be called", fix=fix)
    if not inspect.isclass(found):
        return functools.partial(found, **options)
    make: Callable[..., Any] = found
    try:
        made: Callable[..., Any] = make(**options)
    except TypeError as error:
        raise UserError(
            f"{target} does not take {section}.options {sorted(options)}: {error}", fix=f"set {section}.options"
        ) from None
    return made


def _makes_callables(class_: type) -> bool:
    """Whether what the class makes can be called, as far as the class says before it is called itself."""
    return any("__call__" in vars(each) for each in class_.__mro__)


def called(target: str, function: Callable[..., Any], *arguments: Any, what: str) -> Any:  # noqa: ANN401  # a stranger's
    """What it returns. `what`: the arguments in words, for the `UserError` of whatever it raises."""
    try:
        return function(*arguments)
    except UserError:
        raise
    except Exception as error:  # whatever a stranger's code raises
        raise UserError(
            f"{target} cannot be called with {what}: {type(error).__name__}: {error}",
            fix=f"let it take {what}, and its options by name",
        ) from error
