"""Blocks of rows for exact inference of a graph that lies for a GPU: drawn, gathered and averaged there.

Neighbours are added up in the order of edges, as on the CPU: sums are bit-identical. Hidden rows lie on the device
where they fit into what the plan gives the graph, else page-locked, to be read over the bus.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.access.device_kernels import DeviceHood, DeviceTopology, GraphKernels, RowStore, SplitRows
from graphmill.graph.batch import on_device

LEAST_PIECE_BYTES: Final = 64 << 20
_EDGE_BYTES: Final = 64  # of a drawn edge, at most, while it is relabelled: more than while rows are averaged


@dataclass(frozen=True, slots=True)
class ResidentBlocks:
    """`layerwise.BlockRows` of a device."""

    kernels: GraphKernels
    topology: DeviceTopology
    features: RowStore
    device: torch.device
    hidden_on: Literal["device", "page_locked"]
    piece_bytes: int  # of neighbours that are drawn and gathered together
    resample: bool  # as batches are drawn: a sampler of the device keeps 4 bytes of every node

    def zeros(self, num_rows: int, width: int, *, is_table: bool) -> Tensor:
        """Make room as `BlockRows.zeros` says. Host memory is page-locked only where kernels read it."""
        if self.hidden_on == "device":
            return torch.zeros(num_rows, width, device=self.device)
        return torch.zeros(num_rows, width, pin_memory=is_table and self.device.type == "cuda")

    def with_sources(self, ids: NDArray[np.int64], indptr: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find what `BlockRows.with_sources` says. The calling thread waits once for each piece, and at the end."""
        is_there = torch.zeros(len(self.topology.indptr) - 1, dtype=torch.bool, device=self.device)
        for first, last in self._pieces(indptr, 0):
            is_there.index_fill_(0, self._drawn(ids, indptr, first, last).node_ids, True)
        return np.flatnonzero(is_there.cpu().numpy())

    def self_and_mean(self, h: Tensor | None, ids: NDArray[np.int64], indptr: NDArray[np.int64]) -> Tensor:
        """Compute `BlockRows.self_and_mean`. The calling thread waits once for each piece."""
        width = self.features.num_columns if h is None else h.shape[1]
        out = torch.empty(len(ids), 2 * width, device=self.device)
        for first, last in self._pieces(indptr, 4 * width):
            hood = self._drawn(ids, indptr, first, last)
            x = self._rows(h, hood.node_ids)
            out[first:last] = self.kernels.self_and_mean(x, hood.indptr, hood.indices, torch.float32)
        return out

    def _drawn(self, ids: NDArray[np.int64], indptr: NDArray[np.int64], first: int, last: int) -> DeviceHood:
        nodes = on_device(torch.from_numpy(ids[first:last]), self.device)
        num_edges = int(indptr[last] - indptr[first])
        return self.kernels.in_neighbours(self.topology, nodes, num_edges, resample=self.resample)

    def _pieces(self, indptr: NDArray[np.int64], row_bytes: int) -> Iterator[tuple[int, int]]:
        """Rows of a block whose neighbours may be gathered together, one at least, with `row_bytes` of each.

        Neighbours count as if all were distinct. If all nodes' rows fit, they are no more than these: then edges alone
        count, and a piece takes twice its bytes at most. Smaller ones would each gather nearly the whole table anew.
        """
        bytes_to = _EDGE_BYTES * indptr
        if row_bytes * (len(self.topology.indptr) - 1) > self.piece_bytes:
            bytes_to = bytes_to + row_bytes * (np.arange(len(indptr)) + indptr)  # a row, and each of its neighbours
        first = 0
        while first < len(indptr) - 1:
            last = max(first + 1, int(np.searchsorted(bytes_to, bytes_to[first] + self.piece_bytes, side="right")) - 1)
            yield first, last
            first = last

    def _rows(self, h: Tensor | None, ids: Tensor) -> Tensor:
        if h is None:
            return self.features.gather(ids)
        if self.hidden_on == "device":
            return h[ids]
        return self.kernels.gather(SplitRows(torch.empty(0, h.shape[1], device=self.device), h, None), ids)
