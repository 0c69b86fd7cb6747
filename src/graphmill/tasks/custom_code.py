"""What users define and an experiment names by dotted path: found, and called with their errors in one sentence."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.spec.dotted import import_named

_LOADERS: Final = ("torch.hub", "torch.utils", "torch.serialization", "torch.package", "torch.jit")


def find_named(key: str, target: str, *, fix: str) -> Callable[..., Any]:
    """What the experiment's `key` names; `UserError` if there is no such thing, or it must not be imported."""
    module_name, _, name = target.replace(":", ".").rpartition(".")
    if not module_name:
        raise UserError(f"{key} {target!r} is not a dotted path: it names no module", fix=f"write module.name; {fix}")
    module = import_named(key, target, module_name, fix=fix, refused=_LOADERS)
    if not hasattr(module, name):
        raise UserError(f"{module_name} has no {name!r}; {did_you_mean(name, dir(module))}", fix=f"change {key}")
    found: Callable[..., Any] = getattr(module, name)
    return found


def find_function(section: str, target: str, options: Mapping[str, Any], *, fix: str) -> Callable[..., Any]:
    """A function with its `options`, or what a class makes of them; `section`: of the experiment, with both."""
    found = find_named(f"{section}.target", target, fix=fix)
    if not callable(found):
        raise UserError(f"{section}.target {target!r} is a {type(found).__name__}, which cannot be called", fix=fix)
    if not inspect.isclass(found):
        return functools.partial(found, **options)
    try:
        made = found(**options)
    except TypeError as error:
        raise UserError(
            f"{target} does not take {section}.options {sorted(options)}: {error}", fix=f"set {section}.options"
        ) from None
    if not callable(made):
        raise UserError(f"{target} makes a {type(made).__name__}, which cannot be called", fix=fix)
    called: Callable[..., Any] = made
    return called


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
