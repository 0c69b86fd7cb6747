"""What crosses between two processes: whole numbers and tensors, as bytes. Nothing is pickled, so nothing is executed.

    int64: how many numbers, how many tensors, the numbers; of each tensor its dtype, dimensions and shape
    the tensors, each from a multiple of 64 bytes on

Reading copies nothing: tensors are views of the bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from graphmill.graph.batch import Block, DenseRows, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.sampled import AnySeeds, EvaluationSeeds, SeedIds, Seeds

_ALIGNED: Final = 64
_WORD: Final = 8
_DTYPES: Final = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
_FORMS: Final = (DenseRows, SelfAndMean, SparseRows)


@dataclass(frozen=True, slots=True)
class Frame:
    """Numbers and tensors, which the receiver knows how to read."""

    numbers: tuple[int, ...]
    tensors: tuple[Tensor, ...]

    @property
    def num_bytes(self) -> int:
        """Number of bytes that `write` fills."""
        begin = _WORD * len(self._head())
        for tensor in self.tensors:
            begin = _aligned(begin) + tensor.numel() * tensor.element_size()
        return begin

    def write(self, out: Tensor) -> None:
        """Write to the bytes `out` [num_bytes], from whatever devices the tensors are on."""
        head = torch.tensor(self._head())
        begin = _WORD * len(head)
        out[:begin].view(torch.int64).copy_(head)
        for tensor in self.tensors:
            begin, end = _aligned(begin), _aligned(begin) + tensor.numel() * tensor.element_size()
            if tensor.numel():
                out[begin:end].view(tensor.dtype).view(tensor.shape).copy_(tensor)
            begin = end

    @classmethod
    def read(cls, source: Tensor) -> "Frame":
        """Read a frame from bytes that `write` has filled."""
        words = source[: len(source) // _WORD * _WORD].view(torch.int64)
        num_numbers, num_tensors = words[:2].tolist()
        numbers, place = words[2 : 2 + num_numbers].tolist(), 2 + num_numbers
        heads: list[tuple[torch.dtype, list[int]]] = []
        for _ in range(num_tensors):
            code, dimensions = words[place : place + 2].tolist()
            heads.append((_DTYPES[code], words[place + 2 : place + 2 + dimensions].tolist()))
            place += 2 + dimensions
        begin, tensors = _WORD * place, []
        for dtype, shape in heads:
            num_bytes = dtype.itemsize * torch.Size(shape).numel()
            begin = _aligned(begin)
            empty = torch.empty(shape, dtype=dtype) if not num_bytes else None
            tensors.append(source[begin : begin + num_bytes].view(dtype).view(shape) if empty is None else empty)
            begin += num_bytes
        return cls(tuple(numbers), tuple(tensors))

    def _head(self) -> list[int]:
        words = [len(self.numbers), len(self.tensors), *self.numbers]
        for tensor in self.tensors:
            if tensor.dtype not in _DTYPES:
                raise ValueError(f"tensors of {tensor.dtype} cannot be handed over")
            words += [_DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
        return words


def frame_of(batch: MiniBatch) -> Frame:
    """A mini-batch on the CPU; arrays that its blocks share are there once."""
    tensors: list[Tensor] = []
    seeds, inputs = batch.seeds, batch.inputs
    known: dict[tuple[int, torch.dtype, torch.Size, tuple[int, ...]], int] = {}

    def place(tensor: Tensor) -> int:
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in known:
            known[key] = len(tensors)
            tensors.append(tensor)
        return known[key]

    at = (seeds.epoch, seeds.step) if isinstance(seeds, Seeds) else (-1, -1)
    x = (inputs.indptr, inputs.indices, inputs.values) if isinstance(inputs, SparseRows) else (inputs.x,)
    width = inputs.num_features if isinstance(inputs, SparseRows) else 0
    numbers = [*at, _FORMS.index(type(inputs)), width]
    for hops in (batch.num_nodes_per_hop, batch.num_edges_per_hop):
        numbers += [len(hops), *hops]
    ids = torch.from_numpy(seeds.ids if seeds.ids.flags.writeable else seeds.ids.copy())
    numbers += [place(tensor) for tensor in (ids, batch.node_ids, batch.edge_attr, batch.labels, batch.node_types, *x)]
    for block in batch.blocks:
        numbers += [place(block.indptr), place(block.indices)]
    return Frame(tuple(numbers), tuple(tensors))


def batch_of(frame: Frame) -> MiniBatch:
    """The inverse of `frame_of`; what it gives lies in the frame's memory."""
    words = iter(frame.numbers)

    def tensor() -> Tensor:
        return frame.tensors[next(words)]

    def hops() -> tuple[int, ...]:
        return tuple(next(words) for _ in range(next(words)))

    epoch, step, form, width = (next(words) for _ in range(4))
    nodes_per_hop, edges_per_hop = hops(), hops()
    ids = SeedIds(tensor().numpy())
    node_ids, edge_attr, labels, node_types = (tensor() for _ in range(4))
    inputs = _inputs(form, width, [tensor() for _ in range(3 if _FORMS[form] is SparseRows else 1)])
    places = list(words)
    blocks = tuple(
        Block(frame.tensors[indptr], frame.tensors[indices])
        for indptr, indices in zip(places[::2], places[1::2], strict=True)
    )
    seeds: AnySeeds = EvaluationSeeds(ids) if epoch < 0 else Seeds(epoch, step, ids)
    return MiniBatch(seeds, node_ids, blocks, edge_attr, nodes_per_hop, edges_per_hop, inputs, labels, node_types)


def _inputs(form: int, width: int, x: Sequence[Tensor]) -> Inputs:
    if _FORMS[form] is SparseRows:
        return SparseRows(x[0], x[1], x[2], width)
    return DenseRows(x[0]) if _FORMS[form] is DenseRows else SelfAndMean(x[0])


def _aligned(number: int) -> int:
    return -(-number // _ALIGNED) * _ALIGNED
