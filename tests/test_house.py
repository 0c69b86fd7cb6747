"""Rules of the house that a reader of the code relies on: one name for one class, files of one subject."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "graphmill"
MOST_LINES = 450

# Classes of one name in several packages. The list may shrink: give a new class a name of its own.
IN_SEVERAL_PACKAGES = {
    "Command",
    "EdgeFeatures",
    "GATConv",  # PyG's name
    "GATv2Conv",
    "Judged",
    "Measured",
    "Packing",
    "Patience",
    "Problem",
    "Row",
    "Sampler",
    "Served",
    "Shown",
    "Sizes",
    "Step",
    "Traffic",
}


def classes() -> Iterator[tuple[str, str]]:
    """Package and name of each class that is no member of another; a task's folder is a package of its own."""
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).parts
        package = "/".join(parts[:2]) if parts[0] == "tasks" and len(parts) > 2 else parts[0]
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield package, node.name


def test_no_package_has_two_classes_of_one_name():
    seen, twice = set(), set()
    for package, name in classes():
        (twice if (package, name) in seen else seen).add((package, name))
    assert not twice


def test_no_new_class_has_the_name_of_another_packages():
    packages = defaultdict(set)
    for package, name in classes():
        packages[name].add(package)
    assert {name for name, those in packages.items() if len(those) > 1} == IN_SEVERAL_PACKAGES


def test_files_are_of_one_screenful_of_subjects():
    files = [*SOURCE.rglob("*.py"), *(ROOT / "native").rglob("*"), *(ROOT / "tools").rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_bytes().splitlines()) for file in files if file.is_file()}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}
