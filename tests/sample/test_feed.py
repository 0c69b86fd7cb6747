"""Feeding a device: on the CPU nothing is copied; on a GPU the batches are the same."""

import pytest
import torch

from graphmill.graph.batch import Block, DenseRows, MiniBatch, SparseRows
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.runtime.spans import Spans
from graphmill.sample.feed import feed, tensors_in

CPU = torch.device("cpu")


def batch_of(step: int, *, sparse: bool) -> MiniBatch:
    generator = torch.Generator().manual_seed(step)
    indices = torch.randint(0, 9, (12,), generator=generator, dtype=torch.int32)
    block = Block(torch.tensor([0, 5, 8, 12]), indices)
    x = torch.randn(9, 4, generator=generator)
    rows = SparseRows(torch.arange(10), indices[:9] % 4, x[:, 0].contiguous(), 4)
    return MiniBatch(
        seeds=Seeds(0, step, SeedIds(torch.arange(3).numpy())),
        node_ids=torch.arange(9),
        blocks=(block,),
        edge_attr=torch.randn(12, 2, generator=generator),
        num_nodes_per_hop=(3, 6),
        num_edges_per_hop=(12,),
        inputs=rows if sparse else DenseRows(x),
        labels=torch.arange(3) + step,
        node_types=torch.arange(9) % 2,
    )


def tensors_of(batch: MiniBatch) -> list[torch.Tensor]:
    return [tensor.cpu() for tensor in tensors_in(batch)]


def test_all_tensors_of_a_batch_are_found():
    batch = batch_of(1, sparse=True)
    rows, (block,) = batch.inputs, batch.blocks
    ids, edges = batch.node_ids, batch.edge_attr
    of_rows = [rows.indptr, rows.indices, rows.values]
    expected = [ids, block.indptr, block.indices, edges, *of_rows, batch.labels, batch.node_types]
    assert [id(tensor) for tensor in tensors_in(batch)] == [id(tensor) for tensor in expected]


def test_on_the_cpu_they_are_the_very_batches():
    batches = [batch_of(step, sparse=False) for step in range(3)]
    assert all(fed is batch for fed, batch in zip(feed(iter(batches), CPU, Spans()), batches, strict=True))


def test_nothing_is_fed_from_nothing():
    assert list(feed(iter([]), CPU, Spans())) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("sparse", [False, True])
def test_on_a_gpu_they_are_equal_and_in_order(sparse):
    batches = [batch_of(step, sparse=sparse) for step in range(20)]
    device, spans = torch.device("cuda"), Spans()
    for fed, batch in zip(feed(iter(batches), device, spans), batches, strict=True):
        assert fed.labels.device.type == "cuda"
        for ours, theirs in zip(tensors_of(fed), tensors_of(batch), strict=True):
            assert torch.equal(ours, theirs)
    assert spans.seconds["copy"] > 0
