"""Sampling around seeds in a graph without types: what `sample.neighbor.WholeSampler` computes, on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from graphmill import _native
from graphmill.device.growth import BatchEdges, BatchNodes, sample_hop, seeds_on_device
from graphmill.device.kernels import DeviceKernels, HopRows
from graphmill.device.numbers import NodeNumbers
from graphmill.device.structures import DeviceColumns, HopRule


@dataclass(frozen=True, slots=True)
class SampledOnDevice:
    """A neighbourhood as `graphmill._native.NeighborSampler` lays it out, in tensors with room behind what they hold.

    `sizes` says how much that is. Copied to the host without waiting, and read when the batch is taken, it costs no
    wait; then `trimmed` cuts the tensors to it.
    """

    node_ids: Tensor  # int64
    indptr: Tensor  # int64
    indices: Tensor  # int32
    edge_ids: Tensor  # int64: positions in the columns
    sizes: Tensor  # int64 [3, hops + 1], on the device: nodes, rows, edges up to each hop

    def trimmed(self, sizes: Sequence[Sequence[int]] | None = None) -> "TrimmedNeighbourhood":
        """Cut to what it holds.

        Args:
            sizes: a copy of `sizes` on the host; None: the host waits for it now.
        """
        nodes, rows, edges = (list(one) for one in (self.sizes.tolist() if sizes is None else sizes))
        return TrimmedNeighbourhood(
            node_ids=self.node_ids[: nodes[-1]],
            indptr=self.indptr[: rows[-1] + 1],
            indices=self.indices[: edges[-1]],
            edge_ids=self.edge_ids[: edges[-1]],
            num_nodes_per_hop=[nodes[0], *_differences(nodes)],
            num_rows_per_hop=_differences(rows),
            num_edges_per_hop=_differences(edges),
        )


@dataclass(frozen=True, slots=True)
class TrimmedNeighbourhood:
    """A neighbourhood, field for field `_native.Neighbourhood`, in views of the device's tensors."""

    node_ids: Tensor
    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor
    num_nodes_per_hop: list[int]
    num_rows_per_hop: list[int]
    num_edges_per_hop: list[int]


def _differences(ends: list[int]) -> list[int]:
    return [end - begin for begin, end in pairwise(ends)]


class DeviceSampler:
    """Samples in-neighbours hop by hop; batches are bit-identical to those of `_native.NeighborSampler`."""

    def __init__(self, kernels: DeviceKernels, columns: DeviceColumns, *, resample: bool) -> None:
        """Sample from a graph that the device reads.

        Args:
            kernels: of the device.
            columns: with a row for each node; weights and times are taken into account if there are any.
            resample: each hop has a row for every node known before it (DGL's blocks), not only for new ones (PyG's).
        """
        self.kernels = kernels
        self.columns = columns
        self._resample = resample
        self._numbers = NodeNumbers(kernels, columns.num_sources)

    def sample(self, seeds: Tensor, fanouts: Sequence[int], key: int, num_edges: int | None = None) -> SampledOnDevice:
        """The neighbourhood of seeds.

        Args:
            seeds: int64 [n], distinct; from the host they are checked, and copied without waiting if page-locked.
            fanouts: first hop first; -1 takes all in-edges, and has the host wait for their number.
            key: of the batch.
            num_edges: of a single hop of all in-edges, whose number is known: the host does not wait for it then.

        Returns:
            With room behind what the tensors hold.
        """
        kernels = self.kernels
        on_device = seeds_on_device(kernels, seeds, self.columns.num_sources, distinct=True)
        nodes, edges = BatchNodes(kernels, self._numbers, is_disjoint=False), BatchEdges(kernels)
        nodes.place_seeds(on_device, 0)
        nodes.most = self.columns.num_sources  # seeds are distinct
        nodes.end_hop(len(on_device))
        node_ends, row_ends, edge_ends = [nodes.count], [kernels.zeros(1, torch.int64)], [edges.count]
        row_room, indptr = 0, kernels.zeros(1, torch.int64)
        for hop, fanout in enumerate(fanouts):
            rows = self._rows(nodes)
            outcome = sample_hop(
                kernels,
                self.columns,
                rows,
                HopRule(fanout),
                _native.subkey(key, hop),
                sources=nodes,
                edges=edges,
                with_targets=False,
                num_edges=num_edges,
            )
            nodes.end_hop(outcome.room)
            row_room += rows.room
            indptr = torch.cat([indptr, kernels.empty(row_room + 1 - len(indptr), torch.int64)])
            kernels.append(outcome.ends[1:], rows.span, row_ends[-1], indptr[1:])
            node_ends.append(nodes.count)
            row_ends.append(row_ends[-1] + rows.span.diff())
            edge_ends.append(edges.count)
        nodes.clear()
        sizes = torch.cat([*node_ends, *row_ends, *edge_ends]).view(3, -1)
        return SampledOnDevice(nodes.ids.values, indptr, edges.sources.values, edges.positions.values, sizes)

    def _rows(self, nodes: BatchNodes) -> HopRows:
        if not self._resample:
            return HopRows(nodes.ids.values, nodes.span, nodes.hop_room)
        whole = torch.cat([torch.zeros_like(nodes.count), nodes.count])
        return HopRows(nodes.ids.values, whole, nodes.room)
