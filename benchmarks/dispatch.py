"""What a step of DCRNN's cell costs as an `autograd.Function`, which it is, and as an operator of torch.library.

    python benchmarks/dispatch.py [--rounds 15] [--threads 1]

The same native calls behind both, forward and backward of 24 steps of two layers, as a training step makes them: on
207 sensors, and on the 10 of a class exercise. The operator is given its packed weights by a global, for torch.library
takes tensors and numbers only: what passing them would cost comes on top.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill import _native
from graphmill.tasks.traffic.nn.dcgru import CellAt, DcgruCell, RandomWalks
from harness import interleave, print_table, write_result
from origin import Origin

STEPS, LAYERS, WINDOWS = 24, 2, 64
SIZES = {"207 sensors, 64 units": (207, 64), "10 sensors, 16 units": (10, 16)}

_LIBRARY: Any = torch.library.Library("graphmill_benchmark", "FRAGMENT")
_CELL: list[Any] = []


def forward(x: Tensor, h: Tensor, *_weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (cell,) = _CELL
    gates, candidate, new_h = h.new_empty(len(h), 2 * h.shape[1]), torch.empty_like(h), torch.empty_like(h)
    native, packed = cell.walks.native, cell.packed
    _native.dcgru_forward(native, packed, x.detach(), h.detach(), gates, candidate, new_h, cell.threads)
    return new_h, gates, candidate


def backward(grad: Tensor, saved: list[Tensor]) -> list[Tensor]:
    (cell,) = _CELL
    x, h, gates, candidate, *weights = [tensor.detach() for tensor in saved]
    grad_h, grad_x = torch.empty_like(h), torch.empty_like(x)
    grads = [torch.zeros_like(weight) for weight in weights]
    names = ("grad_gate_weight", "grad_gate_bias", "grad_candidate_weight", "grad_candidate_bias")
    _native.dcgru_backward(
        cell.walks.native, cell.packed, x, h, gates, candidate, grad.detach().contiguous(), grad_h, grad_x,
        **dict(zip(names, grads, strict=True)), num_threads=cell.threads,
    )  # fmt: skip
    return [grad_x, grad_h, *grads]


def define() -> Callable[..., Any]:
    _LIBRARY.define("cell(Tensor x, Tensor h, Tensor a, Tensor b, Tensor c, Tensor d) -> (Tensor, Tensor, Tensor)")
    _LIBRARY.define("cell_backward(Tensor grad, Tensor[] saved) -> Tensor[]")
    _LIBRARY.impl("cell", forward, "CPU")
    _LIBRARY.impl("cell_backward", backward, "CPU")
    operators = torch.ops.graphmill_benchmark

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, h, *weights = inputs
        ctx.save_for_backward(x, h, output[1], output[2], *weights)

    def gradients(ctx: Any, grad: Tensor, *_: object) -> tuple[Tensor, ...]:
        return tuple(operators.cell_backward.default(grad, list(ctx.saved_tensors)))

    torch.library.register_autograd("graphmill_benchmark::cell", gradients, setup_context=save, lib=_LIBRARY)
    operator: Callable[..., Any] = operators.cell.default
    return operator


def sequence(step: Callable[[Tensor, Tensor], Tensor], x: Tensor, h: Tensor) -> None:
    for _ in range(STEPS * LAYERS):
        h = step(x, h)
    h.sum().backward()


def measured(nodes: int, units: int, rounds: int, operator: Callable[..., Any]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    edges = np.nonzero(rng.random((nodes, nodes)) < 0.035 + 1 / nodes)
    walks = RandomWalks.of(np.stack(edges).astype(np.int32), np.ones(len(edges[0]), np.float32), nodes, 2)
    cell = DcgruCell(channels=units, units=units, num_slots=walks.num_slots)
    cell.reset_parameters(torch.Generator().manual_seed(0))
    at: CellAt = cell.at(walks)
    _CELL[:] = [at]
    x, h = (torch.randn(WINDOWS, nodes, units, requires_grad=True) for _ in range(2))

    def by_operator(one: Tensor, other: Tensor) -> Tensor:
        new_h: Tensor = operator(one.flatten(0, 1), other.flatten(0, 1), *at.weights)[0]
        return new_h.view(other.shape)

    contenders: dict[str, Callable[[int], object]] = {
        "autograd.Function": lambda _: sequence(at, x, h),
        "torch.library": lambda _: sequence(by_operator, x, h),
    }
    taken = interleave(contenders, rounds=rounds)
    ratio = taken.ratio("torch.library", "autograd.Function")
    return {**{name: taken.spread(name) for name in contenders}, "ratio": ratio, "foreign_cores": taken.foreign_cores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    origin = Origin.now()
    torch.set_num_threads(options.threads)
    operator = define()
    results = {name: measured(*size, options.rounds, operator) for name, size in SIZES.items()}
    print_table(
        f"seconds of {STEPS * LAYERS} steps of the cell and their backward (quartiles), {options.threads} threads",
        ["", "autograd.Function", "torch.library", "ratio"],
        [
            [name, *(str(result[column]) for column in ("autograd.Function", "torch.library", "ratio"))]
            for name, result in results.items()
        ],
    )
    write_result("dispatch", {"rounds": options.rounds, "threads": options.threads, "sizes": results}, origin)


if __name__ == "__main__":
    main()
