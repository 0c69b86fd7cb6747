"""Batches from worker processes: right whoever keeps what of them, in memory that is used again."""

import gc
from pathlib import Path

import pytest
import torch

import graphmill

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data

from graphmill.pyg import shared

pytestmark = pytest.mark.forks
NODES = 4000


@pytest.fixture
def data() -> Data:
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, 60_000), generator=draw)
    return Data(x=torch.rand(NODES, 32, generator=draw), y=torch.arange(NODES), edge_index=edges)


def loader_of(data, **options):
    return graphmill.NeighborLoader(data, [10, 5], batch_size=200, num_workers=2, shuffle=True, **options)


def is_right(batch, data) -> bool:
    return torch.equal(batch.x, data.x[batch.n_id]) and torch.equal(batch.y, batch.n_id)


def test_batches_that_are_kept_stay_what_they_are(data):
    kept = list(loader_of(data))
    alone = list(graphmill.NeighborLoader(data, [10, 5], batch_size=200, shuffle=True))
    for batch, expected in zip(kept, alone, strict=True):
        assert is_right(batch, data)
        assert torch.equal(batch.edge_index, expected.edge_index)
        assert torch.equal(batch.e_id, expected.e_id)


def test_parts_that_are_kept_stay_what_they_are(data):
    loader = loader_of(data, persistent_workers=True)
    rows, ids = [], []
    for _ in range(3):
        for number, batch in enumerate(loader):
            assert is_right(batch, data)
            if number % 3 == 0:
                rows.append(batch.x[:50])
                ids.append(batch.n_id[:50].clone())
    assert all(torch.equal(x, data.x[n]) for x, n in zip(rows, ids, strict=True))


def test_memory_is_used_again(data):
    loader = loader_of(data, persistent_workers=True)
    for _ in range(5):
        for batch in loader:
            assert is_right(batch, data)
    num_segments = sum(len(inbox._segments) for inbox in shared._inboxes.values())
    num_tensors = sum(map(torch.is_tensor, batch.to_dict().values()))
    under_way = loader.num_workers * loader.prefetch_factor + 2  # batches: one is read, one is held
    assert 0 < num_segments <= 2 * under_way * num_tensors, "2: sizes of batches differ, and each has segments that fit"
    assert 5 * len(loader) > 4 * under_way, "of memory that is not used again there would be much more"


def test_a_tensor_keeps_no_other_alive(data):
    batch = next(iter(loader_of(data)))
    assert batch.x.untyped_storage().data_ptr() != batch.edge_index.untyped_storage().data_ptr()


@pytest.mark.slow
def test_batches_outlive_their_workers_and_nothing_is_left(data):
    before = set(shared._inboxes)  # of loaders whose workers persist
    kept = list(loader_of(data))[-1]
    assert set(shared._inboxes) <= before
    gc.collect()
    assert is_right(kept, data)
    kept.x.add_(1)  # it is the user's


def test_no_descriptor_stays_open(data):
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = list(loader_of(data))
    after = len(list(Path("/proc/self/fd").iterdir()))
    assert len(kept) == 20
    assert after - before < 10, "a tensor that is kept needs no descriptor"


def times_two(batch):
    batch.x = batch.x * 2
    batch.again = batch.y  # one tensor under two names
    batch.some = batch.x[::2]
    batch.half = batch.x[:100]
    return batch


@pytest.mark.parametrize("fill", [True, False])
def test_what_a_transform_makes_arrives(data, fill):
    for batch in loader_of(data, transform=times_two, filter_per_worker=fill, persistent_workers=True):
        rows = 2 * data.x[batch.n_id]
        assert torch.equal(batch.x, rows)
        assert torch.equal(batch.again, batch.n_id)
        assert torch.equal(batch.some, rows[::2])
        assert torch.equal(batch.half, rows[:100])


def test_other_number_formats_and_shapes(data):
    data.x = data.x.bfloat16()
    data.mask, data.wide = torch.arange(NODES) % 2 == 0, torch.rand(NODES, 2, 3, 4)
    data.empty = torch.empty(NODES, 0)
    for batch in loader_of(data):
        assert is_right(batch, data)
        assert torch.equal(batch.mask, data.mask[batch.n_id])
        assert torch.equal(batch.wide, data.wide[batch.n_id])
        assert batch.empty.shape == (len(batch.n_id), 0)


def test_a_gradient_reaches_what_is_learnt(data):
    data.x = torch.nn.Parameter(data.x)
    batch = next(iter(loader_of(data)))
    batch.x.sum().backward()
    assert torch.equal(data.x.grad[:, 0].nonzero()[:, 0], batch.n_id.sort().values)


class Remembering:
    """A transform that keeps what it gave out: a worker may not write there."""

    def __init__(self) -> None:
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, batch):
        assert all(torch.equal(x, copy) for x, copy in self.kept)
        self.kept.append((batch.x, batch.x.clone()))
        return batch


def test_what_a_worker_keeps_is_not_written_over(data):
    loader = loader_of(data, transform=Remembering(), persistent_workers=True)
    for _ in range(2):
        assert all(is_right(batch, data) for batch in loader)
