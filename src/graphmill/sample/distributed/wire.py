"""What the loaders of the ranks say to each other: collectives on a process group of their own, counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

_SWAP_TIMEOUT: Final = timedelta(minutes=30)  # a rank that is alive may be busy; the watchdog knows of dead ones


@dataclass(slots=True)
class Wire:
    """One rank's end. All ranks call `swap` equally often, in the same order, in one thread at a time.

    Loaders have a process group of their own (gloo: what they exchange is in host memory), so that their collectives do
    not meet those of the training step, which another thread makes.
    """

    rank: int
    world_size: int
    process_group: dist.ProcessGroup | None  # None: one rank
    sent_bytes: int = 0  # to other ranks, without headers of the network
    received_bytes: int = 0
    num_swaps: int = 0

    @classmethod
    def between(cls, rank: int, world_size: int) -> "Wire":
        """A new group of all ranks; all must call it."""
        group = None if world_size == 1 else dist.new_group(backend="gloo", timeout=_SWAP_TIMEOUT)
        return cls(rank, world_size, group)

    def swap(self, messages: Sequence[NDArray[Any]], counts: Sequence[int] | None = None) -> list[NDArray[Any]]:
        """messages[r] goes to rank r → what each rank sent here. All of one dtype and, if 2-D, one number of columns.

        `counts` [world_size]: how many rows each will send, where this is known; None: they say it first.
        """
        if self.process_group is None:
            return list(messages)
        others = [m if rank != self.rank else m[:0] for rank, m in enumerate(messages)]
        if counts is None:
            counts = self._counts([len(m) for m in others])
        expected = [count if rank != self.rank else 0 for rank, count in enumerate(counts)]
        sample = messages[0]
        row_bytes = sample.dtype.itemsize * int(np.prod(sample.shape[1:], dtype=np.int64))
        out = torch.empty(sum(expected) * row_bytes, dtype=torch.uint8)
        sent = torch.from_numpy(np.concatenate(others).reshape(-1).view(np.uint8))
        to, of = [len(m) * row_bytes for m in others], [count * row_bytes for count in expected]
        dist.all_to_all_single(out, sent, of, to, group=self.process_group)
        self.sent_bytes += sum(to)
        self.received_bytes += sum(of)
        self.num_swaps += 1
        rows = out.numpy().view(sample.dtype).reshape(-1, *sample.shape[1:])
        ends = np.concatenate([[0], np.cumsum(expected)])
        answers = [rows[begin:end] for begin, end in pairwise(ends)]
        answers[self.rank] = messages[self.rank]
        return answers

    def largest(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        return max(int(m[0]) for m in self.swap([np.array([number])] * self.world_size, [1] * self.world_size))

    def _counts(self, mine: Sequence[int]) -> list[int]:
        sent = torch.tensor(mine, dtype=torch.int64)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.process_group)
        self.sent_bytes += 8 * (self.world_size - 1)
        self.received_bytes += 8 * (self.world_size - 1)
        counts: list[int] = received.tolist()
        return counts
