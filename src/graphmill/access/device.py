"""A whole graph that lies for a GPU: in its memory as far as a budget goes, else page-locked and read over the bus.

Neighbourhoods are drawn and rows gathered on the device, in a thread and on a stream of their own, which alone wait for
the sizes of what was drawn. Batches, and exact inference, are bit-identical to those of `WholeGraph`. Statistics are
the CPU's, of the mapped files.
"""

import logging
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.access.device_kernels import (
    DeviceHood,
    DeviceTopology,
    GraphKernels,
    RowStore,
    SplitRows,
    SplitRowStore,
    copied_rows,
)
from graphmill.access.device_sweep import LEAST_PIECE_BYTES, ResidentBlocks
from graphmill.access.graph import Collects, Ids, LayerwiseModel, SeedNodes
from graphmill.access.layerwise import LayerwiseInference
from graphmill.access.spec import AccessSpec, GpuGraph
from graphmill.access.whole import WholeGraph
from graphmill.access.wholegraph import WholeGraphRows
from graphmill.graph.batch import Block, DenseRows, Inputs, MiniBatch, SelfAndMean, on_device
from graphmill.graph.features import DenseFeatures
from graphmill.graph.keys import Purpose
from graphmill.graph.sampled import AnySeeds, NodeIds, Sampled
from graphmill.graph.topology import Topology
from graphmill.partition.inclusion import vertex_inclusion
from graphmill.sample.collect import Collector, Fetched, NeighbourSource, WholeTables
from graphmill.spec.columns import Cell
from graphmill.spec.device_memory import LaidOut, lay_out
from graphmill.spec.modelled import sizes_of
from graphmill.sync.pause import Pause

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DrawnOnDevice(Sampled):
    """A neighbourhood whose blocks are on the device alone; its ids are on the host as well, for keyed draws."""

    hood: DeviceHood
    resample: bool


@dataclass(slots=True)
class Lane:
    """The device's own order of work for batches: a stream on a GPU, nothing on the CPU."""

    device: torch.device
    stream: torch.cuda.Stream | None = None

    def __post_init__(self) -> None:
        if self.device.type == "cuda":
            self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]  # unannotated

    def __call__(self) -> AbstractContextManager[object]:
        """Context in which work is queued on this lane."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def wait(self) -> None:
        """Wait until all work on this lane is done: in the thread that makes batches, never in that of steps."""
        if self.stream is not None:
            self.stream.synchronize()


@dataclass(slots=True)
class DeviceGraph:
    """`GraphSource` of a graph that a device holds or reads over the bus."""

    spec: AccessSpec
    gpu: GpuGraph
    whole_graph: WholeGraph
    kernels: GraphKernels
    laid_out: LaidOut
    lane: Lane
    drawn_of: DeviceTopology
    piece_bytes: int  # of rows that exact inference gathers together: no more than a batch has, unless that is little
    rows: RowStore | None = None  # once `warm_up` has laid them out

    owners: ClassVar[None] = None
    window: ClassVar[int] = 1
    windows_ahead: ClassVar[int] = 0
    sampled_together: ClassVar[int] = 1
    is_shared: ClassVar[bool] = False

    @classmethod
    def of(cls, spec: AccessSpec, whole_graph: WholeGraph, gpu: GpuGraph, kernels: GraphKernels) -> "DeviceGraph":
        """Lay a mapped graph out within what `gpu` gives it of its group's device; `UserError` if that cannot be."""
        topology, device = whole_graph.topology, whole_graph.group.device
        planned, x = sizes_of(spec.plan).resident, _dense(whole_graph).x
        assert planned is not None, "the plan was refused"
        sharing = whole_graph.group.world_size // whole_graph.group.num_hosts if gpu.rows == "wholegraph" else 1
        if gpu.rows == "wholegraph" and sharing == 1:
            _log.warning("train.gpu_rows is wholegraph, and no other rank is on this host: its GPU has rows of its own")
        # Of this group's ranks, not of the plan's: one process may evaluate what many have trained.
        known = replace(
            planned, num_entries=len(topology.indices), row_bytes=x.shape[1] * x.itemsize, num_sharing=sharing
        )
        laid_out = lay_out(known, gpu.num_bytes, steps=spec.plan.calendar.length(0), batch_bytes=0)
        place = _resident if laid_out.topology_on == "device" else _page_locked
        arrays = (place(_tensor(each), device) for each in (topology.indptr, topology.indices))
        piece_bytes = max(sum(planned.hops) * planned.row_bytes, LEAST_PIECE_BYTES)
        return cls(spec, gpu, whole_graph, kernels, laid_out, Lane(device), DeviceTopology(*arrays), piece_bytes)

    @property
    def tables(self) -> WholeTables:
        """The mapped tables, for what the CPU draws."""
        return self.whole_graph.tables

    @property
    def topology(self) -> Topology:
        """Topology of the graph, as mapped on the host."""
        return self.whole_graph.topology

    def sampler(self, fanouts: tuple[int, ...], *, resample: bool) -> NeighbourSource:
        """Sampler that draws on the device."""
        return ResidentSampler(self, fanouts, resample)

    def collecting(self, collector: Collector) -> Collects:
        """Collector that makes batches of what is drawn on the device there, and leaves the others to `collector`."""
        return ResidentCollector(self, collector)

    def statistics(self, nodes: Ids) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and deviation of the features as stored."""
        return self.whole_graph.statistics(nodes)

    def sweep(self, model: LayerwiseModel, nodes: Ids, pause: Pause) -> tuple[Ids, Tensor]:
        """This rank's contiguous share of `nodes` and their rows, computed layer by layer on the device."""
        assert self.rows is not None, "warm_up comes first"
        self.lane.wait()  # its kernels keep tables that these use, too
        device, hidden_on = self.whole_graph.group.device, self.laid_out.hidden_rows_on or "page_locked"
        _say_where(self.laid_out)
        blocks = ResidentBlocks(
            self.kernels, self.drawn_of, self.rows, device, hidden_on, self.piece_bytes, self.spec.resample
        )
        whole_graph = self.whole_graph
        return LayerwiseInference(
            model, whole_graph.topology, whole_graph.features, whole_graph.group, pause, blocks=blocks
        ).logits(nodes)

    def warm_up(self, sampler: NeighbourSource, seeds: SeedNodes, nodes: Ids, num_steps: int) -> None:
        """Lay out the rows: those that batches read most on the device, or all over the GPUs of a host."""
        if self.laid_out.num_sharing > 1:
            self.rows = WholeGraphRows.of(self._table(), self.whole_graph.group)
            return
        count, plan, device = self.laid_out.rows_on_device, self.spec.plan, self.whole_graph.group.device
        table = self._table()
        order = np.arange(len(table))
        if 0 < count < len(table):
            # Another number of ranks, as one that evaluates what many trained, would draw other batches than they.
            counted = self.gpu.rows == "presample" and self.whole_graph.group.world_size == plan.ranks
            hotness = self._presampled(sampler, seeds, num_steps) if counted else self._likelihood(nodes)
            order = np.argsort(-hotness, kind="stable")
        place = np.empty(len(table), dtype=np.int64)
        hot, cold = np.sort(order[:count]), np.sort(order[count:])
        place[hot], place[cold] = np.arange(count), np.arange(count, len(table))
        locks, width, dtype = device.type == "cuda" and count < len(table), table.shape[1], table.dtype
        rows = SplitRows(
            hot=copied_rows(table, hot, torch.empty(len(hot), width, dtype=dtype, device=device)),
            cold=copied_rows(table, cold, torch.empty(len(cold), width, dtype=dtype, pin_memory=locks)),
            place=_resident(torch.from_numpy(place), device),
        )
        self.rows = SplitRowStore(self.kernels, rows)

    def _likelihood(self, nodes: Ids) -> NDArray[np.float64]:
        """Probability of each node to be in a batch, computed (`vip`)."""
        plan = self.spec.plan
        return vertex_inclusion(
            self.topology, np.asarray(nodes), self.spec.fanouts, plan.batch_size, num_threads=plan.threads
        )

    def _presampled(self, sampler: NeighbourSource, seeds: SeedNodes, num_steps: int) -> Ids:
        """Number of this rank's batches in the run's first epoch that read each node: exact, since draws are keyed."""
        counts = np.zeros(self.topology.num_nodes, dtype=np.int64)
        for step in range(num_steps):
            learnt = seeds.schedule.seeds(0, step, self.whole_graph.group.rank)
            counts[sampler.sample(seeds.nodes_of(learnt)).node_ids] += 1
        return counts

    def _table(self) -> Tensor:
        """Rows of features as they are mapped."""
        features = _dense(self.whole_graph)
        return _tensor(features.x).view(torch.bfloat16) if features.dtype == "bfloat16" else _tensor(features.x)

    def mark(self) -> None:
        """Do nothing: no facts are counted."""

    def facts(self) -> Mapping[str, Cell]:
        """Return an empty mapping: no facts are counted."""
        return {}

    def received_bytes(self) -> None:
        """Return None: no other rank is asked."""


@dataclass(frozen=True, slots=True)
class ResidentSampler:
    """Draws on the device, keyed as `WholeSampler` is."""

    graph: DeviceGraph
    fanouts: tuple[int, ...]
    resample: bool

    def sample(self, seeds: AnySeeds) -> DrawnOnDevice:
        """The neighbourhood of `seeds`, which must be distinct."""
        graph = self.graph
        takes_all = all(fanout == -1 for fanout in self.fanouts)
        key = 0 if takes_all else seeds.key(graph.spec.plan.seed, Purpose.NEIGHBOURS)
        with graph.lane():
            hood = graph.kernels.sample(graph.drawn_of, seeds.ids, self.fanouts, key, resample=self.resample)
            node_ids = hood.node_ids.cpu().numpy()
        return DrawnOnDevice(
            seeds=seeds,
            node_ids=NodeIds(node_ids),
            blocks=(),
            edge_ids=np.empty(0, dtype=np.int64),
            num_nodes_per_hop=hood.num_nodes_per_hop,
            num_edges_per_hop=hood.num_edges_per_hop,
            hood=hood,
            resample=self.resample,
        )


@dataclass(frozen=True, slots=True)
class ResidentCollector:
    """Batches on the device of what was drawn there; of other neighbourhoods those of the CPU."""

    graph: DeviceGraph
    of_cpu: Collector
    _device: torch.device = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_device", self.graph.whole_graph.group.device)

    def collect(self, sampled: Sampled, fetched: Fetched) -> MiniBatch:
        """Make the batch; all of it is on the device, and done, when this returns."""
        if not isinstance(sampled, DrawnOnDevice):
            return self.of_cpu.collect(sampled, fetched)
        lane = self.graph.lane
        with lane():
            blocks = device_blocks(sampled.hood, resample=sampled.resample)
            batch = MiniBatch(
                seeds=sampled.seeds,
                node_ids=torch.from_numpy(sampled.node_ids),
                blocks=blocks,
                edge_attr=torch.empty(0, 0, device=self._device),
                num_nodes_per_hop=sampled.num_nodes_per_hop,
                num_edges_per_hop=sampled.num_edges_per_hop,
                inputs=self._inputs(sampled.hood, blocks[0]),
                labels=on_device(torch.from_numpy(self.of_cpu.labels[sampled.seeds.ids]), self._device),
                node_types=on_device(self.of_cpu.types_of(sampled), self._device),
            )
        lane.wait()
        return batch

    def _inputs(self, hood: DeviceHood, first: Block) -> Inputs:
        """Rows of distinct nodes cross the bus once; means are made of them on the device."""
        assert self.graph.rows is not None, "warm_up comes first"
        x = self.graph.rows.gather(hood.node_ids)
        if self.of_cpu.form == "self_and_mean":
            return SelfAndMean(self.graph.kernels.self_and_mean(x, first.indptr, first.indices, self.of_cpu.dtype))
        return DenseRows(x.to(self.of_cpu.dtype))


def device_blocks(hood: DeviceHood, *, resample: bool) -> tuple[Block, ...]:
    """A block per layer, the first layer first, each with its own edges from 0: as `Block.to` leaves them on a GPU.

    Where edges begin is known from the hops' counts, so no value is read from the device.
    """
    row_ends, edge_ends = list(accumulate(hood.num_rows_per_hop)), list(accumulate(hood.num_edges_per_hop))
    found = []
    for hop, (row_end, edge_end) in enumerate(zip(row_ends, edge_ends, strict=True)):
        row, edge = (row_ends[hop - 1], edge_ends[hop - 1]) if resample and hop else (0, 0)
        found.append(Block(hood.indptr[row : row_end + 1] - edge, hood.indices[edge:edge_end]))
    return tuple(reversed(found))


@cache
def _say_where(laid_out: LaidOut) -> None:
    if laid_out.hidden_rows_on is not None:
        where = {"device": "on the GPU", "page_locked": "page-locked, and read over the bus"}[laid_out.hidden_rows_on]
        size = f"{laid_out.hidden_rows_mib:,.0f} MiB at most"
        _log.info(f"exact evaluation runs on the GPU; rows of hidden layers, {size}, are {where}")


def _dense(whole_graph: WholeGraph) -> DenseFeatures:
    assert isinstance(whole_graph.features, DenseFeatures), "the plan was refused for sparse ones"
    return whole_graph.features


def _tensor(array: NDArray[Any]) -> Tensor:
    """Tensor that shares the memory of a read-only mapped array, so it is read only too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch has no tensors that cannot be written to, and says so
        return torch.from_numpy(array)


def _resident(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device)


def _page_locked(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.pin_memory() if device.type == "cuda" and tensor.numel() else tensor
