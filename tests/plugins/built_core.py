"""pytest -p built_core: this process drives the compiled core at GRAPHMILL_NATIVE (`make debug`, .ci/sanitize)."""

import importlib.util
import os
import sys

import graphmill

_spec = importlib.util.spec_from_file_location("graphmill._native", os.environ["GRAPHMILL_NATIVE"])
_core = importlib.util.module_from_spec(_spec)
sys.modules["graphmill._native"] = graphmill._native = _core
_spec.loader.exec_module(_core)


def pytest_report_header() -> str:
    return f"compiled core: {_core.__file__}"
