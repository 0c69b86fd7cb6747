"""The toys with inputs, for `python -m kernel_checks ladder toy_cases.py:FUNCTION`; each wrong one names its fault."""

from collections.abc import Callable

import torch
import toys
from torch import Tensor

from kernel_checks.ladder import Case

SIZE, BLOCK = 100, 16
GRID = (-(-SIZE // BLOCK),)
X = torch.arange(SIZE, dtype=torch.float32) * 0.1
ROWS = torch.arange(SIZE) % 7
KEY = 0x1234_5678_0BCD_EF01


def on_x(name: str, kernel, expected: Tensor | None = None, grid: tuple[int, ...] = GRID) -> Case:
    def start(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        out = torch.empty(SIZE)
        kernel[grid](inputs["x"], out, SIZE, BLOCK=BLOCK)
        return {"out": out}

    return Case(name, start, {"x": X}, None if expected is None else {"out": expected})


def on_rows(name: str, kernel, x: Tensor, first: Tensor) -> Case:
    def start(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        kernel[GRID](inputs["x"], inputs["rows"], inputs["out"], SIZE, BLOCK=BLOCK)
        return {"out": inputs["out"]}

    return Case(name, start, {"x": x, "rows": ROWS, "out": first})


def gather(name: str, nodes: Tensor, rows: Callable[[], Tensor], stride: int) -> Case:
    def start(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        out = torch.empty(len(nodes))
        toys.gathered[1,](rows(), inputs["nodes"], out, len(nodes), stride, BLOCK=BLOCK)
        return {"out": out}

    return Case(name, start, {"nodes": nodes})


def draw(name: str, *, wrong: bool) -> Case:
    x = [(KEY + at * 0x9E3779B97F4A7C15) % 2**64 for at in range(SIZE)]
    x = [(each ^ (each >> 30)) * 0xBF58476D1CE4E5B9 % 2**64 for each in x]
    expected = torch.tensor([(each ^ (each >> 31)) - (2**64 if (each ^ (each >> 31)) >= 2**63 else 0) for each in x])

    def start(_: dict[str, Tensor]) -> dict[str, Tensor]:
        out = torch.empty(SIZE, dtype=torch.int64)
        toys.drawn[GRID](out, KEY % 2**32 - 2**32 * (KEY % 2**32 >= 2**31), KEY >> 32, SIZE, WRONG=wrong, BLOCK=BLOCK)
        return {"out": out}

    return Case(name, start, {}, {"out": expected})


def ten_rows() -> Tensor:
    return torch.arange(10.0)


WRONG = {
    "races": on_rows("a race", toys.last_of_row, X, torch.zeros(7)),
    "order": on_rows("a sum in the order of programs", toys.sum_by_atomics, X, torch.zeros(7)),
    "bounds, an id of data": gather("an index out of data", torch.tensor([1, 500, 2]), ten_rows, 1),
    "bounds, before": gather("an index of -1", torch.tensor([1, -1, 2]), ten_rows, 1),
    "bounds, 32 bits": gather(
        "an offset of 32 bits", torch.tensor([4], dtype=torch.int32), lambda: torch.empty(5).expand(5), 2**29
    ),
    "bounds, off by one": on_x("off by one", toys.off_by_one, X * 2),
    "bounds, no mask": on_x("a mask lost", toys.mask_lost, X * 2),
    "equal": draw("a wrong word of the key", wrong=True),
    "races, read": on_x("reads what another program writes", toys.prefix_of_blocks),
    "whole": on_x("rows that nobody writes", toys.doubled, grid=(5,)),
}


def wrong() -> list[Case]:
    return list(WRONG.values())


def right() -> list[Case]:
    """Sound ones, each beside a wrong one: none is reported."""
    least = on_rows("a minimum by atomics", toys.minimum_by_atomics, (ROWS * 31 % 17).int(), torch.full((7,), 99).int())
    return [
        on_x("doubled", toys.doubled, X * 2),
        gather("rows by id", torch.tensor([1, 9, 2]), ten_rows, 1),
        draw("both words of the key", wrong=False),
        least,
    ]
