"""Kernels on torch's tensors: which are started, in which order, and how much room their results take.

Numbers of nodes and edges stay on the device: a `span` is an int64 tensor [2] there (from, to), `room` the most there
may be, known to the host.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError, UserError
from graphmill.device.driver import KernelDriver, address
from graphmill.device.structures import DeviceColumns, HopRule, RowsStruct, SpansStruct

IMAGE: Final = Path(__file__).with_name("kernels.fatbin")
_OLDEST: Final = (8, 0)  # what the image has code for; PTX serves what is newer than its cubins
_MOST_EDGES: Final = (1 << 31) - 1  # of a hop
_WIDE_FANOUT: Final = 64  # from here on a warp picks for each row


@dataclass(frozen=True, slots=True)
class HopRows:
    """The rows that a hop asks for, as a span of the batch's nodes."""

    nodes: Tensor  # int64 [room of the batch]: identity, what draws are keyed by
    span: Tensor  # int64 [2]
    room: int
    places: Tensor | None = None  # int64, of each node of the batch: its row of indptr; None: the node itself
    subgraphs: Tensor | None = None  # int32, of each node of the batch; None: one for all
    times: Tensor | None = None  # int64 by subgraph: later edges do not exist yet

    def struct(self) -> RowsStruct:
        """Struct that kernels take."""
        return RowsStruct(
            address(self.nodes, torch.int64),
            address(self.places, torch.int64),
            address(self.subgraphs, torch.int32),
            address(self.times, torch.int64),
            address(self.span, torch.int64),
            self.room,
        )


@dataclass(frozen=True, slots=True)
class OfferedEdges:
    """Which in-edges each row of a hop may give, and where those that it gives will lie."""

    starts: Tensor  # int64 [rows.room]
    available: Tensor  # int64 [rows.room]
    ends: Tensor  # int64 [rows.room + 1], the first of which is where the hop's edges begin
    room: int  # edges that the hop may have

    def struct(self) -> SpansStruct:
        """Struct that kernels take."""
        return SpansStruct(address(self.starts), address(self.available), address(self.ends))


class DeviceKernels:
    """The kernels of one device. Starts are ordered as its current stream's other work; nothing here waits for them."""

    def __init__(self, driver: KernelDriver, device: torch.device) -> None:
        self.driver = driver
        self.device = device

    def empty(self, size: int, dtype: torch.dtype) -> Tensor:
        """Room for `size` values on the device, not yet written."""
        return torch.empty(size, dtype=dtype, device=self.device)

    def zeros(self, size: int, dtype: torch.dtype) -> Tensor:
        """`size` zeros on the device."""
        return torch.zeros(size, dtype=dtype, device=self.device)

    def offer(
        self,
        columns: DeviceColumns,
        rows: HopRows,
        rule: HopRule,
        edges_before: Tensor,
        num_edges: int | None = None,
    ) -> OfferedEdges:
        """Find what the rows of a hop give.

        Args:
            columns: the topology.
            rows: the hop's.
            rule: how many, and which.
            edges_before: int64 [1]: where the hop's edges begin among those of the batch.
            num_edges: of the rows, with a fan-out of -1; None: not known.

        Returns:
            With room for a full fan-out of each row; with a fan-out of -1 for as many as there are, which the host
            waits to know unless it is told.

        Raises:
            InvalidInputError: there may be more edges than kernels number.
        """
        starts, available, counts = (self.empty(rows.room, torch.int64) for _ in range(3))
        ends = self.empty(rows.room + 1, torch.int64)
        spans = SpansStruct(address(starts), address(available), None)
        self.driver.launch("offer", rows.room, columns.struct(), rule.struct(), rows.struct(), spans, counts)
        ends[:1] = edges_before
        torch.cumsum(counts, 0, out=ends[1:])
        ends[1:] += edges_before
        of_row = rule.fanout if rule.replace else min(rule.fanout, columns.most_in_edges)
        if rule.fanout < 0 and num_edges is None:
            num_edges = int(ends[-1] - ends[0])
        room = rows.room * of_row if num_edges is None else num_edges
        if room >= _MOST_EDGES:
            raise InvalidInputError(
                f"a hop of {rows.room} rows may have {room} edges; kernels number at most {_MOST_EDGES - 1}",
                fix="make smaller batches",
            )
        return OfferedEdges(starts, available, ends, room)

    def targets(self, rows: HopRows, offered: OfferedEdges, edge_span: Tensor, targets: Tensor) -> None:
        """Write which node of the batch each edge of the hop leads to: int32, at the edge's number."""
        self.driver.launch("targets", offered.room, rows.struct(), offered.ends, edge_span, offered.room, targets)

    def draw(
        self,
        columns: DeviceColumns,
        rows: HopRows,
        rule: HopRule,
        offered: OfferedEdges,
        *,
        key: int,
        edge_span: Tensor,
        edges: Tensor,
        targets: Tensor | None,
    ) -> None:
        """Draw the in-edges that the hop takes.

        Args:
            columns: the topology.
            rows: the hop's.
            rule: as `offered` was made with.
            offered: what the rows give.
            key: of the hop.
            edge_span: int64 [2]: which of the batch's edges are the hop's.
            edges: int64 [room of the batch's edges]: their positions in the columns are written here.
            targets: as `targets()` wrote them; asked for where the fan-out is -1.
        """
        if rule.fanout < 0:
            self.driver.launch(
                "take_all", offered.room, rows.struct(), offered.struct(), targets, edge_span, offered.room, edges
            )
        elif rule.replace or columns.weights is not None:
            name = "draw_again" if rule.replace else "draw_weighted"
            self.driver.launch(name, rows.room, columns.struct(), rows.struct(), offered.struct(), key, edges)
        else:
            is_wide = min(rule.fanout, columns.most_in_edges) > _WIDE_FANOUT
            name, threads = ("draw_uniform_wide", 32) if is_wide else ("draw_uniform", 1)
            self.driver.launch(name, threads * rows.room, rows.struct(), offered.struct(), key, edges)

    def append(self, values: Tensor, span: Tensor, at: Tensor, out: Tensor) -> None:
        """out[at + i] = values[i], of as many as `span` is long; int64."""
        self.driver.launch("append", len(values), values, span, at, len(values), out)


def cuda_kernels(device: torch.device, image: Path = IMAGE) -> DeviceKernels:
    """Kernels on a GPU. They have not been tried there yet: see the package's page.

    Args:
        device: a CUDA device of this process; each thread that starts kernels must have made it its current one.
        image: what `tools/cubins/build.py` made; wheels have it.

    Raises:
        UserError: the image is not there, or the device is older than it.
    """
    if not image.exists():
        raise UserError(
            f"this installation has no kernels for GPUs: {image} is not there",
            fix="install a wheel of graphmill, or run python tools/cubins/build.py in a checkout",
        )
    capability = torch.cuda.get_device_capability(device)
    if capability < _OLDEST:
        raise UserError(
            f"{torch.cuda.get_device_name(device)} has compute capability {capability[0]}.{capability[1]}, and the "
            f"kernels need {_OLDEST[0]}.{_OLDEST[1]}",
            fix="sample on the CPU",
        )
    device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
    with torch.cuda.device(device):
        torch.cuda.current_stream(device).synchronize()  # makes the context in which the module is loaded
        driver = KernelDriver("libcuda.so.1", image.read_bytes(), _current_stream(device))
    return DeviceKernels(driver, device)


def _current_stream(device: torch.device) -> Callable[[], int]:
    def stream() -> int:
        if torch.cuda.current_device() != device.index:
            raise InvalidInputError(
                f"this thread's device is cuda:{torch.cuda.current_device()}, and these kernels are of {device}",
                fix=f"torch.cuda.set_device({device.index}) in each thread that samples",
            )
        return int(torch.cuda.current_stream(device).cuda_stream)

    return stream


def shim_kernels(library: Path) -> DeviceKernels:
    """Kernels of `graphmill.device` on the CPU, for tests: `library` is what `tools/cubins/shim.py` compiled."""
    return DeviceKernels(KernelDriver(library, b"", lambda: 0), torch.device("cpu"))
