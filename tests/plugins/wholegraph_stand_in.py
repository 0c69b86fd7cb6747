"""In place of `pylibwholegraph.torch`, which needs GPUs: what graphmill calls of it, over a file that ranks map.

Names, arguments and results are those of cugraph-gnn's source of 2026; what it asserts is asserted here. It shows that
graphmill calls the package as it is written, not that the package works.
"""

import sys
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist


def install(folder):
    """Make `import pylibwholegraph.torch` give the stand-in, whose memory is files in `folder`."""
    worlds = []

    def init(world_rank, world_size, local_rank, local_size, wm_log_level="info"):
        assert not worlds, "the engine has one world in a process"
        assert wm_log_level in ("error", "warn", "info", "debug", "trace")
        assert (world_rank, world_size) == (dist.get_rank(), dist.get_world_size())
        assert local_rank == world_rank % local_size
        worlds.append((local_rank, local_size))

    def create_wholememory_tensor(comm, memory_type, memory_location, sizes, dtype, strides):
        assert (memory_type, memory_location) == ("chunked", "cuda")
        assert strides == [sizes[1], 1]
        path = str(Path(folder) / "rows")
        table = torch.from_file(path, shared=True, size=sizes[0] * sizes[1], dtype=dtype).view(*sizes)
        return Rows(comm, table)

    module, package = ModuleType("pylibwholegraph.torch"), ModuleType("pylibwholegraph")
    module.init = init
    module.get_local_node_communicator = lambda: Communicator(*worlds[0])
    module.create_wholememory_tensor = create_wholememory_tensor
    sys.modules |= {"pylibwholegraph": package, "pylibwholegraph.torch": module}


class Communicator:
    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def support_type_location(self, memory_type, memory_location):
        return (memory_type, memory_location) == ("chunked", "cuda")

    def barrier(self):
        dist.barrier()


class Rows:
    def __init__(self, comm, table):
        self.comm, self.table = comm, table

    def get_local_tensor(self, host_view=False):
        """This rank's rows, and which is the first."""
        assert not host_view
        each = -(-len(self.table) // self.comm.size)
        first = min(len(self.table), each * self.comm.rank)
        return self.table[first : first + each], first

    def gather(self, indice, *, force_dtype=None):
        assert indice.dim() == 1
        assert indice.dtype in (torch.int32, torch.int64)
        assert indice.is_contiguous()
        return self.table[indice].to(force_dtype or self.table.dtype)
