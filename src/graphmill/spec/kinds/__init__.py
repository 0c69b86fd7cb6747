"""The learning problems: one torch-free page each, and the one place that finds them."""

import importlib
import sys
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.spec.kinds.kind import AnyKind, Kind
from graphmill.spec.kinds.node_classification import KIND as NODE_CLASSIFICATION
from graphmill.spec.kinds.traffic import KIND as TRAFFIC

__all__ = ["DEFAULT", "KINDS", "find_kind"]

KINDS: Final[tuple[AnyKind, ...]] = (NODE_CLASSIFICATION, TRAFFIC)
DEFAULT: Final = KINDS[0]
"""The task of an experiment that names none."""

_BUILT_IN: Final = {kind.name: kind for kind in KINDS}


def find_kind(name: str) -> AnyKind:
    """The kind called `name`: a built-in one, or the one at the dotted path `package.module:KIND`.

    A module is imported only because an experiment, or the plan made from it, names it. `UserError` if there is
    none, or it is not a kind.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise UserError(
            f"task.kind {name!r} is not a built-in task; {did_you_mean(name, _BUILT_IN)}",
            fix=f"set task.kind to one of {', '.join(_BUILT_IN)}, or to the path of another: package.module:KIND",
        )
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        raise UserError(
            f"task.kind {name!r} is not a task: {module_name} is a part of Python",
            fix="name the page of a task, package.module:KIND",
        )
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UserError(
            f"task.kind {name}: {module_name!r} cannot be imported: {error}",
            fix="install the package, or put its folder on the path: PYTHONPATH=FOLDER graphmill …",
        ) from None
    if not hasattr(module, attribute):
        raise UserError(
            f"task.kind {name}: {module_name} has no {attribute!r}; {did_you_mean(attribute, dir(module))}",
            fix=f"define {attribute} = Kind(name={name!r}, …) in {module.__file__}",
        )
    return _checked(getattr(module, attribute), name)


def _checked(found: object, name: str) -> AnyKind:
    if not isinstance(found, Kind):
        raise UserError(
            f"task.kind {name} is a {type(found).__name__}, not a graphmill.spec.kinds.kind.Kind",
            fix="name the Kind of that module: package.module:KIND",
        )
    if found.name != name:
        raise UserError(
            f"the kind at {name} calls itself {found.name!r}, and plans are found again by that name",
            fix=f"set its name to {name!r}",
        )
    return found
