"""Feed a GPU: the next batch is copied, on a stream of its own, while the step computes on this one."""

from collections.abc import Generator, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from graphmill.graph.batch import Block, DenseRows, Inputs, MiniBatch, SelfAndMean, SparseRows


def feed(batches: Iterator[MiniBatch], device: torch.device) -> Generator[MiniBatch]:
    """The same batches on `device`, in order. On the CPU nothing is copied.

    Three are there at once: the one before, until the caller lets go of it, the one that is given, and the next.
    """
    if device.type == "cpu":
        yield from batches
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    ahead = _copied(next(batches, None), device, stream)
    while ahead is not None:
        batch, copied = ahead
        ahead = _copied(next(batches, None), device, stream)
        computing = torch.cuda.current_stream(device)
        computing.wait_event(copied)
        for tensor in _tensors(batch):
            tensor.record_stream(computing)  # its memory is not given out again before the step is done with it
        yield batch
        # The step is over, so this is no waiting; but it says that the page-locked memory may be written again, which
        # the prefetch thread does from the batch after the next on (see `collect.BufferRing`).
        copied.synchronize()


def _copied(
    batch: MiniBatch | None, device: torch.device, stream: torch.cuda.Stream
) -> tuple[MiniBatch, torch.cuda.Event] | None:
    """Begin the copy of a batch; the event is over when it has arrived."""
    if batch is None:
        return None
    with torch.cuda.stream(stream):
        return to_device(batch, device), stream.record_event()


def _tensors(batch: MiniBatch) -> Iterator[Tensor]:
    yield batch.labels
    for block in batch.blocks:
        yield from (block.indptr, block.indices)
    match batch.inputs:
        case DenseRows(x) | SelfAndMean(x):
            yield x
        case SparseRows() as x:
            yield from (x.indptr, x.indices, x.values)


def to_device(batch: MiniBatch, device: torch.device) -> MiniBatch:
    """The batch on `device`, copied without waiting where the memory allows it."""
    if device.type == "cpu":
        return batch
    return replace(
        batch,
        blocks=tuple(_block_to(block, device) for block in batch.blocks),
        labels=_copy(batch.labels, device),
        inputs=_inputs_to(batch.inputs, device),
    )


def _block_to(block: Block, device: torch.device) -> Block:
    """Only the block's own edges: on the CPU all blocks share one array of them."""
    first, last = int(block.indptr[0]), int(block.indptr[-1])
    return Block(_copy(block.indptr - first, device), _copy(block.indices[first:last], device))


def _inputs_to(inputs: Inputs, device: torch.device) -> Inputs:
    match inputs:
        case DenseRows(x):
            return DenseRows(_copy(x, device))
        case SelfAndMean(x):
            return SelfAndMean(_copy(x, device))
        case SparseRows() as x:
            return SparseRows(
                _copy(x.indptr, device), _copy(x.indices, device), _copy(x.values, device), x.num_features
            )


def _copy(tensor: Tensor, device: torch.device) -> Tensor:
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)
