"""What the tests of graphs that lie for a device share."""

from pathlib import Path

import pytest
from device_graphs import prepare_graph


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder of prepared data with a graph called sbm."""
    root: Path = tmp_path_factory.mktemp("data")
    prepare_graph(root)
    return root
