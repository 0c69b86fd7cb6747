"""Compile the kernels of native/device for GPUs, and judge what ptxas made of them. No driver and no GPU is needed.

    python tools/cubins/build.py                       # src/graphmill/device/kernels.fatbin, which a checkout then uses
    python tools/cubins/build.py --cubins build/sass   # and a cubin for each architecture, for other tools to read

NVIDIA's compiler comes from PyPI (requirements.txt) into build/cubins, once; the C++ compiler that it calls for its
preprocessor is $CXX or g++. The image holds machine code for compute capability 8.0, 9.0 and 10.0, and PTX, which
drivers compile for what is newer. Refused is what has a stack, spills, uses more registers than leave three quarters of
all warps resident, or is too large. Standard library only, so that any Python from 3.11 on runs it.
"""

import argparse
import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
KERNELS: Final = ROOT / "native/device/kernels.cu"
IMAGE: Final = ROOT / "src/graphmill/device/kernels.fatbin"
TOOLS: Final = ROOT / "build/cubins"
REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
ARCHITECTURES: Final = (80, 90, 100)
# No product is fused with a sum: draws by weight are the CPU's to the bit.
OPTIONS: Final = ("-std=c++20", "-O3", "--fmad=false", "-Xptxas", "-v", "-I", str(ROOT / "native"))
MOST_BYTES: Final = 1 << 20
# 65,536 registers of a multiprocessor for 48 of its 64 warps of 32 threads, given out by eights.
MOST_REGISTERS: Final = 40
_USAGE: Final = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for 'sm_(?P<architecture>\d+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)


class Refused(Exception):  # noqa: N818 - what was asked cannot be had; the message says what to type
    """The kernels cannot be compiled here, or are not what they must be."""


@dataclass(frozen=True)
class Usage:
    """What ptxas gave a kernel on one architecture; bytes and registers of a thread."""

    name: str
    architecture: int
    registers: int
    stack: int
    spilled: int

    @property
    def is_right(self) -> bool:
        """Whether nothing lies in local memory, and three quarters of all warps are resident."""
        return self.registers <= MOST_REGISTERS and self.stack == 0 and self.spilled == 0


def read_usage(log: str) -> list[Usage]:
    """What `ptxas -v` says of each kernel.

    Raises:
        Refused: it says nothing, as of a version that writes otherwise.
    """
    found = [
        Usage(
            name=match["name"].removeprefix("graphmill_"),
            architecture=int(match["architecture"]),
            registers=int(match["registers"]),
            stack=int(match["stack"]),
            spilled=int(match["stores"]) + int(match["loads"]),
        )
        for match in _USAGE.finditer(log)
    ]
    if not found:
        raise Refused(f"ptxas does not say what kernels use:\n{log[-2000:]}")
    return found


def judge(usages: Sequence[Usage]) -> str:
    """One line on all kernels.

    Raises:
        Refused: one of them is not right; the message names all that are not.
    """
    wrong = [
        f"{usage.name} for {usage.architecture}: {usage.registers} registers, {usage.stack} bytes of stack, "
        f"{usage.spilled} spilled"
        for usage in usages
        if not usage.is_right
    ]
    if wrong:
        raise Refused(f"at most {MOST_REGISTERS} registers, no stack, nothing spilled:\n" + "\n".join(wrong))
    most = max(usages, key=lambda usage: usage.registers)
    return f"{len(usages)} variants, no stack, nothing spilled, at most {most.registers} registers ({most.name})"


def compiler(folder: Path = TOOLS) -> Path:
    """nvcc of the pinned version; installed, if it is not there, by pip.

    Raises:
        Refused: it cannot be installed.
    """
    stamp, wanted = folder / "requirements.txt", REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        venv.create(folder, clear=True, with_pip=True)
        run(folder / "bin/python", "-m", "pip", "install", "-qq", "--no-deps", "-r", REQUIREMENTS)
        stamp.write_text(wanted, encoding="utf-8")
    found = sorted(folder.glob("lib/python*/site-packages/nvidia/cu*/bin/nvcc"))
    if not found:
        raise Refused(f"NVIDIA's packages have no nvcc in {folder}; remove that folder and try again")
    return found[0]


def run(*command: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a program to its end.

    Returns:
        What it wrote.

    Raises:
        Refused: it failed; the message holds what it wrote.
    """
    try:
        done = subprocess.run([*map(str, command)], env=environment, text=True, capture_output=True, check=False)
    except OSError as error:
        raise Refused(f"{command[0]} cannot be started: {error}") from None
    if done.returncode:
        raise Refused(f"{command[0]} failed with status {done.returncode}:\n{(done.stdout + done.stderr)[-6000:]}")
    return done.stdout + done.stderr


def build(image: Path, cubins: Path | None = None) -> list[Usage]:
    """Compile for all architectures.

    Args:
        image: where the image goes; whole or not at all.
        cubins: a folder for a cubin of each architecture, or none.

    Returns:
        What ptxas gave each kernel on each architecture.

    Raises:
        Refused: a tool is missing or failed, or the image is too large.
    """
    nvcc = compiler()
    host = ("-ccbin", os.environ.get("CXX", "g++"))
    image.parent.mkdir(parents=True, exist_ok=True)
    unfinished = image.with_name(f"{image.name}.{os.getpid()}")
    codes = [
        word
        for number, of in enumerate(ARCHITECTURES)
        for word in ("-gencode", f"arch=compute_{of},code=[sm_{of}{f',compute_{of}' if number == 0 else ''}]")
    ]
    log = run(nvcc, *host, *OPTIONS, "-fatbin", "-Xfatbin", "-compress-all", *codes, "-o", unfinished, KERNELS)
    if unfinished.stat().st_size > MOST_BYTES:
        size = unfinished.stat().st_size
        unfinished.unlink()
        raise Refused(f"the image has {size} bytes, more than {MOST_BYTES}")
    unfinished.rename(image)
    if cubins is not None:
        cubins.mkdir(parents=True, exist_ok=True)
        for of in ARCHITECTURES:
            run(nvcc, *host, *OPTIONS, "-cubin", f"-arch=sm_{of}", "-o", cubins / f"kernels.sm_{of}.cubin", KERNELS)
    return read_usage(log)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program.

    Args:
        arguments: of the command line.

    Returns:
        The exit status: 0, 1 where a kernel is not right, or 2 where they cannot be compiled here.
    """
    parser = argparse.ArgumentParser(description="Compile the kernels of native/device for GPUs.")
    parser.add_argument("--output", type=Path, default=IMAGE, help=f"the image (default: {IMAGE.relative_to(ROOT)})")
    parser.add_argument("--cubins", type=Path, help="a folder for a cubin of each architecture as well")
    parser.add_argument("--table", action="store_true", help="say what each kernel uses")
    asked = parser.parse_args(arguments)
    try:
        usages = build(asked.output.resolve(), asked.cubins)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    for usage in usages if asked.table else ():
        print(f"{usage.name:24} sm_{usage.architecture:<4} {usage.registers:3} registers")
    try:
        print(f"{asked.output}: {asked.output.stat().st_size / 1024:.0f} KiB, {judge(usages)}")
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
