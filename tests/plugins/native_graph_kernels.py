"""The native core as the kernels of a device that is the CPU: which bits a GPU's kernels owe."""

from dataclasses import dataclass

import numpy as np
import torch

from graphmill import _native
from graphmill.access.device_kernels import DeviceHood, DeviceTopology


@dataclass(slots=True)
class NativeKernels:
    """`GraphKernels` on tensors of the CPU."""

    num_threads: int = 1
    _drawn_of: DeviceTopology | None = None
    _sampler: _native.NeighborSampler | None = None

    def sample(self, topology, seeds, fanouts, key, *, resample):
        """As the protocol's."""
        if self._sampler is None or self._drawn_of is not topology:
            self._sampler = _native.NeighborSampler(topology.indptr, topology.indices, self.num_threads)
            self._drawn_of = topology
        hood = self._sampler.sample(seeds, fanouts, key, resample=resample, num_threads=self.num_threads)
        return DeviceHood(
            node_ids=torch.from_numpy(hood.node_ids),
            indptr=torch.from_numpy(hood.indptr),
            indices=torch.from_numpy(hood.indices),
            num_nodes_per_hop=tuple(hood.num_nodes_per_hop),
            num_edges_per_hop=tuple(hood.num_edges_per_hop),
            num_rows_per_hop=tuple(hood.num_rows_per_hop),
        )

    def in_neighbours(self, topology, nodes, num_edges, *, resample):
        """As the protocol's."""
        hood = self.sample(topology, nodes.numpy(), (-1,), 0, resample=resample)
        assert hood.num_edges_per_hop == (num_edges,)
        return hood

    def gather(self, rows, ids):
        """As the protocol's."""
        places, num_hot = ids if rows.place is None else rows.place[ids], len(rows.hot)
        out = torch.empty(len(ids), rows.hot.shape[1])
        is_hot = places < num_hot
        out[is_hot] = rows.hot[places[is_hot]].float()
        out[~is_hot] = rows.cold[places[~is_hot] - num_hot].float()
        return out

    def self_and_mean(self, x, indptr, indices, dtype):
        """As the protocol's."""
        out = torch.empty(len(indptr) - 1, 2 * x.shape[1], dtype=dtype)
        ids = np.arange(len(x))
        _native.gather_self_and_mean(x, ids[: len(out)], ids, indptr, indices, out, self.num_threads)
        return out
