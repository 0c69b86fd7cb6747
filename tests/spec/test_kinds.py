"""A task is one folder: nothing else names it, its classes or its own columns; a stranger's is found."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import graphmill
from graphmill.base.errors import UserError
from graphmill.spec.columns import Measure, columns_for
from graphmill.spec.fetching import FETCHING
from graphmill.spec.kinds import TASKS, all_kinds, find_kind
from graphmill.spec.kinds.extras import Sampling, Sources
from graphmill.spec.kinds.kind import Kind

SOURCE = Path(graphmill.__file__).parent
ALLOWED = {
    "spec/kinds/__init__.py": "the closed tuple",
    "__init__.py": "the solver, a library of that name",
    "report/scaling_points.py": "the header of the predecessor's scaling tables, promised as it is",
    "report/sensitivity.py": "the same names in the table of a sensitivity study",
}


def folder_of(path: str) -> str | None:
    """The task whose folder a module is in."""
    return next((task for task in TASKS if path.startswith(f"tasks/{task}/")), None)


Nodes = list[ast.AST]


@cache
def modules(source: Path) -> dict[str, Nodes]:
    """All nodes of each module's tree: they are walked once."""
    found = sorted(source.rglob("*.py"))
    texts = {path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in found}
    return {path: list(ast.walk(ast.parse(text))) for path, text in texts.items()}


def classes(nodes: Nodes) -> set[str]:
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


def docstrings(nodes: Nodes) -> set[int]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in nodes if isinstance(node, owners)]
    texts = [each for body in bodies for each in body if isinstance(each, ast.Expr)]
    return {id(each.value) for each in texts if isinstance(each.value, ast.Constant)}


def words_of(nodes: Nodes) -> Iterator[str]:
    """Names of classes, imported modules, and text that is no docstring."""
    skipped = docstrings(nodes)
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in TASKS:  # traffic is also what crosses a network
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


@cache
def names_of_a_task(source: Path = SOURCE) -> dict[str, set[str]]:
    """What each module outside the folders says of a task, by the module's path."""
    here = modules(SOURCE)
    there = here if source == SOURCE else modules(source)
    shared_classes = set().union(*(classes(nodes) for path, nodes in here.items() if folder_of(path) is None))
    own_classes = set().union(*(classes(nodes) for path, nodes in here.items() if folder_of(path)))
    shared_columns = set(columns_for([Measure("m", "M", higher_is_better=True)], "seeds", ""))
    layouts = [layout for kind in all_kinds() for layout in kind.layouts]
    of_layouts = {name for each in layouts for name in each.columns} - {"time", "syncs"}  # which are ordinary words
    own_columns = {name for kind in all_kinds() for name in kind.columns} | of_layouts
    own_columns -= shared_columns | FETCHING.keys()  # those of access to a graph, whatever the task
    forbidden = {*TASKS, *(own_classes - shared_classes), *own_columns}
    places = [f"tasks.{task}" for task in TASKS]
    found: dict[str, set[str]] = {}
    for path, nodes in there.items():
        if folder_of(path) is None:
            words = [*words_of(nodes), *classes(nodes)]
            said = {word for word in words if word in forbidden or any(place in word for place in places)}
            found |= {path: said} if said else {}
    return found


def test_nothing_but_its_folder_names_a_task():
    assert {path: said for path, said in names_of_a_task().items() if path not in ALLOWED} == {}


def test_every_exception_is_needed():
    assert ALLOWED.keys() <= names_of_a_task().keys()


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_a_built_in_kind_is_found_by_its_name(kind):
    assert find_kind(kind.name) is kind
    assert kind.experiment().task.kind == kind.name


def test_a_kind_says_at_most_20_things():
    """What one task alone needs is an extra of its page."""
    assert len(fields(Kind)) <= 20


def test_an_extra_is_found_by_its_type():
    kind = next(kind for kind in all_kinds() if kind.extra(Sources))
    assert isinstance(kind.extra(Sources), Sources)
    assert kind.extra(Sampling) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trafic", "did you mean 'traffic'"),
        ("no.such.package:KIND", "no.such.package"),
        ("numpy:KIND", "numpy has no 'KIND'"),
        ("graphmill.base.errors:UserError", "is a type, not a"),
        ("graphmill.tasks.traffic.page:KIND", "calls itself 'traffic'"),
        (":", "names no module"),
    ],
)
def test_what_is_no_kind_says_what_to_type(name, message):
    with pytest.raises(UserError) as refused:
        find_kind(name)
    assert message in str(refused.value)
    assert refused.value.fix


if __name__ == "__main__":  # python tests/spec/test_kinds.py SOURCE: the count, for another version of the package
    for path, said in names_of_a_task(Path(sys.argv[1]) if sys.argv[1:] else SOURCE).items():
        print(f"{path}: {', '.join(sorted(said))}")


def test_a_part_of_python_is_no_task():
    with pytest.raises(UserError, match="a part of Python"):
        find_kind("this:KIND")


def test_what_a_plan_calls_target_is_code():
    """`runtime.trust` reads every string called so as a dotted path: a run would be refused for another one."""
    for kind in all_kinds():
        for part in (kind.info, kind.plan):
            assert "target" not in part.model_fields, (kind.name, part.__name__)
