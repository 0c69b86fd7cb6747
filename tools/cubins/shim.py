"""Compile the kernels for the CPU: a library that `graphmill.device.kernels.shim_kernels` loads.

    python tools/cubins/shim.py        # prints where it lies

It is compiled once for each state of its sources, into build/shim. $CXX: the compiler; $GRAPHMILL_SHIM_FLAGS: more
options, such as those of a sanitizer.
"""

import ctypes
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
NATIVE: Final = ROOT / "native"
SHIM: Final = ROOT / "native/device/shim.cpp"
# Draws by weight are the same on every processor: no product is fused with a sum.
_OPTIONS: Final = (
    "-std=c++20", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip


def shim_library(folder: Path = ROOT / "build" / "shim") -> Path:
    """The library, compiled if the sources are not those of a library there.

    Args:
        folder: where libraries are kept.

    Returns:
        Its path.

    Raises:
        subprocess.CalledProcessError: the sources do not compile; the compiler has said why.
    """
    compiler = os.environ.get("CXX", "c++")
    options = [*_OPTIONS, *os.environ.get("GRAPHMILL_SHIM_FLAGS", "").split()]
    files = sorted(path for folder in ("shared", "device") for path in (NATIVE / folder).glob("*.[ch]*"))
    content = "\0".join([compiler, *options, *(path.read_text(encoding="utf-8") for path in files)])
    library = folder / f"kernels-{hashlib.sha256(content.encode()).hexdigest()[:16]}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{library.name}.{os.getpid()}"
    subprocess.run([compiler, *options, "-I", NATIVE, "-o", unfinished, SHIM], check=True)
    return unfinished.rename(library)


def set_order(library: Path, order: int) -> None:
    """In which order blocks run: 0 ascending, 1 descending, else one that the number keys. For the whole process."""
    ctypes.CDLL(str(library)).graphmill_shim_set_order(ctypes.c_uint64(order))


if __name__ == "__main__":
    sys.stdout.write(f"{shim_library()}\n")
