"""docs/howto/own-series.md as a person would follow it: the file is made, prepared, planned and trained on."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphmill.cli.app import commands
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.traffic.data.store import TrafficStore

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own-series.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.distributed
def test_from_a_file_to_a_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    (code,) = (body for kind, body in blocks if kind == "python")
    lines = [line for kind, body in blocks if kind == "bash" for line in body.splitlines()]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    exec(compile(code, str(PAGE), "exec"), {})  # the page's own
    for line in lines:
        if "counts" in line:
            done = CliRunner().invoke(commands(), shlex.split(line)[1:])
            assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"
    one, other = (TrafficStore.open(tmp_path / "data" / name) for name in ("counts", "counts-table"))
    assert (one.values[~(one.values != one.values)] == other.values[~(other.values != other.values)]).all()
    assert (one.metadata.num_missing, one.metadata.unit, one.metadata.num_edges) == (10, "bicycles", 0)
    outcome = RunFolder.open(tmp_path / "logs" / "counts-1").read_outcome()
    assert outcome is not None
    assert outcome.test is not None
    assert {"mae_1_step_1h", "mae_12_steps_12h"} <= outcome.test.keys()
    assert (tmp_path / "forecasts.parquet").is_file()
