"""Random inputs of the operator of attention, and its results and gradients by one implementation."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmill.nn.attention import group_edges, operator
from graphmill.nn.attention.operator import Dropout, EdgeScores, Scores

# Half the distance of neighbouring numbers, relative: what a result that is rounded to a format is off by; to bfloat16,
# which NumPy has not, the interpreter cuts off, so the whole distance.
ROUNDING = {torch.float64: 0.0, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-7}
SUBNORMAL = {torch.float16: 2.0**-24}
GRADIENTS = ("x", "source", "target", "edge_attr", "loop_attr", "edge_weight", "att")


@dataclass(frozen=True)
class Problem:
    """Sizes of one call; edges are given, or drawn."""

    kind: str = "gatv2"
    num_sources: int = 5
    num_targets: int = 4
    num_edges: int = 14
    heads: int = 2
    channels: int = 4
    edge_dim: int = 3
    num_loops: int = 0
    p: float = 0.0
    seed: int = 0
    scale: float = 1.0  # of what the logits are made of
    edge_index: Tensor | None = None

    def arguments(self, dtype: torch.dtype, **formats: torch.dtype) -> tuple:
        """Of the operator, in float64 if that is `dtype`, but with values that `formats` (by name, or all) can hold."""
        generator = torch.Generator().manual_seed(self.seed)
        every = formats.pop("every", torch.float64)

        def normal(name: str, *shape: int, scale: float = 1.0) -> Tensor:
            drawn = torch.randn(*shape, generator=generator, dtype=torch.float64) * scale
            held = drawn.to(formats.get(name, every))
            return held.to(dtype) if dtype == torch.float64 else held

        is_gat = self.kind == "gat"
        width = self.heads * (1 if is_gat else self.channels)
        scores = Scores(
            normal("target", self.num_targets, width, scale=self.scale),
            normal("source", self.num_sources, width, scale=self.scale) if is_gat else None,
            None if is_gat else normal("att", width, scale=self.scale),
            0.2,
        )
        features = None
        if self.edge_dim:
            features = EdgeScores(
                normal("edge_attr", self.num_edges, self.edge_dim),
                normal("loop_attr", self.num_loops, self.edge_dim),
                normal("edge_weight", self.edge_dim, width),
            )
        x = normal("x", self.num_sources, self.heads * self.channels)
        edge_index = self.edge_index
        if edge_index is None:
            ends = [torch.randint(max(1, most), (self.num_edges,), generator=generator) for most in (
                self.num_sources, self.num_targets)]  # fmt: skip
            edge_index = torch.stack(ends)
        groups = group_edges(edge_index, self.num_sources, self.num_targets, self.num_loops)
        dropout = Dropout(torch.tensor([self.seed * 2**40 - 11]), self.p) if self.p else None
        return operator._arguments(x, self.heads, scores, features, dropout, groups)


def native_results(arguments: tuple, *, of_features: bool = True) -> dict[str, Tensor]:
    """By the CPU's kernels."""
    return _results(
        arguments, operator._forward, operator._weights, operator._backward, of_features=of_features
    )  # fmt: skip


def triton_results(arguments: tuple, *, of_features: bool = True) -> dict[str, Tensor]:
    """By Triton's kernels, where the tensors are."""
    return _results(
        arguments, operator._triton_forward, operator._triton_weights, operator._triton_backward,
        of_features=of_features,
    )  # fmt: skip


def _results(arguments: tuple, forward, weights, backward, *, of_features: bool) -> dict[str, Tensor]:
    out, lse, exact = forward(*arguments)
    slope = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view_as(out)
    # Numbers that bfloat16 holds: the same gradient for every implementation.
    grad = slope.to(torch.bfloat16).to(out.dtype).to(out.device)
    gradients = backward(
        *arguments, grad, exact if exact.numel() else out, lse, of_features and arguments[3] is not None
    )
    named = {f"gradient of {name}": each for name, each in zip(GRADIENTS, gradients, strict=True) if each.numel()}
    return {"out": out, "lse": lse, "alpha": weights(*arguments, lse)} | named


def of_sums(exact: dict[str, Tensor]) -> float:
    """What float32 sums are off by, of the largest: a logit by some roundings of its size, and so is its power."""
    largest = torch.where(exact["lse"].isfinite(), exact["lse"], 0.0).abs()
    return 32 * 2.0**-24 * (1 + float(largest.max()) if largest.numel() else 1)


def assert_close(mine: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """`mine` is as near to `other`, in float64, as float32 sums and one rounding to its format allow."""
    assert mine.keys() == other.keys()
    sums = of_sums(other)
    for name, exact in other.items():
        found = mine[name]
        assert found.shape == exact.shape, name
        both_infinite = found.isinf() & exact.isinf()  # log-sum-exp of no edge
        difference = torch.where(both_infinite, 0.0, found.double() - exact).abs()
        size = torch.where(exact.isfinite(), exact, 0.0).abs()
        scale = max(1.0, float(size.max())) if size.numel() else 1.0
        bound = ROUNDING[found.dtype] * size + sums * scale + SUBNORMAL.get(found.dtype, 0.0)
        assert (difference <= bound).all(), f"{name}: {float((difference - bound).max()):.3g} beyond the bound"
