"""Wheels: their names, what is judged of them, checksums. `make try-wheel` builds one and runs it."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.tags import Tag, sys_tags
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from wheels import build, try_wheel
from wheels.build import Refused, Target

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("target", "tags"),
    [
        (Target("3.11", "x86_64"), "cp311-cp311-manylinux_2_28_x86_64"),
        (Target("3.11", "aarch64"), "cp311-cp311-manylinux_2_28_aarch64"),
        (Target("3.12", "x86_64"), "cp312-abi3-manylinux_2_28_x86_64"),
        (Target("3.12", "aarch64"), "cp312-abi3-manylinux_2_28_aarch64"),
    ],
)
def test_tags_are_those_that_pip_reads(target, tags):
    assert target.tags == tags
    _, version, _, read = parse_wheel_filename(f"graphmill-0.1.0-{target.tags}.whl")
    assert version == Version("0.1.0")
    assert read == {Tag(*tags.split("-"))}


@pytest.mark.skipif(os.uname().machine not in build.ARCHITECTURES, reason="no wheel for this processor")
def test_this_python_takes_one_of_the_wheels():
    ours = {tag for name in build.PYTHONS for tag in [Target(name, os.uname().machine).tags]}
    assert len(ours & {str(tag) for tag in sys_tags()}) >= 1


def test_a_module_for_one_python_ends_as_that_python_looks_for():
    target = Target(f"{sys.version_info.major}.{sys.version_info.minor}", os.uname().machine)
    assert target.suffix == sysconfig.get_config_var("EXT_SUFFIX")


def test_the_oldest_python_has_a_wheel_and_the_stable_one_is_that_of_the_project():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["requires-python"] == f">={build.PYTHONS[0]}"
    stable = [Target(name, "x86_64").tags.split("-")[0] for name in build.PYTHONS if Target(name, "").is_stable]
    assert stable == [settings["tool"]["scikit-build"]["wheel"]["py-api"]]


@pytest.mark.parametrize(
    ("tag", "fits"),
    [
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_17_x86_64", True),
        ("manylinux_2_5_x86_64", True),
        ("manylinux_2_31_x86_64", False),
        ("manylinux_3_0_x86_64", False),
        ("manylinux_2_28_aarch64", False),
        ("musllinux_1_2_x86_64", False),
        ("linux_x86_64", False),
    ],
)
def test_what_auditwheel_may_say(tag, fits):
    assert build.is_within(tag, "x86_64") is fits


def test_versions_of_symbols_are_compared_as_numbers():
    assert (
        build.newest_of_glibc(["GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.18", "GLIBC_PRIVATE", "CXXABI_1.3"]) == "GLIBC_2.18"
    )
    assert build.newest_of_glibc(["CXXABI_1.3"]) == "none of glibc"


def test_checksums_are_those_of_sha256sum(tmp_path):
    for name in ("b.whl", "a.whl"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    written = build.checksums(tmp_path.glob("*.whl"))
    assert written.splitlines()[0] == f"{hashlib.sha256(b'a.whl' * 1000).hexdigest()}  a.whl"
    assert [line.split()[1] for line in written.splitlines()] == ["a.whl", "b.whl"]
    (tmp_path / "SHA256SUMS").write_text(written)
    if shutil.which("sha256sum"):
        assert not subprocess.run(
            ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=False
        ).returncode


def test_cmake_is_told_the_processor_and_the_compiler(tmp_path):
    programs = build.toolchain("aarch64", tmp_path)
    assert "set(CMAKE_SYSTEM_PROCESSOR aarch64)" in programs
    assert f'set(CMAKE_CXX_COMPILER "{tmp_path}/c++")' in programs


def test_the_compiler_is_zig_for_the_old_glibc(tmp_path, monkeypatch):
    tools = tmp_path / "tools with a space"
    tools.mkdir()
    (tools / "python").write_text('#!/bin/sh\necho "$@"\n')
    (tools / "python").chmod(0o755)
    monkeypatch.setattr(build, "WORK", tmp_path)
    programs = build.write_programs("aarch64", tools)
    said = subprocess.run([programs / "c++", "-c", "a b.cpp"], text=True, capture_output=True, check=True).stdout
    assert said == "-m ziglang c++ -target aarch64-linux-gnu.2.28 -c a b.cpp\n"


def test_a_wheel_that_is_too_large_is_refused(tmp_path):
    wheel = tmp_path / f"graphmill-0.1.0-{Target('3.11', 'x86_64').tags}.whl"
    with wheel.open("wb") as file:
        file.truncate(build.MOST_BYTES + 1)
    with pytest.raises(Refused, match="8 MiB"):
        build.check(wheel, Target("3.11", "x86_64"), tmp_path)


def test_a_python_that_is_not_there_is_said_with_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(Refused, match=r"python3\.12 or later.*→ apt-get install python3\.12-dev"):
        build.find_python("3.12")


def test_a_later_python_builds_the_stable_wheel(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    (tmp_path / "python3.14").symlink_to(sys.executable)
    monkeypatch.setattr(build, "has_headers", lambda python: Path(python).name == "python3.14")
    assert build.find_python("3.12") == str(tmp_path / "python3.14")
    with pytest.raises(Refused):
        build.find_python("3.11")


def test_a_compiler_on_the_path_is_noticed(tmp_path):
    assert try_wheel.clean_environ(tmp_path)["PATH"] == str(tmp_path)
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o755)
    with pytest.raises(SystemExit, match=r"g\+\+"):
        try_wheel.clean_environ(tmp_path)
