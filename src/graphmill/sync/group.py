"""The ranks of a run and what they exchange: collectives that count their bytes and their time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from graphmill.runtime.spans import Spans

MIB = 1024 * 1024


@dataclass(slots=True)
class CollectiveTraffic:
    """What went through the collectives so far, of one rank."""

    payload_bytes: int = 0  # tensors of the scheme handed to a collective
    control_bytes: int = 0  # hashes and votes
    num_syncs: int = 0


@dataclass(slots=True)
class Group:
    """Ranks that exchange with each other, or this process alone. Collectives of one rank are no-ops.

    `rank` and `world_size` are within the group. `process_group`: which of torch's groups the collectives are of; all
    ranks by default. Two threads of a rank need a group each: collectives are matched by their order alone.
    """

    rank: int
    world_size: int
    device: torch.device
    traffic: CollectiveTraffic = field(default_factory=CollectiveTraffic)
    spans: Spans = field(default_factory=Spans)  # of this rank: its loop, its loaders and its collectives
    process_group: dist.ProcessGroup | None = None
    num_hosts: int = 1  # that the ranks are on, equally many on each
    _timed: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)  # collectives of a device

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum `tensor` over the ranks, in place. Its bytes are payload."""
        self._all_reduce(tensor, dist.ReduceOp.SUM)

    def all_max(self, tensor: Tensor) -> None:
        """The largest of the ranks' values, elementwise, in place; of integers or booleans. Its bytes are payload."""
        if tensor.dtype == torch.bool:
            wire = tensor.to(torch.uint8)
            self._all_reduce(wire, dist.ReduceOp.MAX)
            tensor.copy_(wire)
        else:
            self._all_reduce(tensor, dist.ReduceOp.MAX)

    def begin_all_reduce(self, tensor: Tensor) -> dist.Work | None:
        """Begin to sum `tensor` over the ranks, in place; `finish` ends it. Its bytes are payload.

        Only the time in `finish` is counted: what else is computed meanwhile is no wait.
        """
        if self.world_size == 1:
            return None
        self._count(tensor)
        work: dist.Work | None = dist.all_reduce(tensor, group=self.process_group, async_op=True)
        return work

    def finish(self, work: dist.Work | None) -> None:
        """Wait for what `begin_all_reduce` began: the host on the CPU, else the device's work that is queued next."""
        if work is not None:
            with self._timed_sync(self.device):
                work.wait()

    def _all_reduce(self, tensor: Tensor, operation: Any) -> None:  # noqa: ANN401  # torch's enum is not a type
        if self.world_size == 1:
            return
        with self._timed_sync(tensor.device):
            dist.all_reduce(tensor, operation, group=self.process_group)
        self._count(tensor)

    def _count(self, tensor: Tensor) -> None:
        self.traffic.payload_bytes += tensor.numel() * tensor.element_size()

    @contextmanager
    def _timed_sync(self, device: torch.device) -> Iterator[None]:
        if device.type == "cpu" or self.spans.around is not None:  # a profile names what the device does
            with self.spans("sync"):
                yield
        else:  # the host does not wait: the device's own clock is read later
            began, ended = _clock(), _clock()
            began.record()
            yield
            ended.record()
            self._timed.append((began, ended))

    def read_clocks(self) -> float:
        """Seconds that a device spent in collectives since the last call, added to the span `sync`; waits for them."""
        spent_s = 0.0
        for began, ended in self._timed:
            ended.synchronize()
            spent_s += began.elapsed_time(ended) / 1e3
        self._timed.clear()
        self.spans.seconds["sync"] += spent_s
        return spent_s

    def gather_numbers(self, numbers: list[int]) -> list[list[int]]:
        """Every rank's 64-bit integers, by rank. Their bytes are control traffic.

        They go from host to host, and no device is waited for.
        """
        if self.world_size == 1:
            return [list(numbers)]
        mine = torch.tensor(numbers, dtype=torch.int64)
        with self.spans("sync"):
            everyone = [torch.empty_like(mine) for _ in range(self.world_size)]
            dist.all_gather(everyone, mine, group=self.process_group)
            rows: list[list[int]] = torch.stack(everyone).tolist()
        self.traffic.control_bytes += mine.numel() * mine.element_size()
        return rows

    def sum_numbers(self, numbers: Tensor) -> Tensor:
        """The sum over ranks of a tensor of statistics; not counted as a sync's payload."""
        if self.world_size > 1:
            numbers = numbers.to(self.device)
            dist.all_reduce(numbers, group=self.process_group)
        return numbers.cpu()

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Rows of all ranks in rank order → [sum(counts), num_columns], where they lie; rank r brings counts[r]."""
        if self.world_size == 1:
            return rows
        padded = torch.zeros(
            max(counts), rows.shape[1], dtype=rows.dtype, device=rows.device
        )  # a GPU may lack the room
        padded[: len(rows)] = rows
        everyone = [torch.empty_like(padded) for _ in range(self.world_size)]
        dist.all_gather(everyone, padded, group=self.process_group)
        return torch.cat([part[:count] for part, count in zip(everyone, counts, strict=True)])

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.gather_numbers([0])


def _clock() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it unannotated


def interface_bytes(interface: str) -> int:
    """Bytes this host has received on a network interface since it started, headers included.

    Received rather than sent: on loopback the two are the same traffic.
    """
    counters = psutil.net_io_counters(pernic=True)  # type: ignore[no-untyped-call]  # psutil leaves it unannotated
    return int(counters[interface].bytes_recv)
