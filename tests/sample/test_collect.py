"""From seeds to a mini-batch: blocks that fit each other, features in every form, memory that is used again."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from rounding import Bounded, assert_within, cat

from graphmill.graph.batch import DenseRows, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.features import DenseFeatures, SparseFeatures
from graphmill.graph.graph_set import CutGraphs, GraphSet
from graphmill.graph.sampled import Sampled, SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.sample.collect import Collector, WholeTables, reused_buffers, tensor_ring
from graphmill.sample.neighbor import WholeSampler

NUM_NODES = 500


@pytest.fixture(scope="module")
def topology() -> Topology:
    rng = np.random.default_rng(0)
    rows = [np.sort(rng.choice(NUM_NODES, rng.integers(0, 15), replace=False)) for _ in range(NUM_NODES)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Topology(indptr, np.concatenate(rows).astype(np.int32))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((NUM_NODES, 9)).astype(np.float32)


LABELS = np.arange(NUM_NODES) % 7


def seeds(count: int, step: int = 0) -> Seeds:
    return Seeds(0, step, SeedIds(np.random.default_rng(step).choice(NUM_NODES, count, replace=False)))


@dataclass
class OfWhole:
    """A collector over features that are stored whole."""

    collector: Collector
    tables: WholeTables

    def collect(self, sampled: Sampled) -> MiniBatch:
        return self.collector.collect(sampled, *self.tables.fetch([sampled]))


def collector_of(features, form="rows", dtype=torch.float32, prefetch=0) -> OfWhole:
    collector = Collector(LABELS, form, dtype, num_threads=2, prefetch=prefetch)
    return OfWhole(collector, WholeTables(features, None))


@pytest.mark.parametrize("resample", [False, True])
def test_each_layer_reads_what_the_one_before_it_made(topology, resample):
    sampler = WholeSampler(topology, (4, 3, 2), seed=1, num_threads=1, resample=resample)
    sampled = sampler.sample(seeds(30))
    assert len(sampled.blocks) == 3
    num_inputs = len(sampled.node_ids)
    for block in sampled.blocks:
        used = block.indices[block.indptr[0] : block.indptr[-1]]
        assert block.num_rows <= num_inputs
        assert used.size == 0 or used.max() < num_inputs
        num_inputs = block.num_rows
    assert num_inputs == 30, "the last layer's rows are the seeds"
    fanouts = [int(np.diff(block.indptr).max()) for block in sampled.blocks]
    assert fanouts == ([2, 3, 4] if resample else [4, 4, 4])


@pytest.mark.parametrize("fanouts", [(3,), (-1, 3), (3, -1)])
def test_draws_depend_on_epoch_and_step(topology, fanouts):
    sampler = WholeSampler(topology, fanouts, seed=1, num_threads=1, resample=True)
    ids = SeedIds(np.arange(100))
    hoods = [sampler.sample(Seeds(epoch, step, ids)) for epoch, step in ((0, 0), (0, 1), (1, 0), (0, 0))]
    picked = [hood.node_ids[hood.blocks[0].indices].tolist() for hood in hoods]
    assert picked[0] == picked[3]
    assert picked[0] != picked[1] != picked[2] != picked[0]


def test_dense_rows_and_labels(topology, x):
    sampler = WholeSampler(topology, (4, 3), seed=1, num_threads=1, resample=True)
    batch = collector_of(DenseFeatures(x, "float32")).collect(sampler.sample(seeds(20)))
    assert isinstance(batch.inputs, DenseRows)
    assert np.array_equal(batch.inputs.x.numpy(), x[batch.node_ids.numpy()])
    assert np.array_equal(batch.labels.numpy(), LABELS[batch.seeds.ids])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_self_and_mean(topology, x, dtype):
    sampler = WholeSampler(topology, (4, 3), seed=1, num_threads=1, resample=True)
    batch = collector_of(DenseFeatures(x, "float32"), "self_and_mean", dtype).collect(sampler.sample(seeds(20)))
    assert isinstance(batch.inputs, SelfAndMean)
    assert batch.inputs.x.dtype == dtype
    block, rows = batch.blocks[0], x[batch.node_ids.numpy()]
    for row in range(block.num_rows):
        neighbours = rows[block.indices[block.indptr[row] : block.indptr[row + 1]].numpy()]
        mean = Bounded.of(torch.from_numpy(neighbours)).sum(0) / max(1, len(neighbours))
        own = Bounded.of(torch.from_numpy(rows[row]))
        assert_within(batch.inputs.x[row].float(), cat([own, mean.rounded()], 0), stored=dtype)


def test_sparse_rows(topology, x):
    kept = np.where(np.abs(x) > 1, x, 0)
    columns = [np.flatnonzero(row) for row in kept]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in columns])]).astype(np.int64)
    features = SparseFeatures(indptr, np.concatenate(columns).astype(np.int32), kept[kept != 0], 9)
    sampler = WholeSampler(topology, (4,), seed=1, num_threads=1, resample=True)
    batch = collector_of(features).collect(sampler.sample(seeds(20)))
    assert isinstance(batch.inputs, SparseRows)
    rows = np.repeat(np.arange(len(batch.node_ids)), np.diff(batch.inputs.indptr.numpy()))
    written_out = np.zeros((len(batch.node_ids), 9), np.float32)
    written_out[rows, batch.inputs.indices.numpy()] = batch.inputs.values.numpy()
    assert np.array_equal(written_out, kept[batch.node_ids.numpy()])


def test_a_batch_without_seeds(topology, x):
    sampler = WholeSampler(topology, (4, 3), seed=1, num_threads=2, resample=True)
    for form in ("rows", "self_and_mean"):
        batch = collector_of(DenseFeatures(x, "float32"), form).collect(sampler.sample(seeds(0)))
        assert batch.inputs.x.shape[0] == len(batch.labels) == len(batch.node_ids) == 0
        assert [block.num_rows for block in batch.blocks] == [0, 0]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_memory_serves_again_only_after_the_batches_in_flight(topology, x, prefetch):
    """One is being made, `prefetch` wait, one is copied to a GPU, one is computed on: none of them is overwritten."""
    sampler = WholeSampler(topology, (4, 3), seed=1, num_threads=1, resample=True)
    collector = collector_of(DenseFeatures(x, "float32"), prefetch=prefetch)
    batches, copies = [], []
    for step in range(12):
        batches.append(collector.collect(sampler.sample(seeds(20 + step, step))))
        copies.append(batches[-1].inputs.x.clone())
        for alive in range(max(0, step - prefetch - 2), step + 1):
            assert torch.equal(batches[alive].inputs.x, copies[alive])


def test_the_ring_grows_and_goes_round():
    ring = tensor_ring(2, torch.float32)
    first = ring.allocate(3, 4)
    assert first.shape == (3, 4)
    second, third = ring.allocate(2, 4), ring.allocate(3, 3)
    assert third.data_ptr() == first.data_ptr(), "the third call gets the first one's memory"
    assert ring.allocate(100, 4).shape == (100, 4), "and larger memory where that is too small"
    assert second.data_ptr() != third.data_ptr()
    assert ring.allocate(0, 4).shape == (0, 4)
    kept = ring.allocate(2, 2).fill_(5)
    ring.release()
    ring.allocate(2, 2).fill_(6)
    ring.allocate(2, 2).fill_(6)
    assert torch.all(kept == 5), "what somebody reads is not given to others"


def test_memory_of_cut_graphs_is_reused_only_when_it_is_not_in_use():
    rng = np.random.default_rng(0)
    num_nodes, num_edges = rng.integers(1, 9, 60), rng.integers(0, 20, 60)
    edge_index = rng.integers(0, np.repeat(num_nodes, num_edges), (2, num_edges.sum()))
    graphs = GraphSet.of(num_nodes, num_edges, edge_index, rng.random((num_nodes.sum(), 3), dtype=np.float32))
    prefetch = 2
    allocate, chosen = reused_buffers(prefetch), [rng.integers(0, 60, rng.integers(0, 30)) for _ in range(20)]
    alive = []
    for ids in chosen:
        alive = [*alive, (ids, graphs.cut(ids, num_threads=2, allocate=allocate))][-(prefetch + 3) :]
        for of, batch in alive:
            fresh = graphs.cut(of, num_threads=1)
            for name in CutGraphs.__slots__:
                np.testing.assert_array_equal(getattr(batch, name), getattr(fresh, name))
