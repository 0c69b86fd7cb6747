"""No file that lies in a working folder, or in a run folder, is imported in the place of Python's own."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "graphmill"
DEVCLUSTER = ROOT / "tools" / "devcluster" / "graphmill_devcluster"
HOME = SOURCE / "base" / "python.py"  # the one place that says how a Python of ours is started
# Scripts by their path, whose own folder comes first, and interpreters without anything but Python's own (-I).
BY_PATH = {"graphmill/cli/bench.py": 1, "graphmill_devcluster/launch.py": 2, "graphmill_devcluster/hosts.py": 1}
LIKE_PYTHONS = ("random", "json", "queue", "types", "enum", "socket", "struct", "numpy", "torch", "pydantic")
NOWHERE = ("nt", "msvcrt", "_winapi", "org")  # what Python tries to import on any system, and is not there on this one


def test_every_python_is_started_by_the_one_place_that_knows_how():
    found = {}
    for path in [*SOURCE.rglob("*.py"), *DEVCLUSTER.rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text if "executable" in text or "-m" in text else "")
        starts = [node for node in ast.walk(tree) if isinstance(node, ast.List | ast.Tuple)]
        words = [_begin(node) for node in starts]
        number = sum(map(len, words))
        if number and path != HOME:
            found[str(path.relative_to(SOURCE.parent if path.is_relative_to(SOURCE) else DEVCLUSTER.parent))] = number
    assert found == BY_PATH


def _begin(node: ast.List | ast.Tuple) -> list[str]:
    """The words of a command that begins with an interpreter, or that runs a module in one."""
    words = [ast.unparse(each) for each in node.elts]
    return [word for word in words if word in ("sys.executable", "'-m'")] if len(words) > 1 else []


def test_scripts_start_every_python_with_a_safe_path():
    for path in (SOURCE / "cluster" / "jobs" / "templates").iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            assert " -m graphmill" not in line or " -P -m graphmill" in line, f"{path.name}: {line}"


@pytest.fixture
def trap(tmp_path):
    """A folder full of files called like modules that everything imports; each leaves its name when it is run."""
    for name in (*LIKE_PYTHONS, *NOWHERE):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'a').write({name!r} + ' ')\n")
    return tmp_path


@pytest.mark.parametrize(
    "module",
    ["graphmill.train.worker", pytest.param("graphmill.train.evaluate", marks=pytest.mark.slow), "graphmill.cli"],
)
def test_a_module_of_ours_imports_nothing_from_the_working_folder(trap, module, source_environ):
    begin = "import subprocess, sys; from graphmill.base.python import python_m; "
    code = f"{begin}sys.exit(subprocess.run(python_m({module!r}, '--help')).returncode)"
    words = [sys.executable, "-P", "-c", code]
    done = subprocess.run(words, cwd=trap, env=source_environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (trap / "sprung").exists(), (trap / "sprung").read_text()


@pytest.mark.parametrize("typed", ["graphmill --help", "graphmill.cli --help", "graphmill.train no.yaml"])
def test_typed_by_hand_only_what_python_itself_imports_first_is_taken_from_there(trap, typed, source_environ):
    """`python -m`, and torchrun, which starts its ranks so: what runpy and the package need is out of our hands."""
    for name in ("types", "enum"):
        (trap / f"{name}.py").unlink()
    command = [sys.executable, "-m", *typed.split()]
    done = subprocess.run(command, cwd=trap, env=source_environ, capture_output=True, text=True, check=False)
    assert not (trap / "sprung").exists(), (trap / "sprung").read_text() + done.stderr
    assert done.returncode == (0 if "--help" in typed else 2), done.stderr


def test_the_users_modules_are_found_in_the_working_folder_after_all_others(trap, source_environ):
    (trap / "mine.py").write_text("import random\nX = random.random()\n")
    code = "from graphmill.spec.dotted import import_named; print(import_named('k', 'mine.X', 'mine', fix='').__file__)"
    environ = {**source_environ, "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-P", "-c", code]
    done = subprocess.run(words, cwd=trap, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == os.path.realpath(trap / "mine.py"), done.stderr
    assert not (trap / "sprung").exists()
