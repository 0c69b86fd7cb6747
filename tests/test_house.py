"""Rules of the house that a reader of the code relies on: one name for one class, files of one subject."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "graphmill"
MOST_LINES = 450

# PyG's names, twice: `graphmill.nn.attention` has layers of its own, `graphmill.pyg` PyG's classes on its operator.
IN_TWO_MODULES = {"GATConv", "GATv2Conv"}


def test_no_two_classes_have_one_name():
    modules = defaultdict(set)
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(file.relative_to(SOURCE))
    assert {name for name, those in modules.items() if len(those) > 1} == IN_TWO_MODULES


def test_files_are_of_one_screenful_of_subjects():
    files = [*SOURCE.rglob("*.py"), *(ROOT / "native").rglob("*"), *(ROOT / "tools").rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_bytes().splitlines()) for file in files if file.is_file()}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}


def test_one_place_knows_the_variables_of_a_slurm_job():
    """Elsewhere than in what starts and follows jobs: `JobEnvironment` is asked."""
    knows = {
        "runtime/job_environment.py",
        "runtime/deadline.py",  # how squeue is to write a time
    }
    others = []
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if name.startswith(("slurm/", "cluster/jobs/")) or name in knows:
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        others += [name for value in strings if isinstance(value, str) and re.fullmatch(r"SLURMD?_[A-Z_]+", value)]
    assert not others
