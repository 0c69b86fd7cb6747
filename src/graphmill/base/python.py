"""How a Python is started: the one place that says so, and where modules of the user's come in its search path.

`-P` keeps the working folder out of `sys.path`. Without it `python -m` puts that folder before Python's own library,
and a `random.py` or `json.py` that lies there, or in a run folder that someone handed over, is imported in its place.
What the user names by dotted path is looked for in the working folder as well: last.
"""

import os
import sys
from typing import Final

SAFE: Final = "-P"


def as_module(name: str) -> list[str]:
    """What follows an interpreter that runs a module of ours."""
    return [SAFE, "-m", name]


def python_m(name: str, *words: str) -> list[str]:
    """The command that runs a module of ours in this interpreter."""
    return [sys.executable, *as_module(name), *words]


def python_c(code: str) -> list[str]:
    """The command that runs a line of code in this interpreter."""
    return [sys.executable, SAFE, "-c", code]


def search_working_folder() -> None:
    """Let modules be found in the working folder, after everything else, unless they are already."""
    try:
        here = os.getcwd()  # noqa: PTH109  # pathlib is not imported yet, and may be the file that lies there
    except OSError:  # it was removed: nothing is found there
        return
    if not {"", here} & set(sys.path):
        sys.path.append(here)


def leave_out_working_folder() -> None:
    """Take the working folder out of where modules are looked for; `python -m` without -P (torchrun's) put it first.

    Last it would be no better: Python and libraries try to import much that is installed nowhere, such as `nt`. It is
    searched once the user has named code by dotted path (`spec.dotted`).
    """
    if not sys.flags.safe_path:
        del sys.path[:1]
