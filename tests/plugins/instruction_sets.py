"""Programs under each instruction set that this processor runs: a process has the kernels of one for its whole life.

Tests that are marked as `each_isa` run once more under each (tests/integration/test_instruction_sets.py).
"""

import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

NEEDED: Final = {
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}


def isas_here() -> list[str]:
    """Instruction sets of this processor by the system's account, the best last."""
    flags: set[str] = set()
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64" and cpuinfo.exists():
        line = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
        flags = set(line.split())
    return ["generic", *(isa for isa, needed in NEEDED.items() if needed <= flags)]


def python_on(isa: str | None, environ: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run python with these arguments under an instruction set; None: none is asked for."""
    environ = {name: value for name, value in environ.items() if name != "GRAPHMILL_ISA"}
    if isa is not None:
        environ["GRAPHMILL_ISA"] = isa
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True)


@pytest.fixture
def printed_on_each_isa(source_environ: dict[str, str]) -> Callable[..., dict[str, str]]:
    """Run python with these arguments under each instruction set that is here; what it printed under each."""

    def run(*arguments: str | Path) -> dict[str, str]:
        printed = {}
        for isa in isas_here():
            done = python_on(isa, source_environ, *arguments)
            assert done.returncode == 0, f"{isa}: {done.stderr}"
            printed[isa] = done.stdout
        return printed

    return run
