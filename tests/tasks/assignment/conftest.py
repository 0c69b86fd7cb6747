"""Small prepared assignment problems."""

import pytest
from assignment_problems import prepared

from graphmill.tasks.assignment.data.store import AssignmentStore


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> AssignmentStore:
    """Every family, two sizes."""
    return prepared(tmp_path_factory.mktemp("lap"), sizes=(6, 17), instances=10, frames=5, workers=2)
