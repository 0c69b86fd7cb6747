"""The kernels that are chosen are the best that the processor, and the system that saves its registers, can run."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

NEEDED = {
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}


@pytest.fixture(scope="module")
def runs_here() -> list[str]:
    """Instruction sets of this processor by the kernel's account, the best last."""
    flags: set[str] = set()
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64" and cpuinfo.exists():
        line = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
        flags = set(line.split())
    return ["generic", *(isa for isa, needed in NEEDED.items() if needed <= flags)]


def chosen(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = "import graphmill._native as native; print(native.isa())"
    return subprocess.run([sys.executable, "-c", code], env=environ, check=False, capture_output=True, text=True)


def test_the_best_is_chosen(runs_here, source_environ):
    environ = {name: value for name, value in source_environ.items() if name != "GRAPHMILL_ISA"}
    assert chosen(environ).stdout.strip() == runs_here[-1]
    assert chosen({**environ, "GRAPHMILL_ISA": ""}).stdout.strip() == runs_here[-1]


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_one_that_is_asked_for_is_taken_or_refused(isa, runs_here, source_environ):
    done = chosen({**source_environ, "GRAPHMILL_ISA": isa})
    if isa in runs_here:
        assert done.stdout.strip() == isa
    else:
        assert done.returncode
        assert f"GRAPHMILL_ISA={isa}" in done.stderr
