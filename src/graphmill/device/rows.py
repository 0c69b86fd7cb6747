"""Rows of features: where they lie, and their gather out of device memory and page-locked memory of the host."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError
from graphmill.device.driver import address
from graphmill.device.kernels import DeviceKernels
from graphmill.device.numbers import table_size
from graphmill.device.structures import OwnRangeStruct, SlotsStruct, TablesStruct

_NAMES: Final = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_TOGETHER: Final = 4  # columns that a thread copies at once, where rows are aligned for it
_MOST_LANES_LOG2: Final = 5


class HeldNodes:
    """A list of distinct nodes, as of a cache, in which kernels look places up; 12 bytes a slot, two slots a node."""

    def __init__(self, kernels: DeviceKernels, nodes: Tensor) -> None:
        """Fill the table.

        Args:
            kernels: of the device.
            nodes: int64 [n] on the device, distinct and not negative.
        """
        size = table_size(len(nodes))
        self._keys = torch.full((size,), -1, dtype=torch.int64, device=kernels.device)
        self._places = torch.full((size,), -1, dtype=torch.int32, device=kernels.device)
        self._mask, self._shift = size - 1, 65 - size.bit_length()
        kernels.driver.launch(
            "fill_table", len(nodes), nodes, len(nodes), self._keys, self._places, self._mask, self._shift
        )

    def struct(self) -> SlotsStruct:
        """Struct that kernels take."""
        return SlotsStruct(address(self._keys), address(self._places), self._mask, self._shift)


class RowPlaces:
    """Where a rank's rows of nodes are: among its own, then those that it holds."""

    def __init__(
        self,
        kernels: DeviceKernels,
        *,
        storage: Tensor | None = None,
        own_rows: tuple[int, int] = (0, 0),
        held: HeldNodes | None = None,
    ) -> None:
        """Find rows of a rank, or of a whole graph whose hottest rows are held.

        Args:
            kernels: of the device.
            storage: int32 or int64 [num_nodes]: the storage id of each node; None: no row is the rank's own.
            own_rows: from which storage id to which rows are its own.
            held: nodes whose rows follow them.
        """
        self._kernels, self._held = kernels, held
        self._storage, self._own = storage, own_rows

    def find(self, nodes: Tensor, span: Tensor) -> Tensor:
        """Rows of nodes.

        Args:
            nodes: int64 [n].
            span: int64 [2]: which of them are asked for.

        Returns:
            int64 [n], from the first that is asked for on; -1 for nodes whose row is not here.
        """
        rows = torch.full_like(nodes, -1)
        held = SlotsStruct(None, None, 0, 0) if self._held is None else self._held.struct()
        self._kernels.driver.launch(
            "find_rows", len(nodes), self._range(torch.int32), self._range(torch.int64), held, nodes, span, len(nodes),
            rows,
        )  # fmt: skip
        return rows

    def _range(self, dtype: torch.dtype) -> OwnRangeStruct:
        is_read = self._storage is not None and self._storage.dtype == dtype
        count = 0 if self._storage is None else len(self._storage)
        return OwnRangeStruct(address(self._storage) if is_read else None, count, *self._own)


@dataclass(frozen=True, slots=True)
class RowTables:
    """Two tables behind one numbering: rows from `len(near)` on lie in `far`, say page-locked memory of the host."""

    near: Tensor  # float32, bfloat16 or float16 [num_near, num_columns]
    far: Tensor | None = None  # of the same dtype [num_far, num_columns]

    def __post_init__(self) -> None:
        if self.near.dtype not in _NAMES:
            raise InvalidInputError(f"rows are {self.near.dtype}", fix="give float32, bfloat16 or float16")
        if self.far is not None and (self.far.dtype != self.near.dtype or self.far.shape[1] != self.near.shape[1]):
            raise InvalidInputError(
                f"rows of {self.near.shape[1]} {self.near.dtype} and of {self.far.shape[1]} {self.far.dtype} "
                "do not make one table",
                fix="give both the same dtype and columns",
            )
        if self.far is not None and self.near.is_cuda and not (self.far.is_cuda or self.far.is_pinned()):
            raise InvalidInputError("a GPU does not read this memory of the host", fix="far.pin_memory()")


def gather(kernels: DeviceKernels, tables: RowTables, rows: Tensor, span: Tensor, out: Tensor | None = None) -> Tensor:
    """Copy rows together, in float32.

    Args:
        kernels: of the device.
        tables: that rows lie in.
        rows: int64 [n]; -1 for none.
        span: int64 [2]: as long as there are rows; behind them are zeros.
        out: float32 [n, num_columns], or None: new memory.

    Returns:
        float32 [n, num_columns]: the values exactly as they are stored; zeros for -1.
    """
    num_rows, num_columns = len(rows), tables.near.shape[1]
    if out is None:
        out = torch.empty((num_rows, num_columns), dtype=torch.float32, device=kernels.device)
    pointers = [table.data_ptr() for table in (tables.near, tables.far, out) if table is not None]
    together = _TOGETHER if num_columns % _TOGETHER == 0 and not any(at % 16 for at in pointers) else 1
    lanes_log2 = min(max(num_columns // together - 1, 0).bit_length(), _MOST_LANES_LOG2)
    struct = TablesStruct(address(tables.near), address(tables.far), len(tables.near), num_columns)
    name = f"gather_{_NAMES[tables.near.dtype]}{'_4' if together == _TOGETHER else ''}"
    kernels.driver.launch(name, num_rows << lanes_log2, struct, rows, span, num_rows, lanes_log2, out)
    return out
