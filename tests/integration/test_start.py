"""What a rank imports: no more than it needs, or each start of each rank would take seconds longer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.record.run_folder import RunFolder

pytestmark = pytest.mark.distributed

PROGRAM = """
import sys
from graphmill.train import worker
code = worker.main(sys.argv[1:])
print(*sorted(sys.modules))
sys.exit(code)
"""
NEVER = {
    *(
        "torch._dynamo",
        "torch._inductor",
        "torch._export.db",
        "sympy",
        "networkx",
    ),  # its compiler
    *("sklearn", "scipy", "pandas", "polars", "matplotlib", "torch_geometric", "graphmill.cli", "graphmill.report"),
}
MOST_OF_OURS = 320  # modules; 299 when this was written


def imported(folder: RunFolder, environ: dict[str, str]) -> set[str]:
    """Train the run in a process of its own, baselines after it. Returns the modules that it had imported."""
    folder.begin_attempt(resumed=False, command=["test"])
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(folder.path)],
        env={**environ, **alone, "TRITON_INTERPRET": os.environ.get("TRITON_INTERPRET", "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "optimizer", [{"kind": "adam"}, pytest.param({"kind": "sgd", "momentum": 0.9}, marks=pytest.mark.slow)]
)
def test_a_rank_imports_what_it_needs(planned, environ, tmp_path: Path, optimizer):
    modules = imported(RunFolder.create(planned("one", optimizer={**optimizer, "lr": 0.01}), tmp_path), environ)
    assert not NEVER & modules
    assert {name for name in modules if name.startswith("graphmill.tasks.") and name.endswith(".page")} == {
        "graphmill.tasks.node_classification.page"
    }
    assert len([name for name in modules if name.startswith("graphmill.")]) <= MOST_OF_OURS


def test_a_rank_with_a_model_of_pyg_imports_no_compiler(planned, environ, tmp_path: Path):
    pytest.importorskip("torch_geometric")
    options = {"hidden_channels": 8, "num_layers": 2}
    model = {"kind": "custom", "target": "torch_geometric.nn.models.GCN", "options": options}
    modules = imported(RunFolder.create(planned("one", model=model), tmp_path), environ)
    assert "torch_geometric" in modules
    assert "torch._dynamo" not in modules
