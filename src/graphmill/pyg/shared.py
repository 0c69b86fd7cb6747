"""Tensors of batches on their way from worker processes: in memory that both ends have mapped and use again.

torch sends every tensor in new memory: pages that the worker fills for the first time and the loader's process maps for
the first time, a descriptor through a socket of its own. Here a worker keeps segments. The receiver maps each once and
marks it free when the last tensor over it is gone; then the worker fills it again. Every large tensor has a segment of
its own, so that whoever keeps `batch.y` keeps no features. Segments have no name: nothing is left of them whoever is
killed.
"""

import os
import threading
import uuid
import weakref
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor
from torch.utils.data import get_worker_info

from graphmill import _native

_LEAST: Final = 1 << 15  # bytes: smaller tensors travel in the message
_PAGE: Final = 4096
_MOST_SEGMENTS: Final = 1 << 16  # that a worker ever makes; tensors beyond go torch's way
_MOST_FREE: Final = 48  # segments of a worker that wait: those of a few batches

Flags = NDArray[np.uint8]


def room(num_bytes: int) -> Tensor:
    """Memory [num_bytes] for rows of a batch, not cleared; in a worker, memory that it is sent in."""
    if get_worker_info() is None:
        return torch.from_numpy(_native.reused_bytes(num_bytes))
    return _outbox().room(num_bytes)


def send_in_segments() -> None:
    """Have this process, if it is a worker of a DataLoader, send its tensors in segments."""
    if get_worker_info() is not None:
        _outbox()


class _Segment:
    """Shared memory, mapped; at most one array over it is in use here."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        # torch's mapping holds no descriptor, and there may be as many segments as a user keeps tensors.
        self._whole = torch.from_file(f"/proc/self/fd/{fd}", shared=True, size=size, dtype=torch.uint8)
        self._user: weakref.ref[Any] | None = None

    @classmethod
    def make(cls, num_bytes: int) -> "_Segment":
        fd = os.memfd_create("graphmill", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, num_bytes)  # memory that is not there is an error, not a crash at the first write
            return cls(fd, num_bytes)
        except BaseException:
            os.close(fd)
            raise

    @property
    def address(self) -> int:
        return self._whole.data_ptr()

    @property
    def is_in_use(self) -> bool:
        return self._user is not None and self._user() is not None

    def bytes(self, num_bytes: int, when_gone: Any = None) -> Tensor:  # noqa: ANN401  # a callback of a weakref
        """The first bytes, for one user; `when_gone` is called after the last tensor over them is gone."""
        array = self._whole[:num_bytes].numpy()
        self._user = weakref.ref(array, when_gone)
        return torch.from_numpy(array)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class _Outbox:
    """The segments of a worker. On a board that both ends see, each has two bytes: held there, and mapped there."""

    def __init__(self) -> None:
        self.process, self.token = os.getpid(), uuid.uuid4().hex
        self._segments: list[_Segment | None] = [_Segment.make(2 * _MOST_SEGMENTS)]  # the first is the board
        board = self._segments[0].bytes(2 * _MOST_SEGMENTS).numpy()  # type: ignore[union-attr]  # just made
        self._is_held: Flags = board[:_MOST_SEGMENTS]
        self._is_mapped: Flags = board[_MOST_SEGMENTS:]
        self._sizes = np.zeros(_MOST_SEGMENTS, np.int64)
        self._by_address: dict[int, int] = {}
        self._dropped: list[int] = []  # of which the receiver does not know yet
        self._lock = threading.Lock()  # a queue's thread pickles while the next batch is made
        ForkingPickler.register(Tensor, self.reduced)

    def room(self, num_bytes: int) -> Tensor:
        """A free segment's first bytes, or a new one's; ordinary memory where none can be made."""
        with self._lock:
            free = self._free()
            fits = free[(self._sizes[free] >= num_bytes) & (self._sizes[free] <= 2 * num_bytes + _LEAST)]
            number = int(fits[0]) if len(fits) else self._make(num_bytes, free)
            segment = self._segments[number] if number else None
            if segment is None:
                return torch.empty(num_bytes, dtype=torch.uint8)
            return segment.bytes(num_bytes)

    def reduced(self, tensor: Tensor) -> Any:  # noqa: ANN401  # what pickle takes
        """How a tensor is pickled: its bytes, its segment, or torch's way for what is not a plain CPU tensor."""
        is_plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.requires_grad
        if not is_plain or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
            return reduce_tensor(tensor)  # type: ignore[no-untyped-call]  # torch's
        num_bytes = tensor.numel() * tensor.element_size()
        if num_bytes < _LEAST:
            data = bytes(tensor.reshape(-1).view(torch.uint8).numpy())
            return _of_bytes, (data, tensor.dtype, tuple(tensor.shape))
        sent = self._sent(tensor)
        if sent is None:
            copy = self.room(num_bytes)
            copy.copy_(tensor.reshape(-1).view(torch.uint8))
            sent = self._sent(copy)
        if sent is None:
            return reduce_tensor(tensor)  # type: ignore[no-untyped-call]  # torch's
        return _received, (self.process, self.token, *sent, num_bytes, tensor.dtype, tuple(tensor.shape))

    def _sent(self, tensor: Tensor) -> tuple[Any, ...] | None:
        """What the receiver needs to find a tensor's segment; None where it is in none, or in one that is held."""
        number = self._by_address.get(tensor.data_ptr(), 0)
        with self._lock:
            segment = self._segments[number] if number else None
            if segment is None or self._is_held[number]:
                return None
            self._is_held[number] = 1
            dropped, self._dropped = tuple(self._dropped), []
            return number, dropped, *(self._way_to(each) for each in (0, number))

    def _way_to(self, number: int) -> tuple[Any, int] | None:
        """A segment's descriptor and size, until the receiver has mapped it."""
        segment = self._segments[number]
        if segment is None or self._is_mapped[number]:
            if segment is not None:
                segment.close()
            return None
        return DupFd(segment.fd), segment.size

    def _free(self) -> NDArray[np.int64]:
        """Numbers of the segments that are not in use, here or there."""
        there = np.flatnonzero((self._sizes > 0)[: len(self._segments)])
        free = []
        for number in there[self._is_held[there] == 0].tolist():
            segment = self._segments[number]
            if segment is not None and not segment.is_in_use:
                free.append(number)
        return np.array(free, np.int64)

    def _make(self, num_bytes: int, free: NDArray[np.int64]) -> int:
        """A new segment's number; 0: none is made. What has waited longest goes where too many wait."""
        for number in free[: max(len(free) - _MOST_FREE, 0)].tolist():
            segment = self._segments[number]
            if segment is not None:
                del self._by_address[segment.address]
                segment.close()
            self._segments[number], self._sizes[number] = None, 0
            self._dropped.append(number)
        number = len(self._segments)
        if number == _MOST_SEGMENTS:
            return 0
        try:
            made = _Segment.make((num_bytes + num_bytes // 8 + _PAGE) // _PAGE * _PAGE)  # for what is a little larger
        except OSError:  # no memory, no descriptors: torch says what is missing
            return 0
        self._segments.append(made)
        self._sizes[number], self._by_address[made.address] = made.size, number
        return number


class _Inbox:
    """The segments of one worker, as the receiver has mapped them."""

    def __init__(self, process: int, board: _Segment) -> None:
        self.process = process
        self._owner = os.getpid()
        self._segments: dict[int, _Segment] = {}
        flags = board.bytes(board.size).numpy()
        self._is_held: Flags = flags[:_MOST_SEGMENTS]
        self._is_mapped: Flags = flags[_MOST_SEGMENTS:]
        self._is_mapped[0] = 1

    def tensor_of(self, number: int, way: tuple[Any, int] | None, num_bytes: int) -> Tensor:
        if way is not None:
            found = _mapped(way)
            self._segments.setdefault(number, found)
            self._is_mapped[number] = 1

        def free(_: Any) -> None:  # noqa: ANN401  # the weakref
            if os.getpid() == self._owner:  # a forked child has its copy of the array, and no say
                self._is_held[number] = 0

        return self._segments[number].bytes(num_bytes, free)

    def drop(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            self._segments.pop(number, None)

    @property
    def is_over(self) -> bool:
        """Whether the worker is gone; what it sent stays for its holders."""
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        return False


_ours: _Outbox | None = None
_inboxes: dict[str, _Inbox] = {}
_lock = threading.Lock()


def clear_finished_workers() -> None:
    """Unmap what no batch holds of workers that have ended."""
    with _lock:
        for token in [token for token, inbox in _inboxes.items() if inbox.is_over]:
            del _inboxes[token]


def _outbox() -> _Outbox:
    global _ours  # noqa: PLW0603  # one for a process
    if _ours is None or _ours.process != os.getpid():
        _ours = _Outbox()
    return _ours


def _mapped(way: tuple[Any, int]) -> _Segment:
    descriptor, size = way
    segment = _Segment(descriptor.detach(), size)
    segment.close()
    return segment


def _received(
    process: int,
    token: str,
    number: int,
    dropped: tuple[int, ...],
    way_to_board: tuple[Any, int] | None,
    way: tuple[Any, int] | None,
    num_bytes: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
) -> Tensor:
    """The tensor in a worker's segment, as this process sees it."""
    if way_to_board is not None:
        board = _mapped(way_to_board)
        if token not in _inboxes:
            clear_finished_workers()
            _inboxes[token] = _Inbox(process, board)
    inbox = _inboxes[token]
    inbox.drop(dropped)
    return inbox.tensor_of(number, way, num_bytes).view(dtype).view(shape)


def _of_bytes(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)
