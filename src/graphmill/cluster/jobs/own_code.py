"""The user's own code that a job would import, found and read where the job is submitted: what its snapshot holds.

Covered are `.py` files: the modules that the plan names by dotted path (model, loss, measures, the page of a task and
what that names), whole packages, and whatever they import in turn, at their top or in a function, by a statement or by
`import_module("name")`. They are found as the ranks would find them: PYTHONPATH, then what this interpreter adds, if
the ranks have the same, and last the folder that the job works in.

Not covered are packages installed in the environment, graphmill among them (an attempt that begins with other code of
graphmill is told, `record/attempts.py`), files that are not Python, and modules whose names are computed: the ranks do
not find them, and say so, for the folders that were copied from are not searched. Links to folders are not followed.
In a container only what lies in the folder that the job works in is copied; the rest is the image's.
"""

import ast
import importlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.runtime.snapshot import FOLDER, Snapshot, digest_of
from graphmill.spec.dotted import PLAN_FILE
from graphmill.spec.job.resolve import Job, NoContainerSpec
from graphmill.spec.plan import Plan

_MOST_BYTES: Final = 64 << 20
_INSTALLED: Final = ("site-packages", "dist-packages")
_NO_PACKAGES: Final = ("__pycache__", "node_modules")


@dataclass(frozen=True, slots=True)
class OwnCode:
    """Files of the user's, as they are now."""

    files: Mapping[str, bytes]  # by path in the copy: 0/model.py
    origins: tuple[str, ...]  # the folder of `sys.path` that 0, 1, … are copied from

    def snapshot(self, logs_root: Path) -> Snapshot:
        """What its copy will be; nothing is written."""
        digest = digest_of(self.files)
        return Snapshot(digest, str(logs_root / FOLDER / digest), self.origins)

    @property
    def names(self) -> list[str]:
        """Names of the files, without the folder."""
        return [name.partition("/")[2] for name in sorted(self.files)]


def find_own_code(plans: Iterable[Plan], search: Sequence[str]) -> OwnCode | None:
    """The user's own code of all these plans; None if they name none, or none that is found in `search`."""
    return find_modules((name for plan in plans for name in _named(plan)), search)


def find_modules(names: Iterable[str], search: Sequence[str]) -> OwnCode | None:
    """The user's own code of these modules, or packages, and of what they import; None if there is none."""
    importlib.invalidate_caches()
    todo = list(names)
    seen: set[str] = set()
    found: dict[str, dict[str, bytes]] = {}
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for root, path in _files_of(name, search):
            content = _content(path)
            found.setdefault(root, {})[path.relative_to(root).as_posix()] = content
            todo += _imported(content)
    if not found:
        return None
    origins = tuple(root for root in dict.fromkeys(search) if root in found)
    files = {f"{number}/{name}": text for number, root in enumerate(origins) for name, text in found[root].items()}
    _refuse_too_much(files)
    return OwnCode(files, origins)


def search_path(job: Job, environ: Mapping[str, str]) -> list[str]:
    """Where the ranks look for modules, in order, as far as that is seen here."""
    work = Path.cwd() / (job.work_dir or "")
    given = job.env.get("PYTHONPATH", environ.get("PYTHONPATH", ""))
    given_first = [os.path.normpath(work / each) for each in given.split(os.pathsep) if each]
    last = os.path.normpath(work)
    if not isinstance(job.container, NoContainerSpec):  # the image has its own PYTHONPATH
        return [folder for folder in dict.fromkeys([*given_first, last]) if Path(folder).is_relative_to(last)]
    if job.python != sys.executable:
        return list(dict.fromkeys([*given_first, last]))
    installed = [os.path.normpath(entry) for entry in sys.path[0 if sys.flags.safe_path else 1 :] if entry]
    return list(dict.fromkeys([*given_first, *(each for each in installed if each != last), last]))


def _named(plan: Plan) -> Iterator[str]:
    """The modules, and packages, that a plan names."""
    kind = plan.kind
    targets = [target for _, target in plan.own_code]
    if ":" in plan.task.kind:
        data = kind.data
        targets += [plan.task.kind, kind.task, data.store, data.prepare, data.recognise, kind.baselines.score]
    yield from (target.replace(":", ".").partition(".")[0] for target in targets if target)


def _files_of(name: str, search: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The files of a module, or of a whole package, that is the user's own; each with its folder of `search`."""
    if name in sys.stdlib_module_names or name in ("graphmill", "__main__"):
        return
    spec = _spec_of(name, search)
    if spec is None:
        return
    folders = list(spec.submodule_search_locations or ())
    for place in map(Path, folders or [spec.origin or ""]):
        root = str(place.parent)
        if root not in search or not place.parent.is_dir() or _is_installed(root):
            continue
        paths = _python_files(place) if folders else [place]
        yield from ((root, path) for path in paths if path.suffix == ".py")


def _spec_of(name: str, search: Sequence[str]) -> ModuleSpec | None:
    """Module spec that Python finds; None if a finder of an installed package has it, as in some editable installs."""
    for finder in sys.meta_path:
        if finder is PathFinder:
            return PathFinder.find_spec(name, search)
        if finder.find_spec(name, None) is not None:
            return None
    return None


def _python_files(package: Path) -> Iterator[Path]:
    for folder, children, names in os.walk(package):
        children[:] = sorted(name for name in children if not _is_no_package(Path(folder) / name))
        files = (Path(folder) / name for name in sorted(names) if name.endswith(".py"))
        yield from (file for file in files if file.is_file())  # an editor's lock may be a link to nothing


def _is_no_package(folder: Path) -> bool:
    marks = (PLAN_FILE, "pyvenv.cfg")
    hidden = folder.name.startswith(".") or folder.name in _NO_PACKAGES
    return hidden or any((folder / mark).exists() for mark in marks)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}", fix="make it readable, or submit with --no-code-snapshot"
        ) from None


def _is_installed(root: str) -> bool:
    """Whether packages are installed into this folder, so that nobody edits what lies there."""
    paths = sysconfig.get_paths()
    if root in (paths["stdlib"], paths["platstdlib"]) or set(_INSTALLED) & set(Path(root).parts):
        return True
    return next(Path(root).glob("*.dist-info"), None) is not None


def _imported(content: bytes) -> set[str]:
    """The modules, or packages, outside its own that a file imports; none of one that is not Python."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return set()
    names = {name.partition(".")[0] for node in ast.walk(tree) for name in _names_in(node)}
    return names - {""}


def _names_in(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(level=0, module=str(module)):
            return [module]
        case ast.Call(
            func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def _refuse_too_much(files: Mapping[str, bytes]) -> None:
    size = sum(map(len, files.values()))
    if size > _MOST_BYTES:
        raise UserError(
            f"your own code is {len(files)} files of {size >> 20} MiB, and each job would have a copy of it",
            fix="keep it in a smaller package, or submit with --no-code-snapshot",
        )
