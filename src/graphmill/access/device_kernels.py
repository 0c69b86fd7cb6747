"""What a GPU must be able to do for its graph: draw neighbourhoods, gather rows from two places, take means of rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphmill.device.kernels import DeviceKernels, cuda_kernels
from graphmill.device.rows import RowTables, gather
from graphmill.device.sampling import DeviceSampler, SampledOnDevice
from graphmill.device.structures import DeviceColumns
from graphmill.graph.sampled import SeedIds

_ROWS_AT_A_TIME: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class DeviceTopology:
    """In-neighbours of every node, where a GPU can read them: in its own memory, or page-locked."""

    indptr: Tensor  # int64 [num_nodes + 1]
    indices: Tensor  # int32 or int64 [num_entries]


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Features in two places: the hottest rows on the device, the others page-locked."""

    hot: Tensor  # [num_hot, num_features], on the device
    cold: Tensor  # [num_nodes - num_hot, num_features], page-locked
    place: Tensor | None  # int64 [num_nodes], on the device: its row in `hot`, from len(hot) on in `cold`; None: its id


class RowStore(Protocol):
    """Rows of features of all nodes, wherever they lie for a GPU."""

    @property
    def num_columns(self) -> int:
        """Columns of a row."""

    def gather(self, ids: Tensor) -> Tensor:
        """Rows of `ids` int64 [n] on the device → float32 [n, num_columns] there."""


@dataclass(frozen=True, slots=True)
class DeviceHood:
    """A neighbourhood as `_native.Neighbourhood` has it, in memory of the device."""

    node_ids: Tensor  # int64 [n]
    indptr: Tensor  # int64 [rows of all hops + 1]
    indices: Tensor  # int32 [num_edges]
    num_nodes_per_hop: tuple[int, ...]
    num_edges_per_hop: tuple[int, ...]
    num_rows_per_hop: tuple[int, ...]


class GraphKernels(Protocol):
    """Kernels that sample and read rows on a device; results are bit-identical to the native core's on any device."""

    def sample(
        self, topology: DeviceTopology, seeds: SeedIds, fanouts: Sequence[int], key: int, *, resample: bool
    ) -> DeviceHood:
        """The neighbourhood of distinct `seeds` [n], drawn as `sample.neighbor.WholeSampler` draws it."""

    def in_neighbours(self, topology: DeviceTopology, nodes: Tensor, num_edges: int, *, resample: bool) -> DeviceHood:
        """One hop of all in-neighbours of distinct `nodes` [n] on the device, which have `num_edges`."""

    def gather(self, rows: SplitRows, ids: Tensor) -> Tensor:
        """Rows of `ids` [n] → float32 [n, num_features] on the device, each read once from where it is."""

    def self_and_mean(self, x: Tensor, indptr: Tensor, indices: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of `x` float32 [n, c], each beside the mean of its neighbours' → `dtype` [len(indptr) - 1, 2 c]."""


@dataclass(frozen=True, slots=True)
class SplitRowStore:
    """`RowStore` of rows in two places, which kernels gather."""

    kernels: GraphKernels
    rows: SplitRows

    @property
    def num_columns(self) -> int:
        """Columns of a row."""
        return self.rows.hot.shape[1]

    def gather(self, ids: Tensor) -> Tensor:
        """Gather rows as `RowStore.gather` says."""
        return self.kernels.gather(self.rows, ids)


def kernels_of(device: torch.device) -> GraphKernels:
    """Kernels of the GPU `device`; `UserError` where there are none."""
    return LaunchedKernels(cuda_kernels(device))


@dataclass(slots=True)
class LaunchedKernels:
    """Kernels of `graphmill.device`, on a GPU or through their shim; means by torch's, in the order of edges."""

    kernels: DeviceKernels
    _drawn_of: DeviceTopology | None = None
    _samplers: dict[bool, DeviceSampler] = field(default_factory=dict)  # of that topology, by `resample`

    def sample(
        self, topology: DeviceTopology, seeds: SeedIds, fanouts: Sequence[int], key: int, *, resample: bool
    ) -> DeviceHood:
        """Sample as `GraphKernels.sample` says. The calling thread waits for the sizes of what was drawn."""
        return _hood(self._sampler(topology, resample=resample).sample(torch.from_numpy(seeds), fanouts, key))

    def in_neighbours(self, topology: DeviceTopology, nodes: Tensor, num_edges: int, *, resample: bool) -> DeviceHood:
        """Find what `GraphKernels.in_neighbours` says; the calling thread waits once, for the number of nodes."""
        return _hood(self._sampler(topology, resample=resample).sample(nodes, (-1,), 0, num_edges))

    def gather(self, rows: SplitRows, ids: Tensor) -> Tensor:
        """Gather rows as `GraphKernels.gather` says."""
        tables = RowTables(rows.hot, rows.cold if len(rows.cold) else None)
        span = torch.zeros(2, dtype=torch.int64, device=ids.device)
        span[1:] = len(ids)  # by a kernel: nothing is copied from the host
        return gather(self.kernels, tables, ids if rows.place is None else rows.place[ids], span)

    def self_and_mean(self, x: Tensor, indptr: Tensor, indices: Tensor, dtype: torch.dtype) -> Tensor:
        """Compute `GraphKernels.self_and_mean`: neighbours are added up in edge order, as the native core does."""
        width, degrees = x.shape[1], indptr.diff()
        sums = F.embedding_bag(indices.long(), x, indptr, mode="sum", include_last_offset=True)
        shares = torch.where(degrees > 0, degrees.float().reciprocal(), 0.0)
        out = torch.empty(len(degrees), 2 * width, dtype=dtype, device=x.device)
        out[:, :width] = x[: len(degrees)]
        out[:, width:] = sums * shares.unsqueeze(1)
        return out

    def _sampler(self, topology: DeviceTopology, *, resample: bool) -> DeviceSampler:
        if self._drawn_of is not topology:
            self._drawn_of, self._samplers = topology, {}
        if resample not in self._samplers:
            columns = DeviceColumns(
                indptr=topology.indptr, indices=topology.indices, num_sources=len(topology.indptr) - 1
            )
            self._samplers[resample] = DeviceSampler(self.kernels, columns, resample=resample)
        return self._samplers[resample]


def copied_rows(table: Tensor, rows: NDArray[np.int64], out: Tensor) -> Tensor:
    """Rows of a mapped table in `out`, wherever that is, with little memory besides."""
    for begin in range(0, len(rows), _ROWS_AT_A_TIME):
        part = torch.from_numpy(rows[begin : begin + _ROWS_AT_A_TIME])
        out[begin : begin + len(part)].copy_(table[part])
    return out


def _hood(sampled: SampledOnDevice) -> DeviceHood:
    """Cut to its sizes, which the calling thread waits for."""
    hood = sampled.trimmed()
    return DeviceHood(
        node_ids=hood.node_ids,
        indptr=hood.indptr,
        indices=hood.indices,
        num_nodes_per_hop=tuple(hood.num_nodes_per_hop),
        num_edges_per_hop=tuple(hood.num_edges_per_hop),
        num_rows_per_hop=tuple(hood.num_rows_per_hop),
    )
