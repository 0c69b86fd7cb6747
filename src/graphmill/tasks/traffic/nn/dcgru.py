"""The diffusion convolutional gated recurrent unit, one step with its backward, and its random walks.

The walks are those of the paper (Li et al. 2018, eq. 2): P₁ = D_O⁻¹ W along the edges and P₂ = D_I⁻¹ Wᵀ against them,
each as plain powers P, P², …, P^K besides the identity. The authors' code differs twice: it multiplies with the
transposes of these, and it takes Chebyshev polynomials whose recursion continues from one direction into the other.
Powers up to K span the same space as the polynomials of one direction, and mix nothing across directions.

In float32 on the CPU a step is one native call: diffusion, both products, the gates. Elsewhere, and when torch.compile
traces, torch does the same arithmetic.

The native step is an `autograd.Function`, not an operator of `torch.library` as those of `nn/native.py`: a sequence
makes dozens of small steps, and each would pay for the library's dispatch (`benchmarks/dispatch.py` measures it).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill import _native
from graphmill.nn.define import capsule, differentiated_once
from graphmill.nn.operators import is_native

_DENSE_FROM = 0.1  # share of non-zero entries from which torch's dense product beats its sparse one


@dataclass(frozen=True, slots=True)
class Walk:
    """One direction's matrix in compressed sparse rows; rows sum to 1, or are empty for nodes without edges."""

    indptr: NDArray[np.int64]  # [num_nodes + 1]
    rows: NDArray[np.int32]  # [num_entries]: the row of each entry
    indices: NDArray[np.int32]  # [num_entries]: its column, rising within a row
    values: NDArray[np.float32]  # [num_entries]

    def tensor(self, like: Tensor, *, dense: bool) -> Tensor:
        """[num_nodes, num_nodes] on the device and with the dtype of `like`."""
        num_nodes = len(self.indptr) - 1
        cells = torch.from_numpy(np.stack([self.rows, self.indices]).astype(np.int64)).to(like.device)
        values = torch.from_numpy(self.values).to(like.device, like.dtype)
        if dense:
            return values.new_zeros(num_nodes, num_nodes).index_put_((cells[0], cells[1]), values)
        shape = (num_nodes, num_nodes)
        return torch.sparse_coo_tensor(cells, values, shape, is_coalesced=True, check_invariants=False)


@dataclass(frozen=True, slots=True)
class RandomWalks:
    """The slots I, P₁, …, P₁^K, P₂, …, P₂^K of a graph with `num_nodes` nodes."""

    num_nodes: int
    max_diffusion_step: int  # K
    walks: tuple[Walk, ...]
    native: _native.Walks = field(repr=False, compare=False)
    _made: dict[tuple[torch.device, torch.dtype], tuple[Tensor, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(
        cls, edge_index: NDArray[np.int32], edge_weight: NDArray[np.float32], num_nodes: int, max_diffusion_step: int
    ) -> "RandomWalks":
        """The walks along edges [2, num_edges] from row 0 to row 1 with weights [num_edges], and against them."""
        sources, targets = edge_index.astype(np.int64)
        walks = (_walk(sources, targets, edge_weight, num_nodes), _walk(targets, sources, edge_weight, num_nodes))
        stacked = np.concatenate([walks[0].indptr, walks[0].indptr[-1] + walks[1].indptr[1:]])
        indices, values = (np.concatenate([getattr(walk, name) for walk in walks]) for name in ("indices", "values"))
        native = _native.Walks(stacked, indices, values, num_nodes, max_diffusion_step)
        return cls(num_nodes, max_diffusion_step, walks, native)

    @classmethod
    def identity(cls, num_nodes: int, max_diffusion_step: int) -> "RandomWalks":
        """Every node leads to itself alone: the ablation without a graph, with as many weights."""
        loops = np.arange(num_nodes, dtype=np.int32)
        return cls.of(np.stack([loops, loops]), np.ones(num_nodes, np.float32), num_nodes, max_diffusion_step)

    @property
    def num_slots(self) -> int:
        """Number of slots: 1 + directions × steps."""
        return 1 + len(self.walks) * self.max_diffusion_step

    @property
    def density(self) -> float:
        """Share of entries that are not 0."""
        return float(sum(len(walk.values) for walk in self.walks) / (len(self.walks) * self.num_nodes**2))

    def tensors(self, like: Tensor) -> tuple[Tensor, ...]:
        """P₁ and P₂ on the device and with the dtype of `like`, dense or sparse by density; dense for a compiler."""
        if torch.compiler.is_compiling():
            return tuple(walk.tensor(like, dense=True) for walk in self.walks)
        where = (like.device, like.dtype)
        if where not in self._made:
            self._made[where] = tuple(walk.tensor(like, dense=self.density >= _DENSE_FROM) for walk in self.walks)
        return self._made[where]


def _walk(sources: NDArray[np.int64], targets: NDArray[np.int64], weights: NDArray[np.float32], num_nodes: int) -> Walk:
    """Row-normalised weights of the edges; the weights of an edge that is there twice add up."""
    cells, cell_of_edge = np.unique(sources * num_nodes + targets, return_inverse=True)
    summed = np.bincount(cell_of_edge, weights=weights.astype(np.float64), minlength=len(cells))
    cells, summed = cells[summed > 0], summed[summed > 0]
    rows = cells // num_nodes
    degrees = np.bincount(rows, weights=summed, minlength=num_nodes)
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=indptr[1:])
    of_rows, of_columns = rows.astype(np.int32), (cells % num_nodes).astype(np.int32)
    return Walk(indptr, of_rows, of_columns, (summed / degrees[rows]).astype(np.float32))


class DcgruCell(nn.Module):
    """new_h = u ∘ h + (1 - u) ∘ tanh(V [x ; r ∘ h] + d) with [r ; u] = σ(W [h ; x] + b), all products diffusion
    convolutions.

    Columns of a weight are slots × channels: for `gate_weight` those of h first, then x; for `candidate_weight` those
    of x first, then r ∘ h.
    """

    def __init__(self, *, channels: int, units: int, num_slots: int) -> None:
        super().__init__()
        self.channels, self.units, self.num_slots = channels, units, num_slots
        width = num_slots * (units + channels)
        self.gate_weight = nn.Parameter(torch.empty(2 * units, width))
        self.gate_bias = nn.Parameter(torch.ones(2 * units))
        self.candidate_weight = nn.Parameter(torch.empty(units, width))
        self.candidate_bias = nn.Parameter(torch.zeros(units))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Xavier-uniform weights; gates start open (bias 1), as the authors' do."""
        for weight in (self.gate_weight, self.candidate_weight):
            nn.init.xavier_uniform_(weight, generator=generator)
        nn.init.ones_(self.gate_bias)
        nn.init.zeros_(self.candidate_bias)

    def at(self, walks: RandomWalks) -> "CellAt":
        """The cell on a graph with its weights as they are now, made ready for all steps of a sequence."""
        weights = (self.gate_weight, self.gate_bias, self.candidate_weight, self.candidate_bias)
        if (
            is_native(self.gate_weight)
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()  # a compiler sees into torch's arithmetic, and fuses it
        ):
            packed = _native.DcgruWeights(
                gate_weight=self.gate_weight.detach(),
                gate_bias=self.gate_bias.detach(),
                candidate_weight=self.candidate_weight.detach(),
                candidate_bias=self.candidate_bias.detach(),
                num_slots=walks.num_slots,
            )
            return _NativeCell(walks, weights, packed, torch.get_num_threads())
        return _TorchCell(walks.tensors(self.gate_weight), walks, weights)


@dataclass(frozen=True, slots=True)
class _NativeCell:
    walks: RandomWalks
    weights: tuple[nn.Parameter, ...]
    packed: _native.DcgruWeights
    threads: int

    def __call__(self, x: Tensor, h: Tensor) -> Tensor:
        """x [samples, nodes, channels], h [samples, nodes, units] → new h."""
        new_h: Tensor = _Step.apply(x, h, *self.weights, self)  # type: ignore[no-untyped-call]  # torch: unannotated
        return new_h


@dataclass(frozen=True, slots=True)
class _TorchCell:
    matrices: tuple[Tensor, ...]
    walks: RandomWalks
    weights: tuple[nn.Parameter, ...]

    def __call__(self, x: Tensor, h: Tensor) -> Tensor:
        """x [samples, nodes, channels], h [samples, nodes, units] → new h."""
        gate_weight, gate_bias, candidate_weight, candidate_bias = self.weights
        slots_of_x = self._diffuse(x)
        gates = F.linear(torch.cat([*self._diffuse(h), *slots_of_x], dim=2), gate_weight, gate_bias)
        reset, update = gates.sigmoid().chunk(2, dim=2)
        candidate = F.linear(
            torch.cat([*slots_of_x, *self._diffuse(reset * h)], dim=2), candidate_weight, candidate_bias
        ).tanh()
        return candidate + update * (h - candidate)

    def _diffuse(self, x: Tensor) -> list[Tensor]:
        samples, nodes, width = x.shape
        by_node = x.transpose(0, 1).reshape(nodes, samples * width)
        slots = [x]
        for matrix in self.matrices:
            current = by_node
            for _ in range(self.walks.max_diffusion_step):
                current = matrix @ current
                slots.append(current.view(nodes, samples, width).transpose(0, 1))
        return slots


CellAt = _NativeCell | _TorchCell


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, *weights_and_cell: Any) -> Tensor:  # noqa: ANN401
        cell: _NativeCell = weights_and_cell[-1]
        units = h.shape[-1]
        x_rows, h_rows = x.detach().flatten(0, 1).contiguous(), h.detach().flatten(0, 1).contiguous()
        gates, candidate = h_rows.new_empty(len(h_rows), 2 * units), torch.empty_like(h_rows)
        new_h = torch.empty_like(h_rows)
        _native.dcgru_forward(
            cell.walks.native,
            cell.packed,
            capsule(x_rows),
            capsule(h_rows),
            capsule(gates),
            capsule(candidate),
            capsule(new_h),
            cell.threads,
        )
        ctx.save_for_backward(x, h, gates, candidate, *weights_and_cell[:-1])
        ctx.cell = cell
        return new_h.view(h.shape)

    @staticmethod
    @partial(differentiated_once, "the step of DCRNN")
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, h, gates, candidate, *weights = ctx.saved_tensors
        x, h = x.detach().flatten(0, 1).contiguous(), h.detach().flatten(0, 1).contiguous()
        cell: _NativeCell = ctx.cell
        grad_new = grads[0].reshape(h.shape)
        grad_h, grad_x = torch.empty_like(h), torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_weights = [torch.zeros_like(weight) for weight in weights]
        _native.dcgru_backward(
            cell.walks.native,
            cell.packed,
            capsule(x),
            capsule(h),
            capsule(gates),
            capsule(candidate),
            capsule(grad_new),
            capsule(grad_h),
            capsule(grad_x),
            grad_gate_weight=capsule(of_weights[0]),
            grad_gate_bias=capsule(of_weights[1]),
            grad_candidate_weight=capsule(of_weights[2]),
            grad_candidate_bias=capsule(of_weights[3]),
            num_threads=cell.threads,
        )
        shape = grads[0].shape[:-1]
        of_x = None if grad_x is None else grad_x.view(*shape, x.shape[1])
        return of_x, grad_h.view(*shape, h.shape[1]), *of_weights, None
