"""Where a loader stands: batches are functions of (seed, epoch, step), for whoever makes them and after any resume."""

import gc
import weakref

import pytest
import torch

import graphmill
from graphmill.base.errors import UserError

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from graphmill.pyg import NeighborSampler

WORKERS = {"num_workers": 2}
PERSISTENT = {**WORKERS, "persistent_workers": True}


def hetero() -> HeteroData:
    draw = torch.Generator().manual_seed(0)
    made = HeteroData()
    made["paper"].x, made["author"].x = torch.rand(80, 4, generator=draw), torch.rand(40, 3, generator=draw)
    made["author", "writes", "paper"].edge_index = torch.stack(
        [torch.randint(40, (300,), generator=draw), torch.randint(80, (300,), generator=draw)]
    )
    made["paper", "written_by", "author"].edge_index = made["author", "writes", "paper"].edge_index.flip(0)
    return made


def links(data, **options):
    return graphmill.LinkNeighborLoader(data, [4, 3], batch_size=300, neg_sampling="binary", **options)


LOADERS = {
    "nodes": lambda data, **options: graphmill.NeighborLoader(data, [4, 3], batch_size=40, **options),
    "links": links,
    "types": lambda _, **options: graphmill.NeighborLoader(
        hetero(), [4, 3], input_nodes="paper", batch_size=15, **options
    ),
    "hgt": lambda _, **options: graphmill.HGTLoader(hetero(), [10, 8], input_nodes="paper", batch_size=15, **options),
    "shadow": lambda data, **options: graphmill.ShaDowKHopSampler(
        data, depth=2, num_neighbors=4, batch_size=40, **options
    ),
}


def of_loaders(alone, *with_workers, fast) -> list:
    """Cases of `make`: every loader `alone`, and with workers; of those `make test` has the ones that are `fast`."""
    forking = [(name, how) for how in with_workers for name in LOADERS]
    assert all(case in forking for case in fast)
    marks = [[pytest.mark.forks, *([] if case in fast else [pytest.mark.slow])] for case in forking]
    return [
        *((name, alone) for name in LOADERS),
        *(pytest.param(*case, marks=own) for case, own in zip(forking, marks, strict=True)),
    ]


def tensors(batch) -> list[torch.Tensor]:
    """All of a batch, by name."""
    stores = batch.stores if isinstance(batch, HeteroData) else [batch]
    return [value for store in stores for _, value in sorted(store.items()) if isinstance(value, torch.Tensor)]


def assert_same(one, other) -> None:
    found, expected = tensors(one), tensors(other)
    assert len(found) == len(expected) > 2
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.fixture(params=LOADERS)
def make(request, data):
    def made(**options):
        return LOADERS[request.param](data, **{"shuffle": True, "seed": 4, **options})

    return made


BY_TURNS = [(name, (WORKERS, PERSISTENT)[number % 2]) for number, name in enumerate(LOADERS)]


@pytest.mark.parametrize(
    ("make", "options"), of_loaders({"prefetch": 0}, WORKERS, PERSISTENT, fast=BY_TURNS), indirect=["make"]
)
def test_workers_and_threads_change_nothing(make, options):
    one, other = make(), make(**options)
    for _ in range(2):
        for pair in zip(one, other, strict=True):
            assert_same(*pair)


@pytest.mark.forks
def test_persistent_workers_end_before_the_queues_that_tell_them_to(make):
    """Else torch waits 5 s for each, wherever the garbage collector meets a loader that was dropped."""
    loader = make(num_workers=2, persistent_workers=True)
    for _ in range(2):
        for _ in loader:
            pass
    of_torch = getattr(loader._iterator, "iterator", loader._iterator)
    workers, alive = of_torch._workers, []
    for queue in of_torch._index_queues:
        weakref.finalize(queue, lambda: alive.append([worker.is_alive() for worker in workers]))
    del loader, of_torch, queue
    gc.collect()
    assert alive == [[False, False]] * 2


@pytest.mark.parametrize(
    ("make", "num_workers"), of_loaders(0, 2, fast=[("nodes", 2), ("links", 2)]), indirect=["make"]
)
def test_a_resumed_loader_goes_on_mid_epoch(make, num_workers):
    undisturbed = make()
    expected = [batch for _ in range(2) for batch in undisturbed]
    first = make(num_workers=num_workers)
    for number, _ in enumerate(first, start=1):
        if number == 2:
            break
    resumed = make(num_workers=num_workers)
    resumed.load_state_dict(first.state_dict())
    found = [batch for _ in range(2) for batch in resumed]
    assert len(found) == len(expected) - 2
    for pair in zip(found, expected[2:], strict=True):
        assert_same(*pair)


@pytest.mark.parametrize(
    ("make", "num_workers"), of_loaders(0, 2, fast=[("types", 2), ("shadow", 2)]), indirect=["make"]
)
def test_a_stateful_dataloader_goes_on_mid_epoch(make, num_workers):
    """torchdata's, over the parts of a loader."""

    def stateful():
        loader = make()
        return StatefulDataLoader(
            loader.dataset,
            batch_sampler=loader.batch_sampler,
            collate_fn=loader.__call__ if hasattr(loader, "filter_per_worker") else loader.collate_fn,
            num_workers=num_workers,
        )

    expected = list(make())
    first = stateful()
    for number, batch in enumerate(first, start=1):
        assert_same(batch, expected[number - 1])
        if number == 2:
            break
    resumed = stateful()
    resumed.load_state_dict(first.state_dict())
    for pair in zip(resumed, expected[2:], strict=True):
        assert_same(*pair)


def test_a_batch_sampler_of_the_user(data):
    """Its batches, in its order; the draws are keyed all the same."""
    batches = [[5, 3, 8], [1], [0, 2]]

    def loader():
        return graphmill.NeighborLoader(data, [3], batch_sampler=batches, seed=2)

    one, again = list(loader()), list(loader())
    assert [batch.n_id[: batch.batch_size].tolist() for batch in one] == batches
    for pair in zip(one, again, strict=True):
        assert_same(*pair)
    resumed = loader()
    resumed.load_state_dict({"epoch": 0, "step": 1, "seed": 2})
    for pair in zip(resumed, one[1:], strict=True):
        assert_same(*pair)


def test_drop_last(data):
    assert [batch.batch_size for batch in graphmill.NeighborLoader(data, [2], batch_size=120, drop_last=True)] == [
        120
    ] * 2


def test_a_loader_of_pygs_is_repeated_by_torchs_seed(data):
    """No step reaches its sampler, so draws follow torch's generator."""
    loader = NodeLoader(data, NeighborSampler(data, [4, 3]), batch_size=50)

    def drawn(seed):
        torch.manual_seed(seed)
        return [batch.e_id for batch in loader]

    assert all(torch.equal(*pair) for pair in zip(drawn(1), drawn(1), strict=True))
    assert not all(torch.equal(*pair) for pair in zip(drawn(1), drawn(2), strict=True))


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"epoch": 0, "step": 0, "seed": 5}, "seed 5"),
        ({"epoch": 0, "step": 99, "seed": 4}, "step 99"),
        ({"epoch": 0, "step": 1.0, "seed": 4}, "the state is"),
        (None, "the state is"),
    ],
)
def test_a_state_of_another_loader_is_refused(make, state, says):
    with pytest.raises(UserError, match=says):
        make().load_state_dict(state)


def test_a_neighbor_sampler_without_keys_is_refused(data):
    from torch_geometric.sampler import HGTSampler

    sampler = HGTSampler.__new__(HGTSampler)
    with pytest.raises(UserError, match="draws have no key"):
        graphmill.NeighborLoader(data, [3], neighbor_sampler=sampler)


def test_one_sampler_for_two_loaders(data):
    sampler = NeighborSampler(data, [3])
    one = graphmill.NeighborLoader(data, [3], neighbor_sampler=sampler, batch_size=50)
    for pair in zip(one, graphmill.NeighborLoader(data, [3], batch_size=50), strict=True):
        assert_same(*pair)


def test_memory_comes_back_when_the_last_tensor_is_gone():
    """And not before: batches that are held keep what they have."""
    data = Data(x=torch.arange(50_000.0)[:, None].repeat(1, 16), edge_index=torch.randint(0, 50_000, (2, 200_000)))
    loader = graphmill.NeighborLoader(data, [3], batch_size=5000)
    held = list(loader)
    places = {batch.x.data_ptr() for batch in held}
    assert len(places) == len(held)
    assert all(torch.equal(batch.x[:, 0], batch.n_id.float()) for batch in held)
    kept = held[0].x[:, 0]
    del held
    again = {batch.x.data_ptr() for batch in graphmill.NeighborLoader(data, [3], batch_size=5000)}
    assert again & places, "memory of batches that are gone is used again"
    assert kept.data_ptr() not in again
    assert torch.equal(kept[:5000], torch.arange(5000.0))
