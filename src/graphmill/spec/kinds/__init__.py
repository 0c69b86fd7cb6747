"""The learning problems: one torch-free page each, and the one place that finds them."""

import functools
import importlib
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.spec.dotted import import_named
from graphmill.spec.kinds.kind import AnyKind, Kind

TASKS: Final = (
    *("node_classification", "node_regression", "link_prediction", "traffic", "graph_classification", "intrusion"),
    "assignment",
)
"""The built-in tasks. The page of each is `page` in its folder, imported when it is asked for: a command that needs
one task does not pay for the others.
"""
DEFAULT_TASK: Final = TASKS[0]
"""Of an experiment that names none."""


def find_kind(name: str) -> AnyKind:
    """The kind called `name`: a built-in one, or the one at the dotted path `package.module:KIND`.

    A module is imported only because an experiment, or the plan made from it, names it. `UserError` if there is
    none, or it is not a kind.
    """
    if name in TASKS:
        return _checked(importlib.import_module(f"graphmill.tasks.{name}.page").KIND, name)
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise UserError(
            f"task.kind {name!r} is not a built-in task; {did_you_mean(name, TASKS)}",
            fix=f"set task.kind to one of {', '.join(TASKS)}, or to the path of another: package.module:KIND",
        )
    module = import_named("task.kind", name, module_name, fix="name the page of a task: package.module:KIND")
    if not hasattr(module, attribute):
        raise UserError(
            f"task.kind {name}: {module_name} has no {attribute!r}; {did_you_mean(attribute, dir(module))}",
            fix=f"define {attribute} = Kind(name={name!r}, …) in {module.__file__}",
        )
    return _checked(getattr(module, attribute), name)


@functools.cache
def all_kinds() -> tuple[AnyKind, ...]:
    """All built-in kinds."""
    return tuple(find_kind(name) for name in TASKS)


def default_kind() -> AnyKind:
    """The kind of an experiment that names none."""
    return find_kind(DEFAULT_TASK)


def _checked(candidate: object, name: str) -> AnyKind:
    if not isinstance(candidate, Kind):
        raise UserError(
            f"task.kind {name} is a {type(candidate).__name__}, not a graphmill.spec.kinds.kind.Kind",
            fix="name the Kind of that module: package.module:KIND",
        )
    if candidate.name != name:
        raise UserError(
            f"the kind at {name} calls itself {candidate.name!r}, and plans are found again by that name",
            fix=f"set its name to {name!r}",
        )
    return candidate
