"""Mini-batches as bytes and back: an inverse, whatever they hold."""

from dataclasses import fields, is_dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from graphmill.graph.batch import Block, DenseRows, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.sampled import EvaluationSeeds, SeedIds, Seeds
from graphmill.sample.service.frames import Frame, batch_of, frame_of

COUNTS = st.integers(0, 5)


def ints(draw, count: int) -> torch.Tensor:
    return torch.tensor(draw(st.lists(st.integers(0, 2**31 - 1), min_size=count, max_size=count)), dtype=torch.int64)


def floats(draw, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Any bits but NaN, which equals nothing."""
    bits = torch.tensor(draw(st.lists(st.floats(width=16, allow_nan=False), min_size=1, max_size=4)))
    return bits.repeat(torch.Size(shape).numel())[: torch.Size(shape).numel()].view(shape).to(dtype)


def inputs(draw, num_rows: int) -> Inputs:
    form, width = draw(st.sampled_from([DenseRows, SelfAndMean, SparseRows])), draw(COUNTS)
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16]))
    if form is not SparseRows:
        return form(floats(draw, num_rows, width, dtype=dtype))
    num_values = draw(COUNTS)
    return SparseRows(ints(draw, num_rows + 1), ints(draw, num_values).int(), floats(draw, num_values), width)


@st.composite
def batches(draw) -> MiniBatch:
    num_seeds, num_nodes, num_edges, hops = draw(COUNTS), draw(COUNTS), draw(COUNTS), draw(st.integers(1, 4))
    ids = SeedIds(ints(draw, num_seeds).numpy())
    at = st.integers(0, 2**40)
    seeds = Seeds(draw(at), draw(at), ids) if draw(st.booleans()) else EvaluationSeeds(ids)
    shared = ints(draw, num_edges).int()
    blocks = tuple(Block(ints(draw, draw(COUNTS) + 1), shared) for _ in range(hops))
    return MiniBatch(
        seeds=seeds,
        node_ids=ints(draw, num_nodes),
        blocks=blocks,
        edge_attr=floats(draw, num_edges, draw(COUNTS)),
        num_nodes_per_hop=tuple(draw(COUNTS) for _ in range(hops + 1)),
        num_edges_per_hop=tuple(draw(COUNTS) for _ in range(hops)),
        inputs=inputs(draw, num_nodes),
        labels=ints(draw, num_seeds),
        node_types=ints(draw, num_nodes),
    )


def assert_equal(found: object, expected: object) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert torch.equal(found, expected)
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif is_dataclass(expected):
        for field in fields(expected):
            assert_equal(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        assert found == expected


@given(batches(), st.integers(0, 100))
def test_there_and_back(batch, spare):
    """Also out of memory that is larger than it, and holds what was there before."""
    frame = frame_of(batch)
    room = torch.full((frame.num_bytes + spare,), 0xA5, dtype=torch.uint8)
    frame.write(room[: frame.num_bytes])
    assert bool((room[frame.num_bytes :] == 0xA5).all())
    assert_equal(batch_of(Frame.read(room)), batch)


@given(batches())
def test_what_blocks_share_is_there_once(batch):
    frame = frame_of(batch)
    read = batch_of(frame)
    if len(batch.blocks[0].indices):
        assert len({block.indices.data_ptr() for block in read.blocks}) == 1
    assert len(frame.tensors) <= 8 + len(batch.blocks) + 1 + (0 if len(batch.blocks[0].indices) else len(batch.blocks))


def test_reading_copies_nothing():
    frame = Frame((7,), (torch.arange(5), torch.ones(3, 2)))
    room = torch.empty(frame.num_bytes, dtype=torch.uint8)
    frame.write(room)
    read = Frame.read(room)
    read.tensors[1][0, 0] = 5.0
    assert Frame.read(room).tensors[1][0, 0] == 5.0


def test_a_dtype_that_cannot_cross():
    with pytest.raises(ValueError, match="complex64"):
        _ = Frame((), (torch.zeros(1, dtype=torch.complex64),)).num_bytes
