"""Small traffic stores, and where the real readings are."""

from pathlib import Path

import pytest

from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.store import TrafficStore, write_traffic

SHARED = Path(__file__).parents[4] / "shared" / "data" / "traffic"


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"no real traffic readings at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> TrafficStore:
    """Two days of eight made-up sensors."""
    raw = generate(num_sensors=8, num_steps=576, missing_share=0.1, seed=1)
    return write_traffic(raw, tmp_path_factory.mktemp("traffic") / "store")
