"""`devcluster`: a distribution of its own, tools/devcluster of a checkout. Here is what is said where it is absent."""

import importlib
from importlib.util import find_spec
from typing import Final

import typer

from graphmill.base.errors import UserError

_PACKAGE: Final = "graphmill_devcluster"
_ANY_WORDS: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


def register(app: typer.Typer) -> None:
    """Add its group of commands; where it is not installed, a command that says so."""
    if is_installed():
        importlib.import_module(f"{_PACKAGE}.commands").register(app)
    else:
        app.command(context_settings=_ANY_WORDS)(devcluster)


def is_installed() -> bool:
    """Whether the distribution is installed beside graphmill."""
    return find_spec(_PACKAGE) is not None


def devcluster() -> None:
    """A real Slurm on this machine, to try scripts on. Not installed.

    \b
    Example:
      pip install ./tools/devcluster   # in a checkout of graphmill
    """
    raise UserError(
        "graphmill devcluster is a distribution of its own, graphmill-devcluster, which is not installed here",
        fix="pip install ./tools/devcluster (in a checkout of graphmill)",
    )
