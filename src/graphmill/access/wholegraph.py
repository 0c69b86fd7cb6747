"""Rows of features spread over the GPUs of a host by NVIDIA's WholeGraph (`pylibwholegraph`), not an engine of ours.

Each GPU holds a contiguous share, and the others read it over NVLink or the bus: `chunked` memory, in which a gather is
no collective, so that ranks gather when they like. Written after the package's source (cugraph-gnn, 2026); it uses
`init`, `get_local_node_communicator`, `create_wholememory_tensor`, and a tensor's `get_local_tensor` and `gather`.
"""

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.access.device_kernels import copied_rows
from graphmill.base.errors import UserError
from graphmill.sync.group import Group

_MODULE = "pylibwholegraph.torch"


@dataclass(frozen=True, slots=True)
class WholeGraphRows:
    """`RowStore` of rows that the GPUs of a host share."""

    tensor: Any  # pylibwholegraph.torch.WholeMemoryTensor [num_nodes, num_columns]
    num_columns: int

    @classmethod
    def of(cls, table: Tensor, group: Group) -> "WholeGraphRows":
        """Spread a table over the GPUs of this rank's host; all its ranks call this.

        Args:
            table: [num_nodes, num_columns] float32, bfloat16 or float16, in memory of the host.
            group: the ranks, equally many on each host, each with a GPU.

        Raises:
            UserError: the package is not there, or these GPUs cannot read each other's memory.
        """
        engine = _engine()
        communicator = _communicator(group.rank, group.world_size, group.world_size // group.num_hosts)
        if not communicator.support_type_location("chunked", "cuda"):
            raise UserError(
                "train.gpu_rows is wholegraph, but the GPUs of this host cannot read each other's memory",
                fix="leave train.gpu_rows out: rows that do not fit are page-locked",
            )
        shape = list(table.shape)
        tensor = engine.create_wholememory_tensor(communicator, "chunked", "cuda", shape, table.dtype, [shape[1], 1])
        mine, first = tensor.get_local_tensor()
        copied_rows(table, np.arange(first, first + len(mine)), mine)
        if group.device.type == "cuda":
            torch.cuda.synchronize(group.device)  # the barrier is on a stream of the engine's own
        communicator.barrier()
        return cls(tensor, shape[1])

    def gather(self, ids: Tensor) -> Tensor:
        """Gather rows as `RowStore.gather` says, on the current stream."""
        with torch.cuda.device_of(ids):  # type: ignore[no-untyped-call]  # the engine takes the current device
            rows: Tensor = self.tensor.gather(ids, force_dtype=torch.float32)
        return rows


@cache  # once a process: the engine has one world
def _communicator(rank: int, world_size: int, each: int) -> Any:  # noqa: ANN401  # of a package that may be missing
    engine = _engine()
    engine.init(rank, world_size, rank % each, each, "warn")
    return engine.get_local_node_communicator()


def _engine() -> Any:  # noqa: ANN401  # a package that may be missing
    try:
        return importlib.import_module(_MODULE)
    except ImportError as error:
        raise UserError(
            f"train.gpu_rows is wholegraph, but NVIDIA's WholeGraph does not load: {error}",
            fix="install pylibwholegraph for your CUDA (docs.rapids.ai/install), or leave train.gpu_rows out",
        ) from error
