"""`graphmill.train` is a package and a function, whatever was imported before; importing graphmill stays cheap."""

import inspect
import itertools
import subprocess
import sys

import pytest
from slow_cases import with_slow

import graphmill

WAYS = {
    "module": "import graphmill.train.words",
    "from": "from graphmill.train import words",
    "name": "from graphmill import train",
    "attribute": "import graphmill; graphmill.train",
    "function": "import graphmill.api.training",
    "run": "import graphmill; graphmill.Run",
}
HOLDS = """
import sys, types, graphmill, graphmill.train.words
from graphmill import train
from graphmill.train import words
assert train is graphmill.train is sys.modules["graphmill.train"]
assert isinstance(train, types.ModuleType) and callable(train)
assert words is train.words is sys.modules["graphmill.train.words"]
try:
    graphmill.train("no-such.yaml")
except graphmill.UserError as error:
    print(error.message)
"""


FAST = list(itertools.pairwise([*WAYS, "module"]))  # each way comes once first, and once second


@pytest.mark.parametrize(("first", "second"), with_slow(itertools.permutations(WAYS, 2), fast=FAST))
def test_train_is_a_package_and_a_function_in_any_order(first, second, source_environ, tmp_path):
    program = "\n".join([WAYS[first], WAYS[second], HOLDS])
    done = subprocess.run(
        [sys.executable, "-c", program], env=source_environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "no-such.yaml does not exist\n"


def test_what_is_in_the_package_can_be_patched_by_name(monkeypatch):
    monkeypatch.setattr("graphmill.train.profile._UNREAD", 12)
    import graphmill.train.profile as profile

    assert profile._UNREAD == 12


def test_its_signature_is_the_functions():
    from graphmill.api.training import train

    assert inspect.signature(graphmill.train) == inspect.signature(train)


def test_every_public_name_is_there():
    for name in graphmill.__all__:
        assert getattr(graphmill, name) is not None
    assert set(graphmill.__all__) - {"__version__"} <= set(dir(graphmill))


@pytest.mark.parametrize("call", ["graphmill.plan('toy.yaml')", "graphmill.Run", "graphmill.submit", "graphmill.train"])
def test_no_call_needs_torch_in_this_process(call, toy, source_environ):
    program = f"import sys, graphmill; {call}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], env=source_environ, cwd=toy.parent, check=True)


def test_importing_graphmill_loads_nothing(source_environ):
    program = "import sys, graphmill; print([name for name in sys.modules if name.startswith('graphmill.')])"
    done = subprocess.run([sys.executable, "-c", program], env=source_environ, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"[]\n"
