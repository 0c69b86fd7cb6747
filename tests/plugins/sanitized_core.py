"""pytest -p sanitized_core: the tests of this process drive the compiled core at GRAPHMILL_NATIVE, see .ci/sanitize."""

import importlib.util
import os
import sys

import graphmill

_spec = importlib.util.spec_from_file_location("graphmill._native", os.environ["GRAPHMILL_NATIVE"])
_core = importlib.util.module_from_spec(_spec)
sys.modules["graphmill._native"] = graphmill._native = _core
_spec.loader.exec_module(_core)


def _no_fork() -> int:
    raise RuntimeError("under a sanitizer: mark this test as forks")


os.fork = _no_fork  # another thread may hold a lock of the sanitizer's allocator; the child would wait for it for ever


def pytest_report_header() -> str:
    return f"compiled core: {_core.__file__}"
