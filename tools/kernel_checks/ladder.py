"""The steps that can be taken without a GPU, one after the other, for kernels with small inputs."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernel_checks.chips import CHIPS
from kernel_checks.watching import Fault, Moved, Order, Watch, watched

_PERMUTATIONS = 3


@dataclass(frozen=True)
class Case:
    """Kernels on inputs that the interpreter goes through in seconds.

    `start` takes the inputs, which it may write to, starts kernels, and returns the results by name. `expected` are the
    results of another implementation, within `tolerance`, absolute; 0: to the bit.
    """

    name: str
    start: Callable[[dict[str, Tensor]], Mapping[str, Tensor]]
    inputs: Mapping[str, Tensor]
    expected: Mapping[str, Tensor] | None = None
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Climbed:
    """What the steps found of a case, and what it moved."""

    name: str
    faults: list[Fault]
    moved: list[Moved]


def climb(case: Case) -> Climbed:
    """Take all steps: equal, whole, bounds, races, order.

    Raises:
        RuntimeError: kernels are not interpreted.
    """
    from triton.runtime import interpreter

    results, watch = _results(case, None)
    if not watch.moved:
        raise RuntimeError(
            f"{case.name}: no kernel was started in {interpreter.__name__}: set TRITON_INTERPRET=1 before the kernels "
            "are imported"
        )
    faults = [*_unequal(case, results), *_unwritten(case, results), *watch.faults]
    for name, order in _orders():
        faults += _differing(results, _results(case, order)[0], name)
    return Climbed(case.name, _once(faults), watch.moved)


def report(climbed: Climbed) -> str:
    """A line for the case, one for each fault, and its traffic as a model."""
    chip = CHIPS[90]
    lines = [f"{climbed.name}: {len(climbed.faults)} faults"]
    lines.extend(f"    ! {fault.step}: {fault.says}" for fault in climbed.faults)
    for each in climbed.moved:
        least = each.read + each.written
        lines.append(
            f"    {each.kernel}: {least / 1000:.1f} kB must move, {each.asked / 1000:.1f} kB are asked for; model: "
            f"{least / chip.bandwidth * 1e6:.3f} us on {chip.name} at least"
        )
    return "\n".join(lines)


def _results(case: Case, order: Order | None) -> tuple[dict[str, Tensor], Watch]:
    with _uninitialised_is_nan(), watched(order) as watch:
        found = case.start({name: tensor.clone() for name, tensor in case.inputs.items()})
    return {name: tensor.clone() for name, tensor in found.items()}, watch


@contextmanager
def _uninitialised_is_nan() -> Iterator[None]:
    """torch.empty gives NaN, and the largest integer: what no kernel writes is seen in the results."""
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])


def _orders() -> Iterator[tuple[str, Order]]:
    yield "reversed", lambda count: range(count - 1, -1, -1)
    for seed in range(_PERMUTATIONS):
        yield f"permutation {seed}", partial(_permuted, seed)


def _permuted(seed: int, count: int) -> list[int]:
    return random.Random(seed).sample(range(count), count)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def _differing(first: Mapping[str, Tensor], other: Mapping[str, Tensor], name: str) -> list[Fault]:
    return [
        Fault("order", f"{result} has other bits with programs in another order ({name})")
        for result, tensor in first.items()
        if tensor.numel() and not torch.equal(_bits(tensor), _bits(other[result]))
    ]


def _unequal(case: Case, results: Mapping[str, Tensor]) -> Iterator[Fault]:
    for name, wanted in (case.expected or {}).items():
        found = results[name]
        if case.tolerance == 0:
            is_far = found != wanted
        else:
            near = (found.double() - wanted.double()).abs() <= case.tolerance
            is_far = ~(near | (found == wanted) | (found.isnan() & wanted.isnan()))
        if is_far.any():
            at = tuple(is_far.nonzero()[0].tolist())
            yield Fault(
                "equal", f"{int(is_far.sum())} of {name} differ: at {at} {found[at].item()} for {wanted[at].item()}"
            )


def _unwritten(case: Case, results: Mapping[str, Tensor]) -> Iterator[Fault]:
    for name, found in results.items():
        wanted = (case.expected or {}).get(name)
        if found.is_floating_point():
            is_empty = found.isnan() if wanted is None else found.isnan() & ~wanted.isnan()
        elif found.dtype == torch.bool:
            continue
        else:
            is_empty = found == torch.iinfo(found.dtype).max
        if is_empty.any():
            yield Fault("whole", f"{int(is_empty.sum())} of {found.numel()} of {name} are as torch.empty left them")


def _once(faults: list[Fault]) -> list[Fault]:
    return list(dict.fromkeys(faults))
