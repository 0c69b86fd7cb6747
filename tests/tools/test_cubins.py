"""What is judged of kernels for GPUs, by what ptxas says of them; and the shim's library."""

import subprocess

import pytest

from cubins import build
from cubins.shim import shim_library

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'graphmill_meet' for 'sm_80'
ptxas info    : Function properties for graphmill_meet
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 21 registers, used 0 barriers, 432 bytes cmem[0]
ptxas info    : Compile time = 9.208 ms
ptxas info    : Compiling entry function 'graphmill_draw_weighted' for 'sm_100'
ptxas info    : Function properties for graphmill_draw_weighted
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 0 barriers, 40 bytes cumulative stack size
"""


def log(stack=0, stores=0, loads=0, registers=40) -> str:
    return LOG.format(stack=stack, stores=stores, loads=loads, registers=registers)


def test_what_ptxas_says_is_read():
    first, second = build.read_usage(log(stack=40, stores=76, loads=112))
    assert first == build.Usage("meet", 80, registers=21, stack=0, spilled=0)
    assert second == build.Usage("draw_weighted", 100, registers=40, stack=40, spilled=188)


def test_kernels_within_the_limits_are_summed_up_in_a_line():
    assert build.judge(build.read_usage(log())) == (
        "2 variants, no stack, nothing spilled, at most 40 registers (draw_weighted)"
    )


@pytest.mark.parametrize("beyond", [{"stack": 8}, {"stores": 4}, {"loads": 4}, {"registers": 41}])
def test_a_kernel_beyond_the_limits_is_refused_by_name(beyond):
    with pytest.raises(build.Refused, match="draw_weighted for 100") as refused:
        build.judge(build.read_usage(log(**beyond)))
    assert "meet" not in str(refused.value)


def test_words_that_say_nothing_are_refused():
    with pytest.raises(build.Refused, match="does not say"):
        build.read_usage("ptxas info: version of the future")


def test_registers_leave_three_quarters_of_the_warps():
    """65,536 registers; blocks of 256 threads; 64 warps at most."""
    blocks = 65_536 // (build.MOST_REGISTERS * 256)
    assert blocks * 256 / 32 / 64 == 0.75
    assert (65_536 // ((build.MOST_REGISTERS + 8) * 256)) * 256 / 32 / 64 < 0.75


def test_the_pinned_compiler_is_that_of_the_environment(tmp_path):
    nvcc = tmp_path / "lib/python3.11/site-packages/nvidia/cu13/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    (tmp_path / "requirements.txt").write_text(build.REQUIREMENTS.read_text())
    assert build.compiler(tmp_path) == nvcc


def test_a_compiler_that_fails_is_said_with_its_words(tmp_path, monkeypatch):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'no such architecture' >&2\nexit 3\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(build, "compiler", lambda: nvcc)
    assert build.main(["--output", str(tmp_path / "image")]) == 2
    assert not (tmp_path / "image").exists()


def test_the_shim_is_compiled_once_for_each_state_of_its_sources(tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho once >> "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    library = shim_library(tmp_path / "shim")
    assert shim_library(tmp_path / "shim") == library
    assert library.read_text() == "once\n"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    assert shim_library(tmp_path / "shim") == library
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(subprocess.CalledProcessError):
        shim_library(tmp_path / "shim")
