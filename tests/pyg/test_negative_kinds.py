"""Negatives by name: by degree, historical, hard. Right probabilities, right choices, never an edge."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import graphmill
from graphmill.base.errors import UserError

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData

from graphmill.pyg import HardNegatives, HistoricalNegatives, by_degree
from graphmill.sample.negatives import Ends, KnownEdges, Negatives

LEAST_P = 1e-6
NODES = 40


def random_edges(number: int, seed: int = 0, num_nodes: int = NODES) -> torch.Tensor:
    return torch.randint(0, num_nodes, (2, number), generator=torch.Generator().manual_seed(seed))


def loader_of(data: Data, sampling, **options):
    return graphmill.LinkNeighborLoader(data, [3], neg_sampling=sampling, **{"batch_size": 50, **options})


def triplets(batch) -> list[tuple[int, int]]:
    """Sources and negative targets, as nodes of the graph."""
    sources = batch.n_id[batch.src_index]
    targets = batch.n_id[batch.dst_neg_index].view(len(sources), -1)
    return [(source, target) for source, of in zip(sources.tolist(), targets.tolist(), strict=True) for target in of]


@pytest.mark.parametrize("power", [0.75, 1.0])
def test_by_degree_has_its_probabilities(power):
    edges = random_edges(120)
    data = Data(edge_index=edges, num_nodes=NODES)
    known = set(zip(*edges.tolist(), strict=True))
    out, into = (np.bincount(ids, minlength=NODES).astype(float) ** power for ids in edges.numpy())
    pairs = [(a, b) for a in range(NODES) for b in range(NODES) if (a, b) not in known and out[a] * into[b] > 0]
    expected = np.array([out[a] * into[b] for a, b in pairs])
    found = dict.fromkeys(pairs, 0)
    loader = loader_of(data, by_degree(edges, NODES, power=power, amount=50), batch_size=120, shuffle=True)
    for _ in range(20):
        for batch in loader:
            drawn = batch.n_id[batch.edge_label_index[:, batch.edge_label == 0]]
            for pair in zip(*drawn.tolist(), strict=True):
                found[pair] += 1  # a KeyError: an edge, or a node without edges
    total = sum(found.values())
    assert total == 20 * 120 * 50
    assert chisquare(list(found.values()), total * expected / expected.sum()).pvalue > LEAST_P


def test_by_degree_of_two_types():
    data = HeteroData()
    data["user"].num_nodes, data["film"].num_nodes = 30, 10
    edges = torch.stack([torch.arange(20), torch.arange(20) % 5])
    kind = "user", "rates", "film"
    data[kind].edge_index = edges
    loader = graphmill.LinkNeighborLoader(
        data, [2], edge_label_index=kind, batch_size=20, neg_sampling=by_degree(edges, (30, 10), amount=3)
    )
    for batch in loader:
        ends = batch[kind].edge_label_index[:, 20:]
        assert batch["user"].n_id[ends[0]].max() < 20, "users without a film are not drawn"
        assert batch["film"].n_id[ends[1]].max() < 5


def test_historical_targets_were_others_until_then():
    edges, draw = random_edges(300), torch.Generator().manual_seed(1)
    times = torch.randint(0, 100, (300,), generator=draw)
    data = Data(edge_index=edges, num_nodes=NODES, time=times)
    loader = loader_of(
        data, HistoricalNegatives(amount=3), edge_label_time=times, time_attr="time", shuffle=True, batch_size=300
    )
    num_checked = 0
    for batch in loader:
        pairs = np.array(triplets(batch)).reshape(-1, 3, 2)
        for of_link, time in zip(pairs, times[batch.input_id].tolist(), strict=True):
            there = times <= time
            for source, target in of_link.tolist():
                assert not (there & (edges[0] == source) & (edges[1] == target)).any()
                past = set(edges[1][there].tolist()) - set(edges[1][there & (edges[0] == source)].tolist())
                if past:
                    num_checked += 1
                    assert target in past or time < 20, "of the past, if there is enough of it"
    assert num_checked > 600


@pytest.mark.parametrize("mode", ["triplet", "binary"])
def test_historical_has_its_probabilities(mode):
    """One link: targets in proportion to the past edges into them."""
    edges = random_edges(200, num_nodes=12)
    times = torch.arange(200)
    known = KnownEdges.of(edges.numpy(), times.numpy(), 12, 12)
    ends = Ends.of(12, None, None)
    source, time, count = 3, 60, 40_000
    drawn = HistoricalNegatives(mode=mode).targets(
        Negatives(known, ends, ends), np.full(count, source), np.full(count, time), count, key=7
    )
    past = edges[:, times <= time]
    shares = np.bincount(past[1], minlength=12).astype(float)
    shares[past[1][past[0] == source].numpy()] = 0
    assert (shares == 0).any()
    assert (shares > 0).sum() > 3
    counts = np.bincount(drawn, minlength=12)
    assert not counts[shares == 0].any()
    expected = count * shares[shares > 0] / shares.sum()
    assert chisquare(counts[shares > 0], expected).pvalue > LEAST_P


def test_historical_without_a_past_are_any_that_are_no_edges():
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    data = Data(edge_index=edges, num_nodes=6, time=torch.tensor([5, 6, 7]))
    loader = loader_of(data, HistoricalNegatives(20), edge_label_time=torch.tensor([5, 5, 5]), time_attr="time")
    (batch,) = loader
    first = [target for source, target in triplets(batch) if source == 0]
    assert set(first) == {0, 2, 3, 4, 5}


def test_historical_needs_times():
    with pytest.raises(UserError, match="links have no times"):
        next(iter(loader_of(Data(edge_index=random_edges(50), num_nodes=NODES), HistoricalNegatives())))


def score(sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The hardest of a source are the nodes after it."""
    return -((targets - sources[:, None]) % NODES).float()


@pytest.mark.parametrize("mode", ["triplet", "binary"])
@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.forks)])
def test_hard_ones_are_the_best_of_the_candidates(mode, num_workers):
    """With so many candidates that nearly all nodes are among them, the choice is known."""
    edges = random_edges(400)
    data = Data(edge_index=edges, num_nodes=NODES)
    known = set(zip(*edges.tolist(), strict=True))
    loader = loader_of(data, HardNegatives(score, 2000, 2, mode), num_workers=num_workers)
    for batch in loader:
        if mode == "triplet":
            pairs = triplets(batch)
        else:
            num = len(batch.input_id)
            drawn = batch.n_id[batch.edge_label_index[:, num:]].view(2, 2, num)
            assert torch.equal(drawn[0, 0], edges[0, batch.input_id])
            pairs = [tuple(pair) for pair in drawn.permute(2, 1, 0).reshape(-1, 2).tolist()]
        for i in range(0, len(pairs), 2):
            source = pairs[i][0]
            left = [(source + step) % NODES for step in range(NODES)]
            expected = [target for target in left if (source, target) not in known][:2]
            assert [target for _, target in pairs[i : i + 2]] == expected


def test_hard_ones_repeat_only_where_there_are_too_few():
    """All nodes but two are targets of node 0: of five negatives, two differ."""
    edges = torch.stack([torch.zeros(NODES - 2, dtype=torch.long), torch.arange(NODES - 2)])
    loader = loader_of(Data(edge_index=edges, num_nodes=NODES), HardNegatives(score, 60, 5))
    for source, target in triplets(next(iter(loader))):
        assert source == 0
        assert target >= NODES - 2
    (batch,) = loader
    for of_link in np.array(triplets(batch))[:, 1].reshape(-1, 5):
        assert set(of_link[:2]) == {NODES - 2, NODES - 1}


@pytest.mark.parametrize(
    "scorer",
    [lambda sources, targets: targets[:, :1].float(), lambda sources, targets: targets / 0 * 0, lambda *_: None],
    ids=["shape", "NaN", "None"],
)
def test_scores_that_are_none_are_refused(scorer):
    loader = loader_of(Data(edge_index=random_edges(50), num_nodes=NODES), HardNegatives(scorer))
    with pytest.raises(UserError, match="scorer of hard negatives"):
        next(iter(loader))


@pytest.mark.parametrize(
    "make",
    [
        lambda: by_degree(random_edges(9), NODES, power=0),
        lambda: by_degree(random_edges(9), 3),
        lambda: HardNegatives(score, candidates=2, amount=3),
        lambda: HardNegatives(score, amount=0.5),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(UserError):
        make()
