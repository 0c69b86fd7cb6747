"""Where a whole graph lies for a GPU that draws its neighbourhoods, and what then crosses the bus. Pure arithmetic.

Topology is on the GPU, or page-locked on the host; what is left holds rows of features, the hottest first, and other
rows are page-locked too, and read over the bus (UVA). Of the two ways that is taken which moves fewer bytes: over the
bus a neighbour costs a sector for its four bytes, and a large topology on the GPU costs the room of many rows.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from pydantic import Field

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec

GIB: Final = 1 << 30
_MIB: Final = 1 << 20
RESERVED_BYTES: Final = GIB  # the driver's context, code of kernels, rounding of the allocator: assumed, not measured
NODE_BYTES: Final = 12  # of each node: where its row lies, and its number in a batch
SECTOR: Final = 32  # bytes that one read over the bus moves at least: CUDA C++ best practices guide, memory
_BATCHES_BEYOND_PREFETCH: Final = 3  # in making, copied, computed on: see `sample.collect`
_LARGE_IDS: Final = 1 << 31
_COPIES_OF_ROWS: Final = 3
_BYTES_OF_WANTED: Final = 9  # of each node, while exact evaluation finds the rows that it needs, and their ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentGraph:
    """A graph that is stored whole, and what one batch of a rank reads of it at most."""

    num_nodes: int
    num_entries: int  # edges in the directions that messages pass along, at most
    row_bytes: int  # of a node's dense features
    hops: tuple[int, ...]  # nodes of a batch at most: seeds, hop 1, …
    num_drawn: int  # neighbours drawn for it
    layers: tuple[int, ...] = ()  # columns of what each gives, if exact evaluation computes one after the other
    head_channels: int = 0  # columns that a head gives of the rows of all layers; 0: the last one gives the result
    refused: str = ""  # why a GPU cannot draw of it, in words; "": it can
    num_sharing: int = 1  # GPUs of a host that its rows of features are spread over; 1: each has its own

    @property
    def topology_bytes(self) -> int:
        """Offsets of 8 bytes, and ids of 4, or of 8 where there are 2³¹ nodes."""
        return 8 * (self.num_nodes + 1) + (8 if self.num_nodes >= _LARGE_IDS else 4) * self.num_entries

    @property
    def feature_bytes(self) -> int:
        """Bytes of all rows of features."""
        return self.num_nodes * self.row_bytes

    @property
    def fixed_bytes(self) -> int:
        """What is on the GPU wherever the rest lies."""
        return self.num_nodes * NODE_BYTES

    @property
    def hidden_bytes(self) -> int:
        """Bytes of rows of layers while exact evaluation needs them, at most.

        A layer reads its table; its rows are computed, gathered of all ranks, and put in the order of nodes by their
        ids: the last one's are only computed. Where a head reads all layers, all their tables stay.
        """
        *hidden, last = self.layers or (0,)
        held = list(accumulate(hidden, initial=0)) if self.head_channels else [0, *hidden]  # before each layer
        columns = [read + _COPIES_OF_ROWS * made for read, made in zip(held, hidden, strict=False)]
        return self.num_nodes * (4 * max([*columns, held[-1] + last + self.head_channels]) + _BYTES_OF_WANTED)


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What training holds on a GPU besides the graph, at most; bytes."""

    model: int  # parameters, gradients, moments, and what the scheme keeps
    batch: int
    activations: int
    prefetch: int  # batches that are made ahead

    @property
    def num_bytes(self) -> int:
        """Bytes of model, batches and activations together."""
        return self.model + self.batch * (self.prefetch + _BATCHES_BEYOND_PREFETCH) + self.activations


class LaidOut(Spec):
    """Where a graph lies, and what that costs of the bus: at most, by formula. MiB are 2²⁰ bytes."""

    graph_gib: float = Field(description="GPU memory that the graph may have: train.gpu_graph_gib")
    topology_on: Literal["device", "page_locked"]
    topology_mib: float
    rows_on_device: int = Field(description="the hottest; of all GPUs that share them")
    num_sharing: int = Field(1, description="GPUs of a host that these rows are spread over; 1: each has its own")
    rows_page_locked: int
    device_mib: float = Field(description="of the graph, on the GPU")
    page_locked_mib: float = Field(description="of the graph, in memory of the host that the system cannot drop")
    bus_mib_per_step: float = Field(description="read by the GPU at most, each distinct row of a batch once")
    bus_mib_per_epoch: float
    host_bus_mib_per_step: float = Field(description="copied at most where the CPU draws and gathers: whole batches")
    hidden_rows_on: Literal["device", "page_locked"] | None = Field(
        description="where exact evaluation keeps rows of hidden layers; null: it has none"
    )
    hidden_rows_mib: float = Field(description="of them at most, within graph_gib if they are on the GPU")


def lay_out(graph: ResidentGraph, graph_bytes: int, *, steps: int, batch_bytes: int) -> LaidOut:
    """Split a graph between a GPU and page-locked memory.

    Args:
        graph: that is stored whole.
        graph_bytes: of GPU memory that it may have.
        steps: of an epoch, for this GPU.
        batch_bytes: of a batch at most, as the CPU makes it.

    Returns:
        What lies where. Hot rows are read at least as often as the mean row, so their share of reads is at least
        their share of rows; that is what the bytes of the bus go by.

    Raises:
        UserError: a GPU cannot draw of such a graph, or not even the tables by node fit.
    """
    if graph.refused:
        raise UserError(graph.refused, fix="leave train.gpu_graph_gib and --gpu-memory out: the CPU draws and gathers")
    room = graph_bytes - graph.fixed_bytes
    if room < 0:
        needed = graph.fixed_bytes / GIB
        raise UserError(
            f"the graph may have {graph_bytes / GIB:.2f} GiB of a GPU, and tables by node alone take {needed:.2f} GiB",
            fix=f"set train.gpu_graph_gib={needed + 0.01:.2f} or more, or leave it out: the CPU draws and gathers",
        )
    ways = [False] if graph.topology_bytes > room else [True, False]
    found = [_way(graph, graph_bytes, steps, batch_bytes, has_topology=has_topology) for has_topology in ways]
    if graph.num_sharing > 1:
        found = [way for way in found if not way.rows_page_locked]
        if not found:
            needed = (graph.fixed_bytes + -(-graph.num_nodes // graph.num_sharing) * graph.row_bytes) / GIB
            raise UserError(
                f"train.gpu_rows is wholegraph, and {graph.num_sharing} GPUs have no room for all rows of features,"
                f" {graph.feature_bytes / GIB:.2f} GiB, where the graph may have {graph_bytes / GIB:.2f} GiB of each",
                fix=f"set train.gpu_graph_gib={needed + 0.01:.2f} or more, or leave train.gpu_rows out: rows that do"
                " not fit are page-locked",
            )
    return min(found, key=lambda way: way.bus_mib_per_step)  # of equals the first


def _way(graph: ResidentGraph, graph_bytes: int, steps: int, batch_bytes: int, *, has_topology: bool) -> LaidOut:
    """Lay out the graph with its topology on the GPU, where it fits, or without; then as many rows as fit."""
    fixed = graph.fixed_bytes + (graph.topology_bytes if has_topology else 0)
    each = min(-(-graph.num_nodes // graph.num_sharing), (graph_bytes - fixed) // max(1, graph.row_bytes))
    rows = min(graph.num_nodes, each * graph.num_sharing)
    cold = graph.num_nodes - rows
    bus = _bus_bytes(graph, cold, reads_topology=not has_topology)
    left = graph_bytes - fixed - each * graph.row_bytes
    hidden_on: Literal["device", "page_locked"] = "device" if graph.hidden_bytes <= left else "page_locked"
    return LaidOut(
        graph_gib=graph_bytes / GIB,
        topology_on="device" if has_topology else "page_locked",
        topology_mib=graph.topology_bytes / _MIB,
        rows_on_device=rows,
        num_sharing=graph.num_sharing,
        rows_page_locked=cold,
        device_mib=(fixed + each * graph.row_bytes) / _MIB,
        page_locked_mib=(cold * graph.row_bytes + (0 if has_topology else graph.topology_bytes)) / _MIB,
        bus_mib_per_step=bus / _MIB,
        bus_mib_per_epoch=bus * steps / _MIB,
        host_bus_mib_per_step=batch_bytes / _MIB,
        hidden_rows_on=hidden_on if len(graph.layers) > 1 else None,
        hidden_rows_mib=graph.hidden_bytes / _MIB if len(graph.layers) > 1 else 0.0,
    )


def room_of(gpu_bytes: int, step: StepMemory) -> int:
    """Bytes of a GPU that are left for a graph; a `UserError` if a step alone does not fit."""
    left = gpu_bytes - RESERVED_BYTES - step.num_bytes
    if left < 0:
        raise UserError(
            f"a step takes {step.num_bytes / GIB:.2f} GiB of a GPU at most, by formula, and {RESERVED_BYTES / GIB:.0f}"
            f" GiB are kept for the driver: more than {gpu_bytes / GIB:g} GiB",
            fix="set a smaller train.batch_size, fewer train.num_neighbors or a smaller train.prefetch, or give a"
            " larger --gpu-memory",
        )
    return left


def _bus_bytes(graph: ResidentGraph, cold: int, *, reads_topology: bool) -> int:
    """Bytes that one batch moves over the bus, at most."""
    sectors = -(-graph.row_bytes // SECTOR) + (1 if graph.row_bytes % SECTOR else 0)  # a row may begin within one
    rows = -(-sum(graph.hops) * cold // graph.num_nodes) if graph.num_nodes else 0
    found = rows * sectors * SECTOR
    if reads_topology:  # two offsets of each row that draws, which may lie in two sectors; a sector a neighbour
        found += sum(graph.hops[:-1]) * 2 * SECTOR + graph.num_drawn * SECTOR
    return found
