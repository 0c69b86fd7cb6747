"""What the loaders of the ranks say to each other: collectives on a process group of their own, counted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from graphmill.partition.placement import Placement
from graphmill.runtime.process import sched_batch_threads

_SWAP_TIMEOUT: Final = timedelta(minutes=30)  # a rank that is alive may be busy; the watchdog knows of dead ones


@dataclass(slots=True)
class Wire:
    """End of one rank. All ranks call `swap` equally often, in the same order, in one thread at a time.

    Loaders have a process group of their own (gloo: what they exchange is in host memory), so that their collectives do
    not meet those of the training step, which another thread makes.
    """

    rank: int
    world_size: int
    process_group: dist.ProcessGroup | None  # None: nobody is there to be asked, or nothing to ask for
    received_bytes: int = 0  # from other ranks, without headers of the network
    num_swaps: int = 0  # collectives that carried them
    num_direct: int = 0  # exchanges between two ranks alone

    @classmethod
    def between(cls, rank: int, world_size: int) -> "Wire":
        """A new group of all ranks; all must call it."""
        if world_size == 1:
            return cls(rank, world_size, None)
        with sched_batch_threads():
            return cls(rank, world_size, dist.new_group(backend="gloo", timeout=_SWAP_TIMEOUT))

    def of_batches(self, placement: Placement) -> "Wire":
        """Wire over which batches are made: this one, or one that carries nothing where every place has all parts."""
        return Wire(self.rank, self.world_size, None) if placement.is_local else self

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
        rows = self.swap_joined(np.concatenate(others), [len(m) for m in others], expected)
        ends = np.concatenate([[0], np.cumsum(expected)])
        answers = [rows[begin:end] for begin, end in pairwise(ends)]
        answers[self.rank] = messages[self.rank]
        return answers

    def swap_joined(self, rows: NDArray[Any], to: Sequence[int], of: Sequence[int]) -> NDArray[Any]:
        """Rows for each rank, one rank's after another's → those of each rank. to[r] are sent to r, of[r] come from it.

        A rank keeps its own: both are 0 for itself.
        """
        if self.process_group is None:
            return rows
        row_bytes = rows.dtype.itemsize * math.prod(rows.shape[1:])
        out = torch.empty(sum(of) * row_bytes, dtype=torch.uint8)
        sent = torch.from_numpy(rows.reshape(-1).view(np.uint8))
        to_bytes, of_bytes = [count * row_bytes for count in to], [count * row_bytes for count in of]
        dist.all_to_all_single(out, sent, of_bytes, to_bytes, group=self.process_group)
        self.num_swaps += 1
        self.received_bytes += sum(of_bytes)
        return out.numpy().view(rows.dtype).reshape(-1, *rows.shape[1:])

    def largest(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        return max(int(m[0]) for m in self.swap([np.array([number])] * self.world_size, [1] * self.world_size))

    def point_to_point(
        self, outgoing: Mapping[int, NDArray[np.uint8]], incoming: Mapping[int, NDArray[np.uint8]]
    ) -> None:
        """Send to some ranks, and fill what comes of some: both sides must know that they do."""
        works = [dist.irecv(torch.from_numpy(b), group=self.process_group, group_src=r) for r, b in incoming.items()]
        works += [dist.isend(torch.from_numpy(b), group=self.process_group, group_dst=r) for r, b in outgoing.items()]
        for work in works:
            assert work is not None, "the rank is of the group"
            work.wait()
        self.num_direct += 1
        self.received_bytes += sum(map(len, incoming.values()))

    def _counts(self, mine: Sequence[int]) -> list[int]:
        sent = torch.tensor(mine, dtype=torch.int64)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.process_group)
        self.num_swaps += 1
        self.received_bytes += 8 * (self.world_size - 1)
        counts: list[int] = received.tolist()
        return counts
