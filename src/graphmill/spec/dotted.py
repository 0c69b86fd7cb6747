"""Code that an experiment or a plan names by dotted path: what may be imported, and how its absence is reported."""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill.base.python import search_working_folder
from graphmill.runtime.process import PYG, import_pyg
from graphmill.runtime.snapshot import own_code, snapshot_in
from graphmill.runtime.trust import refuse_foreign

PLAN_FILE: Final = "plan.json"  # in a run folder
_OF_TORCH: Final = ("torch.nn.", "torch._C._nn.")  # layers and losses; the second: functions that nn.functional lists


def import_named(
    key: str, target: str, module_name: str, *, fix: str, options: Mapping[str, Any] = MappingProxyType({})
) -> ModuleType:
    """The module that the experiment's `key` names in its value `target`, to be called with `options`.

    Nothing of Python itself is imported, of torch its layers and losses alone, no code out of a run folder, which is
    for results, and nothing that a run folder names and the person did not. `fix`: what to name instead. Raises
    `UserError` for those, and where the import fails.
    """
    refuse_foreign(target, options)
    if not module_name:
        raise UserError(f"{key} {target!r} is no dotted path: it names no module", fix=fix)
    package = module_name.partition(".")[0]
    part = is_part_of(module_name)
    if part:
        raise UserError(f"{key} {target!r} names a part of {part}", fix=fix)
    _search_where_the_user_is()
    _refuse_code_in_run_folder(key, target, package)
    if may_import(target, PYG):
        with suppress(Exception):  # the module says it by its own import
            import_pyg()
    try:
        return importlib.import_module(module_name)
    except SyntaxError as error:
        raise UserError(
            f"{key} {target!r}: {error.filename}, line {error.lineno}: {error.msg}", fix="correct that line"
        ) from None
    except (ImportError, ValueError) as error:
        raise UserError(
            f"{key} {target!r}: {module_name!r} cannot be imported: {error}",
            fix=f"{_where_to_put_it()}; {fix}",
        ) from None
    except Exception as error:  # noqa: BLE001  # the user's code runs here: whatever it raises is told with its line
        where = _users_frame(traceback.extract_tb(error.__traceback__))
        raise UserError(
            f"{key} {target!r}: {module_name!r} cannot be imported: {where.filename}, line {where.lineno}:"
            f" {type(error).__name__}: {error}",
            fix="correct that line",
        ) from None


def may_import(target: str, package: str) -> bool:
    """Whether what a dotted path names is of `package`, or of a file that mentions it; nothing is imported for that."""
    names = target.replace(":", ".").split(".")[:-1]
    if not names or not all(names):
        return False  # of no module
    if names[0] == package:
        return True
    for folder in (*sys.path, "."):
        base = Path(folder, *names)
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            with suppress(OSError, ValueError):  # ValueError: a name that no file can have
                return package in path.read_text(encoding="utf-8", errors="replace")
    return False


def is_part_of(module_name: str) -> str:
    """What a module belongs to that no experiment needs, and that may start processes or load code; "": nothing."""
    package = module_name.partition(".")[0]
    if package in sys.stdlib_module_names:
        return "Python"
    return package if package == "torch" and not f"{module_name}.".startswith(_OF_TORCH) else ""


def _search_where_the_user_is() -> None:
    """Search the working folder unless a copy was taken of it: what is missing in the copy is missing then."""
    snapshot = snapshot_in(os.environ)
    copied = () if snapshot is None else map(os.path.realpath, snapshot.origins)
    if os.path.realpath(".") not in copied:
        search_working_folder()


def _users_frame(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary:
    """The innermost frame that is neither of Python, nor of an installed package, nor of this module."""
    others = ("<frozen", str(Path(os.__file__).parent), __file__)
    own = [each for each in frames if not each.filename.startswith(others) and "site-packages" not in each.filename]
    return (own or frames)[-1]


def _where_to_put_it() -> str:
    if own_code(os.environ):  # a job: the folders that were copied from are not searched
        return "the job imports a copy of your code: --no-code-snapshot imports what lies there when it starts"
    return "install the package, or put its folder on the path (PYTHONPATH=FOLDER graphmill …)"


def _refuse_code_in_run_folder(key: str, target: str, package: str) -> None:
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return  # the import will report it
    if found is None:
        return
    # A package without __init__.py has no origin, only places; below them a folder may be a run, or a link into one.
    below = target.replace(":", ".").split(".")[1:-1]
    places = [Path(place) for place in (found.origin, *(found.submodule_search_locations or ())) if place]
    places += [Path(place, *below) for place in found.submodule_search_locations or ()]
    places += [place.with_suffix(".py") for place in places[-1:] if below]
    for path in places:
        for folder in (path.absolute(), *path.absolute().parents, *path.resolve().parents):  # a link lies there, too
            if (folder / PLAN_FILE).is_file():
                raise UserError(
                    f"{key} {target!r} would be imported from {path}, inside the run folder {folder}",
                    fix="keep the code outside run folders, and name it from there (PYTHONPATH, or install it)",
                )
