"""The tests of native kernels, under each instruction set of this processor.

Every other test has the kernels that are chosen for it, the best. `make test` runs those marked as `each_isa` under the
other sets, `make test-slow` all that are in the folders.
"""

from pathlib import Path

import pytest
from instruction_sets import isas_here, python_on
from slow_cases import with_slow

from graphmill import _native

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("tests/native", "tests/assignment", "tests/tasks/assignment/data", "tests/tasks/traffic/nn"),
    *("tests/nn/attention/test_operator.py", "tests/nn/attention/test_layers.py", "tests/nn/test_operators.py"),
    *("tests/nn/test_graphsage.py", "tests/nn/test_hgt.py", "tests/nn/test_native.py", "tests/nn/test_rgcn.py"),
)
OTHERS = [isa for isa in isas_here() if isa != _native.isa()]


def run_tests(isa: str, marks: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = python_on(isa, environ, "-m", "pytest", "-p", "no:cacheprovider", "-m", marks, *FOLDERS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("isa", with_slow(OTHERS, fast=OTHERS[:1]))
def test_some_of_every_family(isa, source_environ, monkeypatch):
    run_tests(isa, "each_isa and not slow", source_environ, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("isa", OTHERS)
def test_all(isa, source_environ, monkeypatch):
    run_tests(isa, "not slow and not distributed", source_environ, monkeypatch)
