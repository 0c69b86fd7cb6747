"""The checksum that hosts of a run compare: of the sources and of the compiled core."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import graphmill
from graphmill import _native
from graphmill.runtime.code import code_checksum


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package with its core, elsewhere."""
    package = tmp_path / "graphmill"
    shutil.copytree(
        Path(graphmill.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "_native*.so")
    )
    shutil.copy(_native.__file__, package)
    return package


def checksum_of(package: Path) -> str:
    program = "from graphmill.runtime.code import code_checksum; print(code_checksum())"
    # -S: an editable install puts a finder before the path, which would find the checkout instead of the copy.
    command = [sys.executable, "-S", "-c", program]
    environ = {"PYTHONPATH": os.pathsep.join([str(package.parent), *filter(None, sys.path)])}
    return subprocess.run(command, env=environ, text=True, capture_output=True, check=True).stdout.strip()


def test_a_copy_has_the_same_checksum(copy):
    assert checksum_of(copy) == code_checksum()


def test_a_changed_source_and_a_changed_core_each_show(copy):
    sources, core = code_checksum().split("-")
    with (copy / "runtime" / "rank.py").open("a") as file:
        file.write("\n")
    changed = checksum_of(copy).split("-")
    assert changed[0] != sources
    assert changed[1] == core
    with (copy / Path(_native.__file__).name).open("ab") as file:
        file.write(b"\0")  # past the end of the ELF file: it loads all the same
    assert checksum_of(copy).split("-") == [changed[0], checksum_of(copy).split("-")[1]]
    assert checksum_of(copy).split("-")[1] != core
