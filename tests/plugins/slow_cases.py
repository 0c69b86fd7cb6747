"""Which cases of a parametrised test `make test` runs, where each repeats what the others say."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def with_slow(cases: Iterable[Any], *, fast: Collection[Any]) -> list[Any]:
    """All cases, for `pytest.mark.parametrize`: those that are not among `fast` are for `make test-slow`."""
    cases = list(cases)
    assert all(case in cases for case in fast)
    slow = [pytest.mark.slow]
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[] if case in fast else slow)
        for case in cases
    ]
