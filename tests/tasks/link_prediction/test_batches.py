"""Mini-batches of links: negatives that are none, what a step may read, the same for any number of ranks."""

from itertools import product

import numpy as np
import pytest

from graphmill.graph.keys import Purpose
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.sample.neighbor import WholeSampler
from graphmill.tasks.link_prediction.data.batches import NegativeSampler, without_edges
from graphmill.tasks.link_prediction.data.links import Links
from graphmill.tasks.link_prediction.page.models import NegativesSpec

NODES = 40


def topology_of(edges: np.ndarray) -> Topology:
    """Edges [2, n], each once."""
    order = np.lexsort((edges[0], edges[1]))
    counts = np.bincount(edges[1], minlength=NODES)
    return Topology(indptr=np.concatenate([[0], np.cumsum(counts)]), indices=edges[0][order].astype(np.int32))


@pytest.fixture
def edges() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.unique(rng.integers(0, NODES, (2, 400)), axis=1)


def pairs_drawn(sampler, links, seeds) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets [n, count] of negatives."""
    others, is_target = sampler.draw(links, seeds)
    return np.where(is_target, links.sources[:, None], others), np.where(is_target, others, links.targets[:, None])


def pairs(sources, targets) -> set[tuple[int, int]]:
    return set(zip(sources.reshape(-1).tolist(), targets.reshape(-1).tolist(), strict=True))


@pytest.mark.parametrize(("side", "has_direction"), list(product(["target", "source", "both"], [True, False])))
def test_negatives_are_no_known_pair_and_keep_an_end(edges, side, has_direction):
    links, messages, asked = Links(*edges[:, ::2]), edges[:, 1::2], NegativesSpec(count=5, side=side)
    sampler = NegativeSampler.of(asked, 1, links, messages, NODES, have_direction=has_direction)
    seeds = Seeds(0, 3, SeedIds(np.arange(len(links))))
    sources, targets = pairs_drawn(sampler, links, seeds)
    known = pairs(*edges) if has_direction else pairs(*edges) | pairs(*edges[::-1])
    assert not pairs(sources, targets) & known
    same_source = sources == links.sources[:, None]
    same_target = targets == links.targets[:, None]
    assert (same_source | same_target).all()
    if side == "target":
        assert same_source.all()
    if side == "source":
        assert same_target.all()
    if side == "both":
        assert (~same_source).any()
        assert (~same_target).any()


def test_negatives_of_a_link_do_not_hang_on_the_batch_it_is_in(edges):
    links, asked = Links(*edges), NegativesSpec(count=3, side="both")
    sampler = NegativeSampler.of(asked, 1, links, edges, NODES, have_direction=True)
    whole = pairs_drawn(sampler, links, Seeds(2, 5, SeedIds(np.arange(len(links)))))
    some = np.array([7, 3, 30])
    its = pairs_drawn(sampler, links.taken(some), Seeds(2, 5, SeedIds(some)))
    for of_all, of_some in zip(whole, its, strict=True):
        np.testing.assert_array_equal(of_all[some], of_some)
    other = pairs_drawn(sampler, links, Seeds(2, 6, SeedIds(np.arange(len(links)))))
    assert not np.array_equal(whole[1], other[1])


@pytest.mark.parametrize(("side", "has_direction"), list(product(["target", "source", "both"], [True, False])))
def test_shared_negatives_that_are_known_pairs_are_named(edges, side, has_direction):
    """Links may stand twice, and so may the nodes that are drawn."""
    links, messages = Links(*np.concatenate([edges[:, ::2], edges[:, :20]], axis=1)), edges[:, 1::2]
    asked = NegativesSpec(count=51, side=side, shared=True)
    sampler = NegativeSampler.of(asked, 1, links, messages, NODES, have_direction=has_direction)
    others, num_targets, are_links = sampler.draw_shared(links, Seeds(0, 3, SeedIds(np.arange(len(links)))))
    assert (len(others), num_targets) == (51, {"target": 51, "source": 0, "both": 26}[side])
    known = pairs(*edges) if has_direction else pairs(*edges) | pairs(*edges[::-1])
    known |= {(node, node) for node in range(NODES)}
    for link, (source, target) in enumerate(links.ends.T.tolist()):
        drawn = [(source, other) if at < num_targets else (other, target) for at, other in enumerate(others.tolist())]
        assert are_links[link].tolist() == [pair in known for pair in drawn]
    again, *_ = sampler.draw_shared(links.taken(np.arange(3)), Seeds(0, 3, SeedIds(np.arange(3))))
    np.testing.assert_array_equal(again, others)
    later, *_ = sampler.draw_shared(links, Seeds(0, 4, SeedIds(np.arange(len(links)))))
    assert not np.array_equal(later, others)


@pytest.mark.parametrize("shared", [False, True])
def test_negatives_by_degree_follow_the_degrees(edges, shared):
    links = Links(np.zeros(30, np.int64), np.repeat(np.arange(1, 4), [1, 5, 24]))
    nothing = np.empty((2, 0), np.int64)
    by_degree = NegativesSpec(side="source", by="degree", shared=shared, count=20_000 if shared else 1)
    sampler = NegativeSampler.of(by_degree, 1, links, nothing, NODES, have_direction=True)
    count = 1 if shared else 20_000
    asked = Links(np.zeros(count, np.int64), np.full(count, 20))  # a target that no link has
    seeds = Seeds(0, 0, SeedIds(np.arange(count)))
    sources = sampler.draw_shared(asked, seeds)[0] if shared else pairs_drawn(sampler, asked, seeds)[0]
    found = np.bincount(sources.reshape(-1), minlength=NODES)
    weights = np.bincount(links.ends.reshape(-1), minlength=NODES) ** 0.75
    expected = 20_000 * weights / weights.sum()
    assert not found[weights == 0].any()
    chosen = weights > 0
    chi_square = ((found[chosen] - expected[chosen]) ** 2 / expected[chosen]).sum()
    assert chi_square < 27.9  # 1 in 10^6 of chi-square with 3 degrees of freedom is above 30.7


@pytest.mark.parametrize(("resamples", "fanouts"), list(product([True, False], [(-1,), (3, 2), (-1, -1)])))
def test_a_step_does_not_read_its_own_links(edges, resamples, fanouts):
    topology = topology_of(edges)
    sampler = WholeSampler(topology, fanouts, 1, num_threads=1, resample=resamples, with_edge_ids=True)
    ends = np.unique(edges[:, :12])
    sampled = sampler.sample(Seeds(0, 0, SeedIds(ends)))
    place = {node: number for number, node in enumerate(ends.tolist())}
    links = {(place[t], place[s]) for s, t in edges[:, :12].T.tolist()}
    links |= {(s, t) for t, s in links}
    left = without_edges(sampled, Links(*edges[:, :12]), NODES, resamples=resamples)
    for before, after in zip(sampled.blocks, left.blocks, strict=True):
        assert rows_of(after) == [[s for s in row if (t, s) not in links] for t, row in enumerate(rows_of(before))]
    assert any(rows_of(a) != rows_of(b) for a, b in zip(sampled.blocks, left.blocks, strict=True))
    assert sum(left.num_edges_per_hop) == len(left.edge_ids) == len(left.blocks[0].indices)
    of_edge = np.repeat(np.arange(NODES), np.diff(topology.indptr))  # the target of each entry
    local = left.blocks[-1] if len(fanouts) == 1 else None
    if local is not None:
        targets = np.repeat(np.arange(local.num_rows), np.diff(local.indptr))
        np.testing.assert_array_equal(of_edge[left.edge_ids], left.node_ids[targets])
        np.testing.assert_array_equal(topology.indices[left.edge_ids], left.node_ids[local.indices])


def rows_of(block) -> list[list[int]]:
    return [block.indices[a:b].tolist() for a, b in zip(block.indptr[:-1], block.indptr[1:], strict=True)]


def test_purpose_of_negatives_is_a_number_of_its_own():
    assert len(Purpose.__members__) == len(Purpose)  # a number that is there twice makes an alias
