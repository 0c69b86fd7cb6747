"""Install a wheel where there is no compiler, train with it, load for PyG's layers, and run tests of its native core.

    python tools/wheels/try_wheel.py dist/graphmill-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl [--with torch==2.8.0]

The Python that runs this is the one that is tried: a clean environment of it, build/wheels/try, gets the wheel, what it
requires, PyG and pytest. PATH is the environment's own programs and nothing else.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "wheels" / "try"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "zig")
TEST_TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
# What the tests are run from: no src, so that what they import is the wheel's.
COPIED = ("pyproject.toml", "tests/conftest.py", "tests/plugins", "tests/native")
# Of the sources of native/, which are no part of a wheel.
LEFT_OUT = ("--ignore", "tests/native/test_sources.py")

EXPERIMENT = """\
name: tried
dataset: {name: synthetic/sbm}
model: {hidden_channels: 8}
train: {epochs: 2, batch_size: 60, num_neighbors: [4, 4], threads: 1}
"""

# A person's own script of PyG: its data and layer, graphmill's loader.
LOADER = """\
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv
import graphmill

generator = torch.Generator().manual_seed(0)
edges = torch.randint(0, 300, (2, 1500), generator=generator)
data = Data(x=torch.randn(300, 8, generator=generator), edge_index=edges, y=torch.arange(300) % 3)
layer = SAGEConv(8, 3)
seeds = 0
for batch in graphmill.NeighborLoader(data, num_neighbors=[4, 4], batch_size=64, shuffle=True, seed=0):
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(edges[:, batch.e_id], batch.n_id[batch.edge_index])
    out = layer(batch.x, batch.edge_index)[: batch.batch_size]
    torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
    seeds += batch.batch_size
assert seeds == 300
print("graphmill.NeighborLoader: batches for PyG's layer")
"""


def call(*command: str | Path, env: Mapping[str, str], cwd: Path) -> None:
    """Run a program, with what it writes shown.

    Raises:
        SystemExit: it failed.
    """
    print("+", *(str(word).removeprefix(f"{ROOT}/") for word in command), flush=True)
    status = subprocess.run([*map(str, command)], env=env, cwd=cwd, check=False).returncode
    if status:
        raise SystemExit(f"that failed with status {status}")


def clean_environ(programs: Path) -> dict[str, str]:
    """The environment of a process that finds its own programs, and no compiler.

    Args:
        programs: the only folder on PATH.

    Raises:
        SystemExit: there is a compiler in it.
    """
    there = [name for name in COMPILERS if shutil.which(name, path=str(programs))]
    if there:
        raise SystemExit(f"{programs} holds {', '.join(there)}: this would not show that none is needed")
    left_out = ("PYTHONPATH", "CC", "CXX", "GRAPHMILL_ISA", "GRAPHMILL_NATIVE")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "PATH": str(programs), "VIRTUAL_ENV": str(programs.parent), "OMP_WAIT_POLICY": "PASSIVE"}


def copied_tests(folder: Path) -> Path:
    """Copy the tests into a folder without the sources of graphmill, and return it."""
    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    return folder


def try_wheel(wheel: Path, packages: Sequence[str], is_pinned: bool) -> None:
    """Install, train, load, test.

    Args:
        wheel: the file.
        packages: other packages to install with it.
        is_pinned: whether the versions of constraints.txt are taken.

    Raises:
        SystemExit: one of these failed.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    programs, work = FOLDER / "venv" / "bin", FOLDER / "work"
    work.mkdir(parents=True)
    call(sys.executable, "-m", "venv", programs.parent, env=os.environ, cwd=ROOT)
    environ = clean_environ(programs)
    pins = ("-c", ROOT / "constraints.txt") if is_pinned else ()
    # Nothing may be compiled on the way: what has no wheel is not taken.
    wheels_only = ("--only-binary", ":all:", "-qq", "--disable-pip-version-check")
    wanted = (f"{wheel}[pyg]", *packages, *TEST_TOOLS)
    call(programs / "pip", "install", *wheels_only, *pins, *wanted, env=environ, cwd=work)
    code = "import torch, graphmill._native as n; print(f'torch {torch.__version__}, {n.__file__}, kernels {n.isa()}')"
    call(programs / "python", "-c", code, env=environ, cwd=work)
    (work / "tried.yaml").write_text(EXPERIMENT)
    options = ("-o", "num_nodes=300", "-o", "num_edges=1500", "-o", "features=8")
    call(programs / "graphmill", "prepare", "synthetic/sbm", *options, env=environ, cwd=work)
    call(programs / "graphmill", "train", "tried.yaml", "--ranks", "2", "--run-id", "tried", env=environ, cwd=work)
    call(programs / "graphmill", "verify", "tried", env=environ, cwd=work)
    (work / "loader.py").write_text(LOADER)
    call(programs / "python", "loader.py", env=environ, cwd=work)
    # A plugin of the tests imports devcluster, which is Python alone.
    beside = {**environ, "PYTHONPATH": str(ROOT / "tools" / "devcluster")}
    call(programs / "python", "-m", "pytest", "tests/native", *LEFT_OUT, env=beside, cwd=copied_tests(FOLDER / "tests"))


def main() -> int:
    """The program: exit status 0 where the wheel works."""
    parser = argparse.ArgumentParser(description="Install and try a wheel where there is no compiler.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--with", dest="packages", nargs="+", default=[], help="other packages, as torch==2.8.0")
    parser.add_argument(
        "--unpinned", action="store_true", help="take the newest versions, not those of constraints.txt"
    )
    asked = parser.parse_args()
    try_wheel(asked.wheel.resolve(), asked.packages, not asked.unpinned)
    print(f"{asked.wheel.name} works with Python {sys.version.split()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
