"""The gate behind ptxas: what a kernel may take of a GPU, and what to change where it takes more."""

import importlib
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kernel_checks.chips import CHIPS, occupancy, resident_programs
from kernel_checks.cubins import Resources, Variant, capability_of, compiled, resources_of


@dataclass(frozen=True, slots=True)
class Limits:
    """What is asked of a kernel. Stack and local memory are always refused: they are registers that were spilled."""

    registers: int = 254  # 255 is all there are: ptxas was short of them
    occupancy: float = 0.0
    in_flight: float = 0.0  # bytes an SM, by the model

    def broken(self, found: "Finding") -> list[str]:
        """What is beyond the limits, and what to change."""
        code, said = found.resources.code, []
        if found.resources.stack:
            said.append(
                f"{found.resources.stack} bytes of stack a thread: cut the tile (fewer values a program) or give it "
                "more warps"
            )
        if code.local_loads or code.local_stores:
            said.append(
                f"{code.local_loads} local loads and {code.local_stores} local stores: registers are spilled; hold "
                "fewer tiles at once, or split the columns over programs"
            )
        if found.resources.registers > self.registers:
            said.append(
                f"{found.resources.registers} registers a thread, beyond {self.registers}: fewer values a thread"
            )
        if found.occupancy < self.occupancy:
            said.append(
                f"occupancy {found.occupancy:.2f}, below {self.occupancy:.2f}: fewer registers or less shared memory, "
                "or more warps a program where 32 programs an SM are the limit"
            )
        if found.in_flight < self.in_flight:
            said.append(
                f"{found.in_flight / 1000:.1f} kB under way an SM (model), below {self.in_flight / 1000:.1f}: larger "
                "tiles, or loads before the first use of their results, or more resident warps"
            )
        return said


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a variant."""

    name: str
    capability: int
    resources: Resources
    useful: float = 1.0

    @property
    def occupancy(self) -> float:
        """Of an SM's warps."""
        of = self.resources
        return occupancy(CHIPS[self.capability], of.warps, of.registers, of.shared)

    @property
    def in_flight(self) -> float:
        """Bytes of loads that an SM may have under way: a thread's, times threads resident; a model."""
        of = self.resources
        programs = resident_programs(CHIPS[self.capability], of.warps, of.registers, of.shared)
        return programs * of.warps * 32 * of.code.bytes_under_way * self.useful

    def as_json(self, limits: Limits) -> dict[str, Any]:
        """Of plain values; `model` says what is no count."""
        of, chip = self.resources, CHIPS[self.capability]
        return {
            "name": self.name, "capability": self.capability, "function": of.function, "registers": of.registers,
            "stack": of.stack, "shared": of.shared, "warps": of.warps, **asdict(of.code), "occupancy": self.occupancy,
            "model": {"chip": chip.name, "in_flight": self.in_flight, "needed": chip.bytes_needed},
            "violations": limits.broken(self),
        }  # fmt: skip


def examined(variant: Variant) -> list[Finding]:
    """Compile a variant and look at each function of it."""
    cubin, warps, shared = compiled(variant)
    return [
        Finding(variant.name, variant.capability, each, variant.useful)
        for each in resources_of(cubin, warps=warps, dynamic_shared=shared)
    ]


def examined_file(cubin: Path, *, warps: int, dynamic_shared: int = 0) -> list[Finding]:
    """The same of a cubin file, started with so many warps a program."""
    capability = capability_of(cubin)
    if capability not in CHIPS:
        raise ValueError(f"{cubin} is for {capability}; known are {', '.join(map(str, CHIPS))}")
    found = resources_of(cubin.read_bytes(), warps=warps, dynamic_shared=dynamic_shared)
    return [Finding(f"{cubin.name}:{each.function}", capability, each) for each in found]


def given_by(place: str) -> list[Any]:
    """What the function of `module:function`, or `file.py:function`, gives: variants, or cases."""
    source, _, name = place.rpartition(":")
    if source.endswith(".py"):
        sys.path.insert(0, str(Path(source).resolve().parent))
        source = Path(source).stem
    return list(getattr(importlib.import_module(source), name)())


_VARIANTS: list[Variant] = []  # of a worker process


def _begin(place: str) -> None:
    _VARIANTS[:] = given_by(place)


def _examined_at(number: int) -> list[Finding]:
    return examined(_VARIANTS[number])


def examined_all(place: str, numbers: Iterable[int], *, jobs: int) -> list[Finding]:
    """Findings of the variants with these numbers of `place`, by several processes, in order."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (place,)) as pool:
        return [finding for found in pool.map(_examined_at, numbers, chunksize=4) for finding in found]


def table(findings: Iterable[Finding], limits: Limits) -> str:
    """A line for each finding; what is beyond the limits below its line."""
    lines = [
        f"{'kernel':58} {'arch'} {'warps':>5} {'regs':>4} {'stack':>5} {'LDL':>4} {'STL':>4} {'BAR':>4} {'shared':>6}"
        f" {'occ.':>5} {'kB/SM*':>7} {'need*':>6}"
    ]
    for each in findings:
        of, code, chip = each.resources, each.resources.code, CHIPS[each.capability]
        lines.append(
            f"{each.name:58} {each.capability:4} {of.warps:5} {of.registers:4} {of.stack:5} {code.local_loads:4} "
            f"{code.local_stores:4} {code.barriers:4} {of.shared:6} {each.occupancy:5.2f} "
            f"{each.in_flight / 1000:7.1f} {chip.bytes_needed / 1000:6.1f}"
        )
        lines.extend(f"    ! {said}" for said in limits.broken(each))
    model = CHIPS[90]
    lines.append(
        f"* a model, not a measurement: bytes under way an SM, and bandwidth x latency / SMs "
        f"({model.name}: {model.bandwidth / 1e12:.2f} TB/s x {model.latency * 1e6:.1f} us / {model.num_sms})"
    )
    return "\n".join(lines)
