"""What `make test` leaves to `make test-slow`, where cases or examples repeat what the others say."""

from collections.abc import Collection, Iterable
from typing import Any

import hypothesis
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


def num_examples(fast: int, *, explored: int = 100) -> int:
    """How many examples a property test tries: `fast` in `make test`, `explored` where others are looked for."""
    return fast if hypothesis.settings.default.derandomize else explored
