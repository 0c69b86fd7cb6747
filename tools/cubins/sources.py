"""Which files of native/device are compiled, and with what."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
NATIVE: Final = ROOT / "native"
KERNELS: Final = ROOT / "native/device/kernels.cu"  # by nvcc
SHIM: Final = ROOT / "native/device/shim.cpp"  # by the C++ compiler
STANDARD: Final = "-std=c++20"


def read_files() -> list[Path]:
    """All files that a build of the kernels reads."""
    return sorted([*(NATIVE / "shared").glob("*"), *(NATIVE / "device").glob("*.[ch]*")])
