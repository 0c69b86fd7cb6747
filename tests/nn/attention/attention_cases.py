"""The GPU kernels of attention on small graphs: `python -m kernel_checks ladder attention_cases.py:every`."""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from kernel_checks.ladder import Case

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins"))

from attention_problems import Problem, native_results, of_sums, triton_results

from graphmill.nn.attention import triton_sizes


def hub(kind: str, num_edges: int = 60, **sizes: float) -> Problem:
    """Half of the edges lead to target 1, and half leave source 2."""
    at = torch.arange(num_edges)
    ends = torch.stack([torch.where(at % 4 < 2, 2, at % 5), torch.where(at % 2 == 0, 1, at % 4)])
    return replace(Problem(kind, num_edges=num_edges, edge_index=ends), **sizes)


def case(name: str, problem: Problem, span: int) -> Case:
    """All kernels of a call, a node of more than `span` edges in parts."""
    arguments = problem.arguments(torch.float32, every=torch.float32)
    expected = native_results(problem.arguments(torch.float64, every=torch.float32))
    scale = max(1.0, *(float(each[each.isfinite()].abs().max()) for each in expected.values() if each.numel()))

    def start(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        given = tuple(inputs.get(str(at), each) for at, each in enumerate(arguments))
        was, triton_sizes.span_of = triton_sizes.span_of, lambda _: span
        try:
            return triton_results(given)
        finally:
            triton_sizes.span_of = was

    inputs = {str(at): each for at, each in enumerate(arguments) if isinstance(each, Tensor)}
    return Case(name, start, inputs, expected, of_sums(expected) * scale)


def every() -> list[Case]:
    """Both forms: hubs in parts and whole, loops, dropout, padded channels, several groups of heads, no features."""
    return [
        case(f"{kind}: {name}", replace(problem, kind=kind), span)
        for kind in ("gat", "gatv2")
        for name, problem, span in (
            ("hubs, loops and dropout", hub(kind, num_loops=4, p=0.3), 8),
            ("padded channels, several groups", hub(kind, 24, heads=3, channels=70, edge_dim=1), 512),
            ("no features, many heads", hub(kind, heads=9, channels=8, edge_dim=0), 16),
        )
    ]
