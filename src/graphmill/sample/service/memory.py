"""Memory that two processes of a host share: it has no name, so nothing is left of it whoever is killed.

The sampler makes it and hands over its descriptor; it goes with the last process that holds one. The system gives all
of it when it grows: memory that is not there is an error, not a crash at the first write.
"""

import mmap
import os
from typing import Final

import torch
from torch import Tensor

_PAGE: Final = mmap.PAGESIZE
_SPARE: Final = 8  # a memory that is too small grows by an eighth more than is needed


class SharedMemory:
    """Bytes that grow; both ends map them anew when they have."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._bytes = torch.empty(0, dtype=torch.uint8)

    @classmethod
    def make(cls) -> "SharedMemory":
        """Make a shared memory without bytes."""
        return cls(os.memfd_create("graphmill", os.MFD_CLOEXEC))

    def room(self, num_bytes: int) -> Tensor:
        """Room for `num_bytes` bytes, to be written; what an earlier call gave stays mapped while it is in use."""
        if num_bytes > len(self._bytes):
            size = -(-(num_bytes + num_bytes // _SPARE) // _PAGE) * _PAGE
            os.posix_fallocate(self.fd, 0, size)
        return self.bytes(num_bytes)

    def bytes(self, num_bytes: int) -> Tensor:
        """First `num_bytes` bytes, as the other end has written them."""
        if num_bytes > len(self._bytes):
            self._bytes = torch.frombuffer(mmap.mmap(self.fd, os.fstat(self.fd).st_size), dtype=torch.uint8)
        return self._bytes[:num_bytes]

    def close(self) -> None:
        """Hold it no longer; tensors in it stay."""
        os.close(self.fd)
