"""Feed a GPU: the next batch is copied, on a stream of its own, while the step computes on this one."""

from collections.abc import Generator, Iterator
from dataclasses import fields, is_dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from graphmill.runtime.spans import Spans


class Movable(Protocol):
    """A batch of any task: a dataclass of tensors, and of dataclasses and tuples of them."""

    def to(self, device: torch.device) -> Self:
        """Copy the batch to `device` on the current stream, without waiting if the memory allows it."""


B = TypeVar("B", bound=Movable)


def feed(batches: Iterator[B], device: torch.device, spans: Spans) -> Generator[B]:
    """Yield the batches on `device`, in order. On the CPU nothing is copied.

    Three exist at once: the previous one, until the caller releases it, the current one, and the next. A span `copy` is
    the start of a copy, not the copy itself: that overlaps the step.
    """
    if device.type == "cpu":
        yield from batches
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    ahead = _copied(next(batches, None), device, stream, spans)
    while ahead is not None:
        batch, copied = ahead
        ahead = _copied(next(batches, None), device, stream, spans)
        computing = torch.cuda.current_stream(device)
        computing.wait_event(copied)
        for tensor in tensors_in(batch):
            if tensor.device.type != "cpu":
                tensor.record_stream(computing)  # its memory is not reused before the step is done with it
        yield batch
        # This copy began before the step before, so this hardly waits; but it confirms that the page-locked memory may
        # be overwritten, which the prefetch thread does from the batch after the next on (see `collect.BufferRing`).
        copied.synchronize()


def _copied(
    batch: B | None, device: torch.device, stream: torch.cuda.Stream, spans: Spans
) -> tuple[B, torch.cuda.Event] | None:
    """Start the copy of a batch; the event completes when it has arrived."""
    if batch is None:
        return None
    with spans("copy"), torch.cuda.stream(stream):
        return batch.to(device), stream.record_event()


def tensors_in(value: object) -> Iterator[Tensor]:
    """All tensors of a batch, at any depth."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))
