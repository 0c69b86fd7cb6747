"""Random walks on a road graph, in both directions: what a diffusion convolution multiplies with.

The walks are those of the paper (Li et al. 2018, eq. 2): P₁ = D_O⁻¹ W along the edges and P₂ = D_I⁻¹ Wᵀ against them,
each as plain powers P, P², …, P^K besides the identity. The authors' code differs twice: it multiplies with the
transposes of these, and it takes Chebyshev polynomials whose recursion continues from one direction into the other.
Powers up to K span the same space as the polynomials of one direction, and mix nothing across directions.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native

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
