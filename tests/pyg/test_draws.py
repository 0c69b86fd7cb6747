"""Which neighbours the samplers draw: what is allowed, and with the right probabilities."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from graphmill import _native

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NodeSamplerInput

from graphmill.pyg import NeighborSampler

DEGREE = 7
LEAST_P = 1e-6  # of chi-square: with fixed keys a test either always passes or never
KEYS = 20_000


def star(**attributes) -> Data:
    """Nodes 1 to 7 point to node 0, in an order that is no order."""
    sources = torch.tensor([4, 1, 7, 2, 6, 3, 5])
    edges = torch.stack([sources, torch.zeros(DEGREE, dtype=torch.long)])
    return Data(edge_index=edges, num_nodes=DEGREE + 1, **attributes)


def drawn(sampler, key, time=None):
    """The sources that node 0 draws."""
    seeds = NodeSamplerInput(torch.tensor([0]), torch.tensor([0]), None if time is None else torch.tensor([time]))
    out = sampler.sample_from_nodes(seeds, key=key)
    assert (out.col == 0).all()
    return tuple(out.node[out.row].tolist())


def assert_drawn_as(counted: dict, expected: dict, number: int = KEYS) -> None:
    assert set(counted) <= set(expected)
    probabilities = np.array([expected[each] for each in expected])
    assert math.isclose(probabilities.sum(), 1)
    assert chisquare([counted.get(each, 0) for each in expected], number * probabilities).pvalue > LEAST_P


def count(each) -> dict:
    counted: dict = {}
    for one in each:
        counted[one] = counted.get(one, 0) + 1
    return counted


def without_replacement(weights: dict[int, float], number: int) -> dict:
    """Exact probability of each set, drawn one by one in proportion to the weights of those that are left."""
    found: dict = {}
    for order in itertools.permutations(weights, number):
        left, probability = sum(weights.values()), 1.0
        for one in order:
            probability *= weights[one] / left
            left -= weights[one]
        found[frozenset(order)] = found.get(frozenset(order), 0) + probability
    return found


WEIGHTS = {1: 0.5, 2: 4.0, 3: 1.0, 4: 0.25, 5: 2.0, 6: 8.0, 7: 1.0}


def weighted(**options) -> NeighborSampler:
    data = star()
    data.w = torch.tensor([WEIGHTS[each] for each in data.edge_index[0].tolist()])
    return NeighborSampler(data, weight_attr="w", **options)


def test_uniform_draws_are_every_set_alike():
    sampler = NeighborSampler(star(), [3])
    expected = {frozenset(each): 1 / 35 for each in itertools.combinations(range(1, 8), 3)}
    assert_drawn_as(count(frozenset(drawn(sampler, key)) for key in range(KEYS)), expected)


def test_draws_with_replacement_are_every_sequence_alike():
    sampler = NeighborSampler(star(), [2], replace=True)
    expected = dict.fromkeys(itertools.product(range(1, 8), repeat=2), 1 / 49)
    assert_drawn_as(count(drawn(sampler, key) for key in range(KEYS)), expected)


def test_weighted_draws_without_replacement():
    sampler = weighted(num_neighbors=[3])
    found = count(frozenset(drawn(sampler, key)) for key in range(KEYS))
    assert_drawn_as(found, without_replacement(WEIGHTS, 3))


def test_weighted_draws_with_replacement():
    sampler = weighted(num_neighbors=[2], replace=True)
    total = sum(WEIGHTS.values())
    expected = {(a, b): WEIGHTS[a] * WEIGHTS[b] / total**2 for a, b in itertools.product(WEIGHTS, WEIGHTS)}
    assert_drawn_as(count(drawn(sampler, key) for key in range(KEYS)), expected)


def test_few_heavy_edges_leave_the_others_their_chance():
    """Rejection alone would draw the heavy one for ever; what is left is added up instead."""
    data = star()
    data.w = torch.where(data.edge_index[0] == 3, 1e12, 1.0).double()
    sampler = NeighborSampler(data, [3], weight_attr="w")
    expected = {frozenset({3, a, b}): 1 / 15 for a, b in itertools.combinations((1, 2, 4, 5, 6, 7), 2)}
    assert_drawn_as(count(frozenset(drawn(sampler, key)) for key in range(KEYS)), expected)


def test_edges_of_no_weight_are_never_drawn():
    data = star()
    data.w = (data.edge_index[0] > 4).double()
    for fanout, wanted in ((3, 3), (5, 3), (-1, 3)):
        sampler = NeighborSampler(data, [fanout], weight_attr="w")
        assert all(sorted(drawn(sampler, key)) == [5, 6, 7][:wanted] for key in range(200))


@pytest.mark.parametrize("of", ["nodes", "edges"])
def test_draws_until_a_time_are_every_set_alike(of):
    data = star()
    data.time = torch.arange(DEGREE + 1) if of == "nodes" else data.edge_index[0].clone()
    sampler = NeighborSampler(data, [2], time_attr="time")
    expected = {frozenset(each): 1 / 10 for each in itertools.combinations(range(1, 6), 2)}
    assert_drawn_as(count(frozenset(drawn(sampler, key, time=5)) for key in range(KEYS)), expected)


def test_weights_and_times_together():
    data = star()
    data.w = torch.tensor([WEIGHTS[each] for each in data.edge_index[0].tolist()])
    data.time = torch.arange(DEGREE + 1)
    sampler = NeighborSampler(data, [2], time_attr="time", weight_attr="w")
    until = {one: weight for one, weight in WEIGHTS.items() if one <= 5}
    found = count(frozenset(drawn(sampler, key, time=5)) for key in range(KEYS))
    assert_drawn_as(found, without_replacement(until, 2))


@pytest.mark.parametrize("weight_attr", [None, "w"])
def test_the_last_are_the_latest(weight_attr):
    data = star()
    data.w = torch.tensor([WEIGHTS[each] for each in data.edge_index[0].tolist()])
    data.time = torch.arange(DEGREE + 1)
    sampler = NeighborSampler(data, [3], time_attr="time", temporal_strategy="last", weight_attr=weight_attr)
    assert all(sorted(drawn(sampler, key, time=6)) == [4, 5, 6] for key in range(100))
    assert drawn(sampler, 0, time=0) == ()


def test_draws_of_two_subgraphs_are_independent():
    """The same node in the subgraphs of two seeds draws apart."""
    data = star()
    seeds = torch.zeros(2, dtype=torch.long)
    sampler = NeighborSampler(data, [1], disjoint=True)

    def pair(key):
        out = sampler.sample_from_nodes(NodeSamplerInput(None, seeds), key=key)
        assert out.batch[out.row].tolist() == out.batch[out.col].tolist() == [0, 1]
        return tuple(out.node[out.row].tolist())

    expected = dict.fromkeys(itertools.product(range(1, 8), repeat=2), 1 / 49)
    assert_drawn_as(count(pair(key) for key in range(KEYS)), expected)


def test_draws_of_two_relations_are_independent():
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = DEGREE, 1
    into = torch.stack([torch.arange(DEGREE), torch.zeros(DEGREE, dtype=torch.long)])
    data["a", "one", "b"].edge_index = data["a", "other", "b"].edge_index = into
    sampler = NeighborSampler(data, [1])

    def pair(key):
        out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0]), None, "b"), key=key)
        return tuple(int(out.node["a"][out.row[each]]) for each in sampler.edge_types)

    expected = dict.fromkeys(itertools.product(range(DEGREE), repeat=2), 1 / 49)
    assert_drawn_as(count(pair(key) for key in range(KEYS)), expected)


def random_graph(num_nodes: int, num_edges: int, seed: int = 0) -> Data:
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, num_nodes, (2, num_edges), generator=draw)
    times = torch.randint(0, 1000, (num_edges,), generator=draw)
    return Data(edge_index=edges, num_nodes=num_nodes, edge_time=times)


def later_neighbours(data: Data, number: int, batches: int, **options) -> tuple[int, int]:
    """Of `batches` batches: neighbours that were drawn, and those that are later than their seed."""
    sampler = NeighborSampler(data, [10, 10], time_attr="edge_time", **options)
    draw = torch.Generator().manual_seed(1)
    neighbours = later = 0
    for key in range(batches):
        nodes = torch.randint(0, data.num_nodes, (number,), generator=draw)
        times = torch.randint(0, 1000, (number,), generator=draw)
        out = sampler.sample_from_nodes(NodeSamplerInput(None, nodes, times), key=key)
        neighbours += len(out.edge)
        later += int((data.edge_time[out.edge] > times[out.batch[out.col]]).sum())
    return neighbours, later


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("replace", [False, True])
def test_no_neighbour_is_later_than_its_seed(strategy, replace):
    data = random_graph(500, 8000)
    neighbours, later = later_neighbours(data, 100, 10, temporal_strategy=strategy, replace=replace)
    assert neighbours > 10_000
    assert later == 0


@pytest.mark.slow
def test_none_of_ten_million_neighbours_is_later_than_its_seed():
    neighbours, later = later_neighbours(random_graph(100_000, 2_000_000), 5000, 45)
    assert neighbours > 10_000_000
    assert later == 0


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"disjoint": True}, {"subgraph_type": "induced"}])
def test_threads_change_no_subgraph(options):
    """Hops of more rows than one thread takes alone."""
    data = random_graph(30_000, 400_000)
    graph = NeighborSampler(data, [10, 10], **options).graph.native
    seeds = np.random.default_rng(0).permutation(30_000)[:2000]
    rule = {"replace": bool(options.get("replace")), "disjoint": bool(options.get("disjoint"))}
    rule["induced"] = "subgraph_type" in options

    def sampled(threads):
        hood = graph.sample([0], [seeds], [None], [[10, 10]], 2, 5, num_threads=threads, **rule)
        return hood.node_ids(0), hood.edge_index(0), hood.edge_ids(0), hood.subgraphs(0)

    one, many = sampled(1), sampled(4)
    assert all(np.array_equal(*pair) for pair in zip(one, many, strict=True))


def test_the_subgraphs_are_those_of_the_training_sampler():
    """One body of draws: a graph without types gives the batches that training of graphmill's own tasks has."""
    data = random_graph(3000, 40_000)
    sampler = NeighborSampler(data, [5, 4])
    columns = sampler.graph.columns[None]
    seeds = np.random.default_rng(0).permutation(3000)[:100]
    hood = _native.NeighborSampler(columns.indptr, columns.indices).sample(seeds, [5, 4], 9, with_edge_ids=True)
    out = sampler.sample({None: torch.from_numpy(seeds)}, None, 9)
    assert np.array_equal(out.node, hood.node_ids)
    assert np.array_equal(out.row, hood.indices)
    assert np.array_equal(out.edge, columns.order[hood.edge_ids])


def test_an_induced_subgraph_has_all_edges_between_its_nodes():
    data = random_graph(200, 2000)
    for disjoint in (False, True):
        sampler = NeighborSampler(data, [3, 2], subgraph_type="induced", disjoint=disjoint)
        out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(10)), key=3)
        for number in range(10) if disjoint else (None,):
            nodes = out.node if number is None else out.node[out.batch == number]
            edges = out.edge if number is None else out.edge[out.batch[out.col] == number]
            between = torch.isin(data.edge_index[0], nodes) & torch.isin(data.edge_index[1], nodes)
            assert sorted(edges.tolist()) == between.nonzero().view(-1).tolist()
        assert torch.equal(out.node[torch.stack([out.row, out.col])], data.edge_index[:, out.edge])
