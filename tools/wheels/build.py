"""Build graphmill's wheels, with zig as the compiler: no container, and no compiler of this machine.

    python tools/wheels/build.py                                  # every wheel, into dist, with SHA256SUMS
    python tools/wheels/build.py --arch x86_64 --python 3.11      # one of them

What is made lies in build/wheels: environments with the pinned tools, headers, zig's cache. Standard library only, so
that any Python from 3.11 on runs it. Why the wheels are as they are: tools/wheels/README.md.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "wheels"
ARCHITECTURES = ("x86_64", "aarch64")
PYTHONS = ("3.11", "3.12")  # 3.12 stands for all later ones: the stable ABI of nanobind begins there
GLIBC = (2, 28)  # RHEL 8, and the manylinux policy of PyPI for it
HEADERS = (2, 42)  # of glibc, as zig has them: where it makes them out to be older ones, nvcc's do not fit with them
MOST_BYTES = 8 << 20
KERNELS = "graphmill/device/kernels.fatbin"
TOOLS = ("ziglang", "auditwheel", "abi3audit", "wheel", "cmake", "ninja")
BACKEND = ("scikit-build-core", "nanobind")


class Refused(Exception):  # noqa: N818 - what was asked cannot be had; the message says what to type
    """A wheel cannot be built here, or is not what it must be."""


@dataclass(frozen=True)
class Target:
    """What a wheel is for: a Python version ("3.11") and a processor architecture, as Linux names it."""

    python: str
    arch: str

    @property
    def tags(self) -> str:
        """The tags in the wheel's name: cp311-cp311-manylinux_2_28_x86_64."""
        interpreter = "cp" + self.python.replace(".", "")
        abi = "abi3" if self.is_stable else interpreter
        return f"{interpreter}-{abi}-{platform_tag(self.arch)}"

    @property
    def is_stable(self) -> bool:
        """Whether later Pythons run the wheel as well."""
        return numbers(self.python) >= (3, 12)

    @property
    def suffix(self) -> str:
        """How the module's file ends where there is no stable ABI; Python imports no other ending."""
        return f".cpython-{self.python.replace('.', '')}-{self.arch}-linux-gnu.so"


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, to be compared: (3, 11)."""
    return tuple(int(part) for part in version.split("."))


def platform_tag(arch: str) -> str:
    """The platform tag of wheels for an architecture: manylinux_2_28_x86_64."""
    return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}"


def is_within(tag: str, arch: str) -> bool:
    """Whether a wheel that auditwheel gives this tag runs wherever ours says that it does."""
    match = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag)
    return match is not None and match[3] == arch and (int(match[1]), int(match[2])) <= GLIBC


def toolchain(arch: str, programs: Path) -> str:
    """The CMake toolchain file of an architecture.

    Args:
        arch: the processor that the wheel is for.
        programs: the folder with the programs that `write_programs` wrote.

    Returns:
        The text of the file.
    """
    return "\n".join(
        [
            "set(CMAKE_SYSTEM_NAME Linux)",
            f"set(CMAKE_SYSTEM_PROCESSOR {arch})",
            f'set(CMAKE_CXX_COMPILER "{programs / "c++"}")',
            f'set(CMAKE_AR "{programs / "ar"}")',
            f'set(CMAKE_RANLIB "{programs / "ranlib"}")',
            # nanobind writes to stderr: with the stable ABI Python.h leaves <stdio.h> out, and zig's libc++ does not
            # bring it along as libstdc++ does.
            'set(CMAKE_CXX_FLAGS_INIT "-include stdio.h")',
            "",
        ]
    )


def checksums(files: Iterable[Path]) -> str:
    """What `sha256sum --check` reads: a line for each file, by name."""
    named = sorted((path.name, path) for path in files)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in named)


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Run a program to its end.

    Returns:
        Its standard output.

    Raises:
        Refused: it failed; the message holds what it wrote.
    """
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=env, text=True, capture_output=True, check=False)
    if done.returncode:
        written = (done.stdout + done.stderr)[-6000:]
        raise Refused(f"{shlex.join(map(str, command))} failed with status {done.returncode}:\n{written}")
    return done.stdout


def environment(name: str, python: str, packages: Sequence[str]) -> Path:
    """A virtual environment in build/wheels with pinned packages, made once for each version of constraints.txt.

    Args:
        name: of the folder.
        python: the interpreter.
        packages: what to install.

    Returns:
        Its folder of programs.
    """
    folder = WORK / name
    stamp = folder / "constraints.txt"
    wanted = (ROOT / "constraints.txt").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"== {folder.relative_to(ROOT)}: {' '.join(packages)}")
        run(python, "-m", "venv", "--clear", folder)
        run(folder / "bin" / "pip", "install", "-qq", "-c", "constraints.txt", *packages)
        stamp.write_text(wanted)
    return folder / "bin"


def find_python(version: str) -> str:
    """An interpreter that can build for a Python version.

    Args:
        version: "3.11": exactly that one; from "3.12" on any later one too, because the wheel has the stable ABI.

    Returns:
        Its path. It has C headers and the module venv.

    Raises:
        Refused: there is none on PATH, nor among the versions of pyenv.
    """
    major, minor = numbers(version)
    minors = range(minor, minor + 10) if Target(version, "").is_stable else [minor]
    names = [f"python{major}.{number}" for number in minors]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for name in names:
        for candidate in [shutil.which(name), *sorted(map(str, pyenv.glob(f"*/bin/{name}")), reverse=True)]:
            if candidate and has_headers(candidate):
                return candidate
    wanted = f"{names[0]} or later" if len(names) > 1 else names[0]
    raise Refused(
        f"a wheel for Python {version} is built by {wanted} with headers and venv, and none is on PATH or in pyenv. "
        f"→ apt-get install {names[0]}-dev {names[0]}-venv, or pyenv install {version}"
    )


def has_headers(python: str) -> bool:
    """Whether an interpreter starts, has C headers and can make virtual environments."""
    code = "import ensurepip, os, sysconfig, venv; os.stat(sysconfig.get_path('include') + '/Python.h')"
    return not subprocess.run([python, "-c", code], capture_output=True, check=False).returncode


def copy_headers(python: str, version: str) -> Path:
    """The headers of an interpreter, in a folder of their own.

    They serve both architectures. Only pyconfig.h depends on the processor, and what extension modules read of it is
    sizes of types, which x86-64 and aarch64 Linux share (LP64); its x87 entries are for building the interpreter.
    Debian's pyconfig.h includes another one by its architecture, out of /usr/include, where zig does not look: the one
    that it means takes its place.

    Returns:
        The folder.
    """
    code = "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_config_var('MULTIARCH'), sep='\\n')"
    include, multiarch = run(python, "-c", code).splitlines()
    folder = WORK / f"headers-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(include, folder)
    by_architecture = Path(include).parent / multiarch / Path(include).name / "pyconfig.h"
    if by_architecture.exists():
        shutil.copy(by_architecture, folder / "pyconfig.h")
    return folder


def write_programs(arch: str, tools: Path) -> Path:
    """Programs by which CMake calls zig, and the toolchain file that names them.

    Args:
        arch: the processor to compile for.
        tools: the folder of programs of the environment with ziglang.

    Returns:
        The folder that they are in.
    """
    folder = WORK / arch
    folder.mkdir(parents=True, exist_ok=True)
    zig = f"exec {shlex.quote(str(tools / 'python'))} -m ziglang"
    target = f"{arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    for name, call in {"c++": f"c++ -target {target}", "ar": "ar", "ranlib": "ranlib"}.items():
        (folder / name).write_text(f'#!/bin/sh\n{zig} {call} "$@"\n')
        (folder / name).chmod(0o755)
    (folder / "toolchain.cmake").write_text(toolchain(arch, folder))
    return folder


def kernel_image(tools: Path) -> Path:
    """The kernels for GPUs, which every wheel holds, whatever its processor: tools/cubins/build.py.

    Args:
        tools: the folder of programs of the environment with ziglang: zig is the compiler that nvcc calls.

    Returns:
        The image.

    Raises:
        Refused: they cannot be compiled here, or are not what they must be.
    """
    image, host = WORK / "kernels.fatbin", WORK / "nvcc" / "clang++"  # nvcc knows compilers by their names
    host.parent.mkdir(parents=True, exist_ok=True)
    target = f"{os.uname().machine}-linux-gnu.{HEADERS[0]}.{HEADERS[1]}"
    host.write_text(f'#!/bin/sh\nexec {shlex.quote(str(tools / "python"))} -m ziglang c++ -target {target} "$@"\n')
    host.chmod(0o755)
    environ = {**os.environ, "CXX": str(host), "ZIG_GLOBAL_CACHE_DIR": str(WORK / "zig-cache")}
    print(run(sys.executable, ROOT / "tools" / "cubins" / "build.py", "--output", image, env=environ).strip())
    return image


def build(target: Target, tools: Path, image: Path, output: Path) -> Path:
    """Build one wheel.

    Args:
        target: what it is for.
        tools: the folder of programs of the environment with zig, CMake and Ninja.
        image: the kernels for GPUs.
        output: the folder that it goes to.

    Returns:
        Its path.

    Raises:
        Refused: the build failed.
    """
    python = find_python(target.python)
    backend = environment(f"backend-{target.python}", python, BACKEND)
    toolchain_file = write_programs(target.arch, tools) / "toolchain.cmake"
    environ = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "ZIG_GLOBAL_CACHE_DIR": str(WORK / "zig-cache"),
        "CMAKE_TOOLCHAIN_FILE": str(toolchain_file),
        "CMAKE_GENERATOR": "Ninja",
        # By these two scikit-build-core learns which machine it builds for: they become names of the wheel and in it.
        "_PYTHON_HOST_PLATFORM": f"linux-{target.arch}",
        "SETUPTOOLS_EXT_SUFFIX": target.suffix,
    }
    for ours in ("CXX", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS"):
        environ.pop(ours, None)
    folder = WORK / target.tags
    settings = [
        f"cmake.define.Python_INCLUDE_DIR={copy_headers(python, target.python)}",
        f"cmake.define.GRAPHMILL_KERNELS={image}",
        f"build-dir={folder / 'build'}",
    ]
    for old in [*folder.glob("*.whl"), *output.glob(f"graphmill-*-{target.tags}.whl")]:
        old.unlink()
    quiet = ("-qq", "--no-deps", "--no-build-isolation")
    options = [word for setting in settings for word in ("-C", setting)]
    run(backend / "python", "-m", "pip", "wheel", *quiet, *options, "-w", folder, ".", env=environ)
    return renamed(folder, target, tools, output)


def renamed(folder: Path, target: Target, tools: Path, output: Path) -> Path:
    """Give a wheel that was built for `linux` the platform that `check` holds it to.

    Args:
        folder: where the wheel lies, and no other.
        target: what it is for.
        tools: the folder of programs of the environment with the program wheel.
        output: the folder that it goes to.

    Returns:
        Its new path.

    Raises:
        Refused: it has other tags than it was to be built with.
    """
    name = run(tools / "wheel", "tags", "--remove", "--platform-tag", platform_tag(target.arch), *folder.glob("*.whl"))
    made = folder / name.strip()
    if not made.name.endswith(f"-{target.tags}.whl"):
        raise Refused(f"the build made {made.name}, which does not have the tags {target.tags}")
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(made, output / made.name))


def check(wheel: Path, target: Target, tools: Path) -> str:
    """Judge a wheel: its size, what it asks of the system, and what of Python.

    Args:
        wheel: the file.
        target: what it is for.
        tools: the folder of programs of the environment with auditwheel and abi3audit.

    Returns:
        What was found, in words.

    Raises:
        Refused: it has no kernels for GPUs, is too large, would not run where its name says, or leaves the stable ABI.
    """
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        raise Refused(f"{wheel.name} has {size / 2**20:.2f} MiB, more than {MOST_BYTES / 2**20:.0f} MiB")
    if KERNELS not in zipfile.ZipFile(wheel).namelist():
        raise Refused(f"{wheel.name} has no kernels for GPUs: {KERNELS} is not in it")
    seen = json.loads(run(tools / "auditwheel", "show", "--json", wheel))
    if not is_within(seen["overall_tag"], target.arch):
        raise Refused(f"{wheel.name} is {seen['overall_tag']} by auditwheel, not {platform_tag(target.arch)}: {seen}")
    if target.is_stable:
        run(tools / "abi3audit", "--strict", wheel)
    newest = newest_of_glibc(name for names in seen["versioned_symbols"].values() for name in names)
    return f"{size / 2**20:.2f} MiB, {seen['overall_tag']} by auditwheel, newest symbol {newest}"


def newest_of_glibc(symbols: Iterable[str]) -> str:
    """The newest version of glibc among versions of symbols, as auditwheel names them: GLIBC_2.18."""
    versions = [numbers(name.removeprefix("GLIBC_")) for name in symbols if re.fullmatch(r"GLIBC_[\d.]+", name)]
    return "GLIBC_" + ".".join(map(str, max(versions))) if versions else "none of glibc"


def build_all(targets: Sequence[Target], output: Path) -> list[Path]:
    """Build and judge wheels, with what was found of each printed.

    Args:
        targets: what they are for.
        output: the folder that they go to; SHA256SUMS there lists all wheels in it.

    Returns:
        Their paths.

    Raises:
        Refused: the tools cannot be installed, or a wheel cannot be built or is not what it must be.
    """
    for version in {target.python for target in targets}:
        find_python(version)  # before minutes are spent on others
    tools = environment("tools", sys.executable, TOOLS)
    image = kernel_image(tools)
    made = []
    for target in targets:
        began = time.monotonic()
        wheel = build(target, tools, image, output)
        print(f"{wheel.name}: {check(wheel, target, tools)}, built in {time.monotonic() - began:.0f} s", flush=True)
        made.append(wheel)
    (output / "SHA256SUMS").write_text(checksums(output.glob("*.whl")))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The program.

    Args:
        arguments: of the command line.

    Returns:
        The exit status: 0, or 2 where a wheel cannot be built here.
    """
    parser = argparse.ArgumentParser(description="Build graphmill's wheels.")
    parser.add_argument("--arch", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--python", nargs="+", choices=PYTHONS, default=PYTHONS)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder for them (default: dist)")
    parser.add_argument(
        "--tools", action="store_true", help="only the tools and the kernels: whether wheels can be built here"
    )
    asked = parser.parse_args(arguments)
    try:
        if asked.tools:
            kernel_image(environment("tools", sys.executable, TOOLS))
        else:
            build_all([Target(python, arch) for arch in asked.arch for python in asked.python], asked.output.resolve())
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
