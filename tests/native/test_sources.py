"""What must hold of the files of native/ themselves: each is a reason to build again, none is left out of the build."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for path in (ROOT / "native").rglob("*") if path.is_file() and path.name != "README.md")


def make(*arguments: str) -> str:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=ROOT, text=True, capture_output=True, check=True
    ).stdout


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A virtual environment as `make install` leaves it: its stamps, each newer than what it depends on."""
    others = [ROOT / name for name in ("CMakeLists.txt", "pyproject.toml", "tools/devcluster/pyproject.toml")]
    newest = max(path.stat().st_mtime for path in [*SOURCES, *others])
    for number, name in enumerate(["venv", "packages", "installed", "tools"]):
        stamp = tmp_path / f".graphmill-{name}"
        stamp.touch()
        os.utime(stamp, times=(newest + 10 + number, newest + 10 + number))
    return tmp_path


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_every_native_file_is_a_reason_to_build_again(installed: Path) -> None:
    nothing_changed = make("-n", f"VENV={installed}", "install")
    assert "pip install" not in nothing_changed
    for source in [*SOURCES, ROOT / "CMakeLists.txt"]:
        changed = make("-n", f"VENV={installed}", "-W", str(source.relative_to(ROOT)), "install")
        assert "pip install" in changed, source.name


def test_every_native_file_is_compiled_or_included() -> None:
    scripts = ("CMakeLists.txt", "tools/cubins/build.py", "tools/cubins/shim.py")
    builders = "".join((ROOT / path).read_text() for path in scripts)
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in SOURCES}
    included = {name for text in texts.values() for name in re.findall(r'#include "(.*)"', text)}
    for name in texts:
        if name.endswith((".cpp", ".cu")) and name not in included:
            assert name in builders, name
        else:
            assert {name.removeprefix("native/"), Path(name).name} & included, name


def compiled_kernels() -> list[Path]:
    return sorted((ROOT / "build").glob("cp*/CMakeFiles/kernels_*.dir/native/kernels/*.o"))


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
@pytest.mark.skipif(not compiled_kernels(), reason="the core was not built here")
def test_kernels_share_no_function_with_another_instruction_set() -> None:
    """The linker keeps one copy of an inline function: that of AVX-512 would end a process on another processor."""
    for path in compiled_kernels():
        isa = path.parts[-4].removeprefix("kernels_").removesuffix(".dir")
        table = subprocess.run(["nm", "-C", "--defined-only", path], text=True, capture_output=True, check=True).stdout
        shared = [line for line in table.splitlines() if re.match(r"\S+ [A-Zu-w] ", line)]
        assert shared, path
        assert all(re.match(rf"\S+ [DR] graphmill::{isa}::\w+$", line) for line in shared), (path, shared)


def test_native_files_are_in_the_pinned_form() -> None:
    program = Path(sys.executable).parent / "clang-format"
    if not program.exists():
        pytest.skip(f"{program} is not installed")
    pinned = next(
        line.partition("==")[2]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.startswith("clang-format==")
    )
    assert pinned in subprocess.run([program, "--version"], text=True, capture_output=True, check=True).stdout
    checked = subprocess.run([program, "--dry-run", "--Werror", *SOURCES], text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_files_and_lines_stay_readable() -> None:
    for path in SOURCES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert max(map(len, lines)) <= 120, path.name
        assert len(lines) <= (200 if path.name.startswith("bindings") else 400), path.name
