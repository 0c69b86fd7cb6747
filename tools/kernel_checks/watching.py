"""Each start of a kernel in Triton's interpreter, looked at: what it reads and writes, and in which order it runs.

An access outside all tensors of the call is reported with its line and kept from happening. So are two programs that
use one place, one of them writing: programs have no order, so what is read is a matter of luck, though the interpreter
runs them one after the other. Tensors stand between guards (`guards`), so an index that is just beyond one tensor is
not in the next.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernel_checks.guards import put_back, zones_of

Order = Callable[[int], Sequence[int]]  # of so many programs


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a kernel, by which step of the ladder."""

    step: str
    says: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of one start of a kernel: asked for by its lanes, and of distinct places, which must move at least once."""

    kernel: str
    asked: int
    read: int
    written: int


@dataclass(slots=True)
class Watch:
    """What has been seen so far."""

    faults: list[Fault] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    order: Order | None = None


@dataclass(slots=True)
class _Started:
    """One start of a kernel."""

    kernel: str
    names: list[str]
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    said: dict[str, str] = field(default_factory=dict)
    # (addresses, program, is written, is atomic, bytes of each)
    accesses: list[tuple[NDArray[np.uint64], int, bool, bool, int]] = field(default_factory=list)

    def allowed(
        self, addresses: NDArray[np.uint64], mask: NDArray[np.bool_], size: int, what: str
    ) -> NDArray[np.bool_]:
        """The lanes of `mask` whose addresses lie in a tensor; the others are reported."""
        at = np.searchsorted(self.starts, addresses, side="right") - 1
        inside = (at >= 0) & (addresses + np.uint64(size) <= self.ends[np.maximum(at, 0)])
        outside = mask & ~inside
        if outside.any():
            line = _line()
            first = int(addresses[outside].flat[0])
            self.said.setdefault(
                f"{line}{what}",
                f"{self.kernel}: {what} outside all tensors at {line}: {int(outside.sum())} lanes, the first "
                f"{self.beside(first)}",
            )
        return mask & inside

    def beside(self, address: int) -> str:
        """Where an address is, for a message."""
        if not self.names:
            return "of a kernel without tensors"
        after = [address - int(end) for end in self.ends]
        before = [int(start) - address for start in self.starts]
        distances = [max(*pair) for pair in zip(after, before, strict=True)]
        nearest = min(range(len(distances)), key=distances.__getitem__)
        side = "after the end" if after[nearest] >= 0 else "before the start"
        return f"{abs(max(after[nearest], before[nearest]))} bytes {side} of {self.names[nearest]}"


@contextmanager
def watched(order: Order | None = None) -> Iterator[Watch]:
    """Watch all kernels that are started within, in Triton's interpreter (`TRITON_INTERPRET=1`).

    Args:
        order: in which order the programs of a grid run; as they are numbered without.

    Yields:
        A `Watch`, which is complete afterwards.
    """
    from triton.runtime import interpreter

    watch = Watch(order=order)
    began = interpreter.GridExecutor.__call__

    def call(executor: Any, *arguments: Any, **options: Any) -> None:
        _run(watch, began, executor, arguments, options)

    interpreter.GridExecutor.__call__ = call  # type: ignore[method-assign,assignment]  # what is meant
    try:
        yield watch
    finally:
        interpreter.GridExecutor.__call__ = began  # type: ignore[method-assign]


def _run(watch: Watch, began: Any, executor: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    named = {**dict(zip(executor.arg_names, arguments, strict=False)), **options}
    tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    zones, copies = zones_of(list(tensors.values()))
    replaced = dict(zip(tensors, copies, strict=True))
    spans = sorted(
        (zone.copy.data_ptr(), zone.copy.data_ptr() + len(zone.copy), number) for number, zone in enumerate(zones)
    )
    started = _Started(
        executor.fn.__name__,
        [_name_of(replaced, first, end) for first, end, _ in spans],
        np.array([first for first, _, _ in spans], dtype=np.uint64),
        np.array([end for _, end, _ in spans], dtype=np.uint64),
    )
    with _hooked(watch, started):
        began(executor, **{name: replaced.get(name, value) for name, value in named.items()})
    watch.faults += [Fault("bounds", said) for said in started.said.values()]
    watch.faults += [
        Fault("bounds", f"{started.kernel}: a guard was overwritten") for zone in zones if not zone.holds()
    ]
    _conflicts(watch, started)
    put_back(zones)


def _name_of(tensors: dict[str, torch.Tensor], first: int, end: int) -> str:
    return "/".join(name for name, tensor in tensors.items() if first <= tensor.data_ptr() < max(end, first + 1))


@contextmanager
def _hooked(watch: Watch, started: _Started) -> Iterator[None]:
    """The interpreter's memory operations and its numbering of programs, looked at."""
    from triton import language as tl
    from triton.runtime.interpreter import TensorHandle
    from triton.runtime.interpreter import interpreter_builder as builder

    names = ("set_grid_idx", "create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    plain = {name: getattr(builder, name) for name in names}
    program, orders = [0], dict[tuple[int, ...], Sequence[int]]()

    def numbered(x: int, y: int, z: int) -> None:
        grid = builder.grid_dim
        number = (x * grid[1] + y) * grid[2] + z
        if watch.order is not None:
            if grid not in orders:
                orders[grid] = watch.order(grid[0] * grid[1] * grid[2])
            number = orders[grid][number]
        program[0] = number
        plain["set_grid_idx"](number // (grid[1] * grid[2]), number // grid[2] % grid[1], number % grid[2])

    def seen(pointers: Any, mask: Any, what: str, *, writes: bool, atomic: bool = False) -> Any:
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        wanted = np.broadcast_to(mask.data != 0, pointers.data.shape)  # a mask may be of integers
        allowed = started.allowed(pointers.data, wanted, size, what)
        started.accesses.append((pointers.data[allowed], program[0], writes, atomic, size))
        return TensorHandle(allowed, tl.int1)

    def load(pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        allowed = seen(pointers, mask, "a load", writes=False)
        found = plain["create_masked_load"](pointers, allowed, other, *rest)
        lost = np.broadcast_to(mask.data != 0, allowed.data.shape) & ~allowed.data
        if lost.any() and np.issubdtype(found.data.dtype, np.floating):
            found.data[lost] = np.nan
        return found

    def store(pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return plain["create_masked_store"](pointers, value, seen(pointers, mask, "a store", writes=True), *rest)

    def atomic(kind: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        allowed = seen(pointers, mask, "an atomic", writes=True, atomic=True)
        return plain["create_atomic_rmw"](kind, pointers, value, allowed, *rest)

    def swapped(pointers: Any, *rest: Any) -> Any:
        everywhere = TensorHandle(np.ones_like(pointers.data, dtype=bool), pointers.dtype)
        seen(pointers, everywhere, "an atomic", writes=True, atomic=True)
        return plain["create_atomic_cas"](pointers, *rest)

    hooks = dict(zip(names, (numbered, load, store, atomic, swapped), strict=True))
    for name, hook in hooks.items():
        setattr(builder, name, hook)
    try:
        yield
    finally:
        for name in names:
            delattr(builder, name)


def _conflicts(watch: Watch, started: _Started) -> None:
    """Places that several programs use, one of them writing, not all by atomics; and what was moved in all."""
    empty = np.zeros(0, dtype=np.uint64)
    if not started.accesses:
        watch.moved.append(Moved(started.kernel, 0, 0, 0))
        return
    lengths = [len(each[0]) for each in started.accesses]
    addresses = np.concatenate([each[0] for each in started.accesses] or [empty])
    programs, writes, atomics, sizes = (
        np.repeat(np.array([each[at] for each in started.accesses]), lengths) for at in (1, 2, 3, 4)
    )
    order = np.argsort(addresses, kind="stable")
    addresses, programs, writes, atomics, sizes = (
        each[order] for each in (addresses, programs, writes, atomics, sizes)
    )
    firsts = np.flatnonzero(np.r_[True, addresses[1:] != addresses[:-1]]) if len(addresses) else np.zeros(0, int)
    if len(firsts):
        several = np.minimum.reduceat(programs, firsts) != np.maximum.reduceat(programs, firsts)
        written = np.logical_or.reduceat(writes, firsts)
        read = np.logical_or.reduceat(~writes | atomics, firsts)
        bad = np.flatnonzero(several & written & ~np.logical_and.reduceat(atomics, firsts))
        size = sizes[firsts]
        watch.moved.append(Moved(started.kernel, int(sizes.sum()), int(size[read].sum()), int(size[written].sum())))
        if len(bad):
            first = firsts[bad[0]]
            users = np.unique(programs[addresses == addresses[first]])
            at = int(np.searchsorted(started.starts, addresses[first], side="right")) - 1
            watch.faults.append(
                Fault(
                    "races",
                    f"{started.kernel}: {len(bad)} places of {started.names[at]} are written by one program and used "
                    f"by another, the first by programs {users[0]} and {users[-1]}",
                )
            )


def _line() -> str:
    """Where in the kernel's file the present access stands."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = Path(frame.f_code.co_filename)
        if "triton" not in file.parts and file.parent != Path(__file__).parent and file.suffix == ".py":
            return f"{file.name}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"
