"""pytest -p sanitized_core: the same as built_core, of a core that a sanitizer watches, see .ci/sanitize."""

import os

from built_core import pytest_report_header

__all__ = ["pytest_report_header"]


def _no_fork() -> int:
    raise RuntimeError("under a sanitizer: mark this test as forks")


os.fork = _no_fork  # another thread may hold a lock of the sanitizer's allocator; the child would wait for it for ever
