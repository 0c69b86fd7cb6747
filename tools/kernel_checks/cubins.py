"""From a Triton kernel to machine code without a driver, and what NVIDIA's tools say of it."""

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernel_checks.sass import Code, code_of

_USAGE = re.compile(r"Function (?P<name>[^:\s]+):\s+REG:(?P<reg>\d+) STACK:(?P<stack>\d+) SHARED:(?P<shared>\d+)")
_FORMAT = 4  # of what is cached: another one is made again


@dataclass(frozen=True)
class Variant:
    """A kernel as it is compiled once.

    `signature` names the type of each argument as Triton does ("*fp32", "i32", "constexpr"); what is not in it is a
    constant of `constants`. `useful` is the share of a program's lanes that a mask leaves, where that is known.
    """

    name: str
    kernel: Any  # triton.JITFunction
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    capability: int = 90  # 10 * major + minor
    options: Mapping[str, Any] = field(default_factory=dict)  # num_warps, num_stages
    is_aligned: bool = True  # pointers are multiples of 16 bytes, as torch's allocator gives them
    useful: float = 1.0


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas gave a function, and what its code holds."""

    function: str
    registers: int  # of a thread
    stack: int  # bytes of a thread
    shared: int  # bytes of a program
    warps: int
    code: Code


def compiled(variant: Variant) -> tuple[bytes, int, int]:
    """Compile for the variant's architecture; Triton keeps what it has compiled (`TRITON_CACHE_DIR`).

    Returns:
        The cubin, warps of a program, and bytes of shared memory that are asked for when it is started.

    Raises:
        RuntimeError: Triton's interpreter is on, which has replaced the compiler when the kernels were imported.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if os.environ.get("TRITON_INTERPRET") == "1":
        raise RuntimeError("TRITON_INTERPRET=1 leaves nothing to compile: unset it before the kernels are imported")
    names = variant.kernel.arg_names
    missing = [name for name in names if name not in variant.signature and name not in variant.constants]
    if missing:
        raise ValueError(f"{variant.name}: neither signature nor constants name {', '.join(missing)}")
    constants = {name: value for name, value in variant.constants.items() if name in names}
    signature = {name: "constexpr" if name in constants else variant.signature[name] for name in names}
    pointers = [at for at, of in enumerate(signature.values()) if of.startswith("*")]
    aligned = {(at,): [["tt.divisibility", 16]] for at in pointers} if variant.is_aligned else {}
    made = triton.compile(  # type: ignore[no-untyped-call]  # triton: unannotated
        ASTSource(variant.kernel, signature, constants, aligned),
        target=GPUTarget("cuda", variant.capability, 32),
        options=dict(variant.options),
    )
    return made.asm["cubin"], made.metadata.num_warps, made.metadata.shared


def resources_of(cubin: bytes, *, warps: int, dynamic_shared: int = 0) -> list[Resources]:
    """What `cuobjdump -res-usage` and `nvdisasm` say of each function of a cubin; kept in the cache.

    Args:
        cubin: machine code for one architecture.
        warps: of a program, as it will be started.
        dynamic_shared: bytes of shared memory that a start asks for beside what is compiled in.
    """
    place = _cache() / f"{hashlib.sha256(cubin).hexdigest()}-{_FORMAT}.json"
    if place.exists():
        functions = json.loads(place.read_text(encoding="utf-8"))
    else:
        functions = _asked(cubin)
        _put_whole(place, json.dumps(functions))
    return [
        Resources(
            each["function"], each["registers"], each["stack"], each["shared"] + dynamic_shared, warps,
            Code(**each["code"]),
        )
        for each in functions
    ]  # fmt: skip


def capability_of(cubin: Path) -> int:
    """The architecture that a cubin is for, as 10 * major + minor."""
    found = re.search(r"(?:EF_CUDA_SM|\.target\s+sm_)(\d+)", _told("nvdisasm", ["-c", str(cubin)]))
    if found is None:
        raise ValueError(f"{cubin} names no architecture: is it a cubin?")
    return int(found[1])


def _asked(cubin: bytes) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        usage = _told("cuobjdump", ["-res-usage", str(file)])
        codes = code_of(_told("nvdisasm", ["-c", str(file)]))
    found = [
        {
            "function": match["name"], "registers": int(match["reg"]), "stack": int(match["stack"]),
            "shared": int(match["shared"]), "code": asdict(codes[match["name"]]),
        }
        for match in _USAGE.finditer(re.sub(r"\n\s+REG", " REG", usage))
    ]  # fmt: skip
    if not found:
        raise ValueError(f"cuobjdump found no function: {usage[:500]}")
    return found


def _told(tool: str, arguments: Sequence[str]) -> str:
    """What a tool of Triton's wheel prints."""
    import triton

    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{tool} failed: {done.stderr.strip()}")
    return done.stdout


def _cache() -> Path:
    base = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    folder = Path(base) / "kernel_checks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _put_whole(place: Path, text: str) -> None:
    unfinished = place.with_name(f"{place.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(place)
