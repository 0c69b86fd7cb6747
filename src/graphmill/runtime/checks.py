"""What `doctor` looks at: what is there, and what would fail. Torch is queried in a separate process."""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final, Literal

from graphmill.base.json_text import parse_json
from graphmill.base.python import python_c
from graphmill.base.versions import installed_version
from graphmill.runtime.gpus import kernels_text, precisions_on
from graphmill.runtime.machine import UsableMachine, free_disk_bytes, machine_info

Result = Literal["ok", "warn", "fail"]

_GIB: Final = 1 << 30
_TORCH_TIMEOUT_S: Final = 120.0
_OPTIONAL: Final = {
    "torch-geometric": "models by dotted path and `pyg/…` datasets",
    "pyg-lib": "a peer of the sampler benchmark",
    "torch-sparse": "a peer of the sampler benchmark",
}
_ASK_TORCH: Final = """
import json, torch, torch.distributed as dist
there = dist.is_available()
bf16 = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: None)()
print(json.dumps({
    "version": torch.__version__, "threads": torch.get_num_threads(), "cuda": torch.cuda.is_available(),
    "devices": torch.cuda.device_count(), "gloo": there and dist.is_gloo_available(),
    "nccl": there and dist.is_nccl_available(), "bf16": bf16,
    "gpus": [{"name": torch.cuda.get_device_name(number), "capability": torch.cuda.get_device_capability(number)}
             for number in range(torch.cuda.device_count())],
}))
"""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of `doctor`."""

    name: str
    result: Result
    detail: str
    would_fail: str = ""  # what does not work, if the result is not ok


def examine(*, dataset_root: Path, logs_root: Path, environ: Mapping[str, str]) -> list[CheckResult]:
    """Look at everything; nothing is changed."""
    machine = machine_info(environ)
    return [
        _cores(machine),
        _memory(machine),
        *_torch(machine),
        _native(),
        *_packages(),
        _disk("dataset root", dataset_root, 2 * _GIB),
        _disk("logs root", logs_root, _GIB),
        _shared_memory(Path("/dev/shm")),
        _open_files(),
        _latex(),
        _clock(),
    ]


def _cores(machine: UsableMachine) -> CheckResult:
    others = machine.num_machine_cores - machine.num_cores
    cut = f", {others} more belong to others" if others else ""
    return CheckResult("cores", "ok", f"{machine.num_cores} ({machine.cpu_model}){cut}")


def _memory(machine: UsableMachine) -> CheckResult:
    total, free = machine.memory_bytes / _GIB, machine.available_bytes / _GIB
    detail = f"{free:.1f} GiB free of {total:.1f} GiB"
    if free < 2:
        return CheckResult("memory", "warn", detail, "a rank needs about 0.5 GiB on top of its batches")
    return CheckResult("memory", "ok", detail)


def _torch(machine: UsableMachine) -> Iterator[CheckResult]:
    facts, why = _ask_torch()
    if facts is None:
        yield CheckResult("torch", "fail", why, "train and evaluate; try `pip install torch`")
        return
    bf16 = "; bf16 is emulated on this CPU, and slow" if facts["bf16"] is False else ""
    yield CheckResult("torch", "ok", f"{facts['version']}{bf16}")
    backends = [name for name in ("gloo", "nccl") if facts[name]]
    lacks = "" if facts["gloo"] else "train with several ranks on CPUs"
    yield CheckResult("backends", "fail" if lacks else "ok", ", ".join(backends) or "none", lacks)
    yield _gpus(machine, facts)
    yield _attention_kernels(facts, installed_version("triton"))


def _gpus(machine: UsableMachine, facts: Mapping[str, Any]) -> CheckResult:
    if not machine.gpus:
        return CheckResult("gpus", "ok", "none; train.device=auto takes the CPU")
    names = ", ".join(f"{gpu.name} ({gpu.memory_mib} MiB)" for gpu in machine.gpus)
    detail = f"{machine.num_gpus}: {names}, driver {machine.gpus[0].driver}"
    if not facts["cuda"]:
        return CheckResult(
            "gpus", "warn", detail, "train.device=auto and cuda: this torch cannot use them; install a CUDA build"
        )
    if facts["devices"] != machine.num_gpus:
        return CheckResult(
            "gpus", "warn", detail, f"torch sees {facts['devices']} of them, so fewer ranks than planned start"
        )
    return CheckResult("gpus", "ok", detail)


def _attention_kernels(facts: Mapping[str, Any], triton: str | None) -> CheckResult:
    """Where `graphmill::attention` runs: natively on the CPU, by Triton on GPUs."""
    name = "attention kernels"
    detail = f"CPU: native, fp32; GPU: {'no Triton' if triton is None else f'Triton {triton}'}"
    old, without = [], []
    for gpu in facts["gpus"]:
        capability = tuple(gpu["capability"])
        detail += f"; {kernels_text(gpu['name'], capability)}"
        old += [] if precisions_on(capability) else [gpu["name"]]
        without += [] if "bf16" in precisions_on(capability) else [gpu["name"]]
    fix = "take model.attention=reference"
    if facts["gpus"] and triton is None:
        return CheckResult(name, "warn", detail, f"model.attention=fused on GPUs; `pip install triton`, or {fix}")
    if old:
        return CheckResult(name, "warn", detail, f"model.attention=fused on {', '.join(old)}; {fix}")
    if without:
        return CheckResult(
            name, "warn", detail, f"train.precision=bf16 with fused attention on {', '.join(without)}; {fix}"
        )
    return CheckResult(name, "ok", detail)


def _ask_torch() -> tuple[dict[str, Any] | None, str]:
    """Import torch in a separate process: it is slow, and it may crash."""
    if util.find_spec("torch") is None:
        return None, "not installed"
    try:
        done = subprocess.run(
            python_c(_ASK_TORCH), capture_output=True, text=True, timeout=_TORCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"did not import within {_TORCH_TIMEOUT_S:.0f} s"
    if done.returncode:
        return None, f"does not import: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    facts: dict[str, Any] = parse_json(done.stdout.splitlines()[-1])
    return facts, ""


def _native() -> CheckResult:
    lacks = "sampling, and so train and evaluate; build it with `pip install -e .` (or `make demo`)"
    try:
        from graphmill import _native
    except ImportError as error:
        return CheckResult("native core", "fail", f"does not load: {error}", lacks)
    isa = getattr(_native, "isa", None)
    return CheckResult("native core", "ok", f"loads; instruction set {isa()}" if isa else "loads")


def _packages() -> Iterator[CheckResult]:
    """Every package graphmill depends on, then what is optional."""
    for requirement in _requirements():
        if requirement == "torch":
            continue
        version = installed_version(requirement)
        lacks = "" if version else f"graphmill needs it; `pip install {requirement}`"
        yield CheckResult(requirement, "ok" if version else "fail", version or "not installed", lacks)
    for package, use in _OPTIONAL.items():
        version = installed_version(package)
        yield CheckResult(package, "ok", version or "not installed (optional)", "" if version else use)


def _requirements() -> list[str]:
    try:
        declared = metadata.requires("graphmill") or []
    except metadata.PackageNotFoundError:  # run from a checkout that was not installed
        return [
            "numpy",
            "pydantic",
            "pyyaml",
            "typer",
            "rich",
            "safetensors",
            "psutil",
            "xxhash",
            "polars",
            "matplotlib",
        ]
    needed = [line for line in declared if "extra ==" not in line]
    return [line.split(";")[0].split(">")[0].split("=")[0].split("<")[0].strip() for line in needed]


def _disk(name: str, root: Path, wanted: int) -> CheckResult:
    free = free_disk_bytes(root)
    detail = f"{free / _GIB:.1f} GiB free at {root}"
    existing = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.exists())
    if not os.access(existing, os.W_OK):
        return CheckResult(name, "fail", f"{existing} may not be written to", f"everything that writes below {root}")
    if free < wanted:
        return CheckResult(
            name, "warn", detail, f"less than {wanted / _GIB:.0f} GiB: larger datasets, many checkpoints"
        )
    return CheckResult(name, "ok", detail)


def _shared_memory(path: Path) -> CheckResult:
    if not path.is_dir():
        return CheckResult("/dev/shm", "warn", "missing", "nccl between the GPUs of one machine")
    size = shutil.disk_usage(path).total
    if size < _GIB // 2:
        return CheckResult(
            "/dev/shm", "warn", f"{size / _GIB:.2f} GiB", "nccl between GPUs; in a container: --shm-size=1g"
        )
    return CheckResult("/dev/shm", "ok", f"{size / _GIB:.1f} GiB")


def _open_files() -> CheckResult:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1024:
        return CheckResult(
            "open files", "warn", f"{soft} (at most {hard})", "many ranks on one machine; `ulimit -n 4096`"
        )
    return CheckResult("open files", "ok", f"{soft}")


def _latex() -> CheckResult:
    found = next((name for name in ("latexmk", "pdflatex") if shutil.which(name)), None)
    return CheckResult(
        "latex", "ok", found or "not installed (optional)", "" if found else "compiling plots/*.tex to PDF"
    )


def _clock() -> CheckResult:
    """A clock that steps back would give files and events wrong times. Read it twice, next to one that cannot step."""
    steps: list[Callable[[], float]] = [time.time, time.monotonic]
    first = [clock() for clock in steps]
    time.sleep(0.05)
    wall, steady = (clock() - begin for clock, begin in zip(steps, first, strict=True))
    if abs(wall - steady) > 0.02:
        return CheckResult("clock", "warn", f"ran {wall - steady:+.3f} s off in 0.05 s", "times in events and attempts")
    if time.time() < 1_700_000_000:
        return CheckResult(
            "clock", "warn", time.strftime("%Y-%m-%d", time.gmtime()), "run ids and times: the date is wrong"
        )
    return CheckResult("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
