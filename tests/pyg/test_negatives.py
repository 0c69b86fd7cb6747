"""Negatives of `LinkNeighborLoader`: never an edge, of the right types and times, with the right probabilities."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import graphmill
from graphmill.base.errors import UserError
from graphmill.sample.negatives import Ends, KnownEdges, Negatives

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

LEAST_P = 1e-6


def random_edges(num_sources: int, num_targets: int, number: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(each, (number,), generator=draw) for each in (num_sources, num_targets)])


def pairs_of(edges) -> set[tuple[int, int]]:
    return set(zip(*edges.tolist(), strict=True))


@pytest.fixture
def data() -> Data:
    return Data(x=torch.arange(60.0)[:, None], edge_index=random_edges(60, 60, 900))


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("amount", [1, 0.5, 3])
def test_pairs_of_a_batch(data, amount, disjoint):
    known = pairs_of(data.edge_index)
    loader = graphmill.LinkNeighborLoader(
        data, [3], batch_size=50, neg_sampling=NegativeSampling("binary", amount), shuffle=True, disjoint=disjoint
    )
    for batch in loader:
        num = len(batch.input_id)
        pairs = batch.n_id[batch.edge_label_index]
        assert batch.edge_label.tolist() == [1.0] * num + [0.0] * int(np.ceil(num * amount))
        assert torch.equal(pairs[:, :num], data.edge_index[:, batch.input_id]), "positives first"
        assert not pairs_of(pairs[:, num:]) & known
        assert torch.equal(batch.x[:, 0], batch.n_id.float())
        if disjoint:
            places = batch.batch[batch.edge_label_index]
            assert torch.equal(places[0], torch.arange(places.shape[1]) % num)
            assert torch.equal(places[0], places[1]), "both ends of a pair, and its link, share a name"


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("amount", [1, 2])
def test_targets_beside_each_source(data, amount, disjoint):
    known = pairs_of(data.edge_index)
    loader = graphmill.LinkNeighborLoader(
        data, [3], batch_size=50, neg_sampling=NegativeSampling("triplet", amount), disjoint=disjoint
    )
    for batch in loader:
        sources, targets = batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]
        assert torch.equal(torch.stack([sources, targets]), data.edge_index[:, batch.input_id])
        negatives = batch.n_id[batch.dst_neg_index].view(len(sources), amount)
        for source, of_it in zip(sources.tolist(), negatives.tolist(), strict=True):
            assert not {(source, target) for target in of_it} & known


def test_what_a_loader_learns_from_is_no_negative():
    """Supervision edges that were taken out of the graph are edges all the same."""
    edges = random_edges(40, 40, 600)
    data = Data(edge_index=edges[:, :300], num_nodes=40)
    loader = graphmill.LinkNeighborLoader(data, [2], edges[:, 300:], batch_size=100, neg_sampling="binary")
    for batch in loader:
        negatives = batch.n_id[batch.edge_label_index][:, len(batch.input_id) :]
        assert not pairs_of(negatives) & pairs_of(edges)


def test_negatives_are_of_the_links_types():
    data = HeteroData()
    data["user"].num_nodes, data["film"].num_nodes = 30, 20
    edges = data["user", "rates", "film"].edge_index = random_edges(30, 20, 300)
    loader = graphmill.LinkNeighborLoader(
        data, [2], edge_label_index=("user", "rates", "film"), batch_size=64, neg_sampling="binary"
    )
    kind = ("user", "rates", "film")
    for batch in loader:
        ends = batch[kind].edge_label_index
        pairs = torch.stack([batch["user"].n_id[ends[0]], batch["film"].n_id[ends[1]]])
        assert not pairs_of(pairs[:, len(batch[kind].input_id) :]) & pairs_of(edges)


def test_negatives_of_a_time_are_edges_only_later_and_of_nodes_that_exist():
    edges, draw = random_edges(12, 12, 100), torch.Generator().manual_seed(3)
    times = torch.randint(0, 10, (100,), generator=draw)
    data = Data(edge_index=edges, num_nodes=12, time=times)
    loader = graphmill.LinkNeighborLoader(
        data, [2], edge_label_time=times, time_attr="time", batch_size=20, neg_sampling="binary"
    )
    num_later = 0
    for _ in range(20):
        for batch in loader:
            num = len(batch.input_id)
            pairs = batch.n_id[batch.edge_label_index][:, num:].T.tolist()
            for (source, target), time in zip(pairs, batch.edge_label_time[num:].tolist(), strict=True):
                there = (edges[0] == source) & (edges[1] == target)
                assert not (there & (times <= time)).any()
                num_later += bool(there.any())
    assert num_later > 0, "an edge of tomorrow is a negative today"


def test_nodes_that_do_not_exist_yet_are_no_negatives():
    data = Data(edge_index=random_edges(30, 30, 60), num_nodes=30, time=torch.arange(30))
    links = random_edges(30, 30, 40, seed=1)
    at = links.max(0).values + 2
    loader = graphmill.LinkNeighborLoader(
        data, [2], links, edge_label_time=at, time_attr="time", batch_size=10, neg_sampling="binary"
    )
    for batch in loader:
        pairs = batch.n_id[batch.edge_label_index]
        assert (pairs.max(0).values <= batch.edge_label_time).all()


@pytest.mark.forks
def test_the_same_key_draws_the_same_negatives(data):
    def drawn(**options):
        loader = graphmill.LinkNeighborLoader(data, [2], batch_size=90, neg_sampling="binary", shuffle=True, **options)
        return [batch.n_id[batch.edge_label_index] for batch in loader]

    again = drawn(num_workers=2)
    assert all(torch.equal(*pair) for pair in zip(drawn(), again, strict=True))
    assert not torch.equal(drawn(seed=1)[0], again[0])


def counted(negatives: Negatives, given, number: int, keys: int = 200) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for key in range(keys):
        sources = None if given is None else np.full(number, given)
        for pair in zip(*(each.tolist() for each in negatives.draw(number, sources, None, key)), strict=True):
            found[pair] = found.get(pair, 0) + 1
    return found


DENSE = [(a, b) for a, b in itertools.product(range(6), range(6)) if (a + b) % 3]
FULL = [pair for pair in itertools.product(range(6), range(6)) if pair not in ((1, 4), (1, 5), (2, 4))]


@pytest.mark.parametrize("edges", [DENSE, FULL], ids=["some left", "three left"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_pair_that_is_left_has_its_chance(edges, weighted):
    """Also where nearly all pairs are edges, and draws that meet none are given up."""
    weight = torch.arange(1.0, 7.0) if weighted else None
    ends = Ends.of(6, weight, None)
    negatives = Negatives(KnownEdges.of(np.array(edges).T, None, 6, 6), ends, ends)
    left = [pair for pair in itertools.product(range(6), range(6)) if pair not in edges]
    of_pairs = np.array([(a + 1) * (b + 1) if weighted else 1.0 for a, b in left])
    found = counted(negatives, None, 100)
    assert set(found) <= set(left)
    expected = 20_000 * of_pairs / of_pairs.sum()
    assert chisquare([found.get(pair, 0) for pair in left], expected).pvalue > LEAST_P
    targets = [b for a, b in left if a == 1]
    of_one = counted(negatives, 1, 100)
    shares = np.array([b + 1.0 if weighted else 1.0 for b in targets])
    assert chisquare([of_one.get((1, b), 0) for b in targets], 20_000 * shares / shares.sum()).pvalue > LEAST_P


def test_where_no_pair_is_left_it_says_so():
    everything = np.array(list(itertools.product(range(4), range(4)))).T
    negatives = Negatives(KnownEdges.of(everything, None, 4, 4), Ends.of(4, None, None), Ends.of(4, None, None))
    with pytest.raises(UserError, match="every pair"):
        negatives.draw(3, None, None, 1)
    with pytest.raises(UserError, match="node 2 has edges to all"):
        negatives.draw(3, np.full(3, 2), None, 1)


@pytest.mark.parametrize("weight", [torch.ones(59), -torch.ones(60), torch.zeros(60), torch.full((60,), torch.nan)])
def test_weights_that_fit_no_nodes_are_refused(data, weight):
    sampling = NegativeSampling("triplet", 1, dst_weight=weight)
    with pytest.raises(UserError, match="weights of negatives"):
        next(iter(graphmill.LinkNeighborLoader(data, [2], batch_size=4, neg_sampling=sampling)))


@pytest.mark.slow
def test_none_of_a_hundred_million_negatives_is_an_edge():
    edges = random_edges(20_000, 20_000, 4_000_000).numpy()
    known = KnownEdges.of(edges, None, 20_000, 20_000)
    ends = Ends.of(20_000, None, None)
    keys = np.unique(edges[0] * 20_000 + edges[1])
    for key in range(100):
        sources, targets = Negatives(known, ends, ends).draw(1_000_000, None, None, key)
        pairs = sources * 20_000 + targets
        assert not (keys[np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)] == pairs).any()
