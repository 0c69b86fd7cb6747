"""Paths into the real data beside the checkout."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture
def shared_data():
    """Paths into the real data beside the checkout; a test that asks for what is not there is skipped."""

    def path(name: str) -> Path:
        found = SHARED_DATA / name
        if not found.exists():
            pytest.skip(f"real data are not here: {found}")
        return found

    return path
