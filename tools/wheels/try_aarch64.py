"""Run tests of the native core of an aarch64 wheel on another processor, under qemu.

    apt-get install qemu-user-static
    python tools/wheels/try_aarch64.py dist/graphmill-0.1.0-cp311-cp311-manylinux_2_28_aarch64.whl

Debian's Python of that architecture comes from its packages, what graphmill requires from wheels; both lie in
build/wheels/aarch64, and nothing is installed in this system. qemu is slow. For cp311 only, the Python of Debian
12.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from try_wheel import LEFT_OUT, ROOT, TEST_TOOLS, call, copied_tests

FOLDER = ROOT / "build" / "wheels" / "aarch64"
QEMU = "qemu-aarch64-static"
DEBIAN = (
    "python3.11",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "libexpat1",
    "zlib1g",
    "libssl3",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libsqlite3-0",
    "libncursesw6",
    "libtinfo6",
    "libreadline8",
    "libuuid1",
    "libcrypt1",
    "libgomp1",
)
TORCH = "torch==2.9.1"  # PyPI's later ones for aarch64 want CUDA, gigabytes of it
OF_TORCH = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions")
STARTS_PYTHON = ("--ignore", "tests/native/test_isa.py", "-k", "not instruction_set")
NO_PINS = ("torch", "triton", "nvidia", "cuda")


def system() -> Path:
    """Unpack Python and its libraries from Debian's packages, and return the folder that is their root."""
    root, packages, lists = FOLDER / "root", FOLDER / "packages", FOLDER / "lists"
    if (root / "usr/bin/python3.11").exists():
        return root
    for each in (packages, lists / "partial"):
        each.mkdir(parents=True, exist_ok=True)
    options = ("-o", "APT::Architectures=amd64,arm64", "-o", f"Dir::State::Lists={lists}", "-qq")
    call("apt-get", *options, "update", env=os.environ, cwd=packages)
    call("apt-get", *options, "download", *(f"{name}:arm64" for name in DEBIAN), env=os.environ, cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        call("dpkg", "-x", package, root, env=os.environ, cwd=packages)
    return root


def requirements(wheel: Path) -> list[str]:
    """What a wheel requires without its extras, as pip takes it; not torch."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    found = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [each for each in found if "extra ==" not in each and not re.match(r"torch\b", each)]


def site(wheel: Path) -> Path:
    """Install the wheel and what it requires, for aarch64, into a folder, and return it."""
    folder, pins = FOLDER / "site", FOLDER / "constraints.txt"
    shutil.rmtree(folder, ignore_errors=True)
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins.write_text("\n".join(line for line in lines if not line.startswith(NO_PINS)) + "\n")
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (36, 34, 28, 27, 17)]
    wheels_of = (*platforms, "--platform=manylinux2014_aarch64", "--python-version=3.11", "--only-binary=:all:")
    pip: tuple[str | Path, ...] = (sys.executable, "-m", "pip", "install", "-qq", *wheels_of, "--target", folder)
    call(*pip, "-c", pins, *requirements(wheel), *OF_TORCH, *TEST_TOOLS, env=os.environ, cwd=FOLDER)
    call(*pip, "--no-deps", TORCH, wheel, env=os.environ, cwd=FOLDER)
    return folder


def main() -> int:
    """The program: exit status 0 where the tests pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("tests", nargs="*", default=["tests/native"], help="which; all native ones unless given")
    asked = parser.parse_args()
    missing = [name for name in (QEMU, "apt-get", "dpkg") if shutil.which(name) is None]
    if missing or "-cp311-" not in asked.wheel.name or not asked.wheel.name.endswith("_aarch64.whl"):
        raise SystemExit(
            f"{', '.join(missing)}: not here. → on Debian 12: apt-get install qemu-user-static"
            if missing
            else f"{asked.wheel.name} is not for aarch64 and cp311. → make dist, and give that one"
        )
    wheel, root = asked.wheel.resolve(), system()
    python = (QEMU, "-L", root, root / "usr/bin/python3.11")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (site(wheel), ROOT / "tools" / "devcluster")))}
    code = "import graphmill._native as n, platform; print(platform.machine(), n.__file__, n.isa())"
    call(*python, "-c", code, env=environ, cwd=FOLDER)
    # No time limit, no test that forks, and none that starts a Python: qemu is slow, a child of several threads has
    # one, and this system does not know how to start a program of that architecture.
    options = ("-m", "not slow and not forks", "--timeout", "0", "-p", "no:cacheprovider", *STARTS_PYTHON)
    tests = copied_tests(FOLDER / "tests")
    subprocess.run(
        [*map(str, python), "-m", "pytest", *asked.tests, *LEFT_OUT, *options], env=environ, cwd=tests, check=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
