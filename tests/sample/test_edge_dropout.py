"""Dropout of edges: which edges a step leaves out follows from (seed, epoch, step, target, source) alone."""

import numpy as np
import pytest

from graphmill.graph.sampled import EvaluationSeeds, Sampled, SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.sample.edge_dropout import EdgeDropout
from graphmill.sample.neighbor import WholeSampler

NODES = 300


@pytest.fixture(scope="module")
def topology() -> Topology:
    """Rows of 0 to 30 in-neighbours."""
    rng = np.random.default_rng(0)
    rows = [np.sort(rng.choice(NODES, rng.integers(0, 31), replace=False)) for _ in range(NODES)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Topology(indptr, np.concatenate(rows).astype(np.int32))


def drawn(
    topology: Topology,
    seeds: np.ndarray,
    *,
    p: float,
    resampled: bool = True,
    fanouts: tuple[int, ...] = (-1,),
    step: int = 0,
    rng_seed: int = 3,
) -> Sampled:
    """The neighbourhood of some seeds, a share `p` of its edges dropped; 0: as it is sampled."""
    sampler = WholeSampler(topology, fanouts, seed=5, num_threads=1, resample=resampled, with_edge_ids=True)
    dropping = EdgeDropout(sampler, p, rng_seed, NODES, resampled)
    asked = Seeds(0, step, SeedIds(seeds))
    (of_window,) = dropping.sample_window([asked])
    found = dropping.sample(asked) if p else sampler.sample(asked)
    assert edges_of(found) == edges_of(of_window)
    return found


def edges_of(hood: Sampled) -> list[list[tuple[int, int]]]:
    """Of each block its edges, (target, source) by their ids in the graph, in order."""
    found = []
    for block in hood.blocks:
        targets = np.repeat(np.arange(block.num_rows), np.diff(block.indptr))
        sources = block.indices[block.indptr[0] : block.indptr[-1]]
        found.append(list(zip(hood.node_ids[targets].tolist(), hood.node_ids[sources].tolist(), strict=True)))
    return found


@pytest.mark.parametrize("resampled", [True, False])
def test_edges_are_left_out_of_each_hop_alike_and_the_rest_stays_as_it_was(topology, resampled):
    before, after = (
        drawn(topology, np.arange(0, NODES, 3), p=p, resampled=resampled, fanouts=(4, 3)) for p in (0.0, 0.3)
    )
    gone = {edge for hop in edges_of(before) for edge in hop} - {edge for hop in edges_of(after) for edge in hop}
    assert edges_of(after) == [[edge for edge in hop if edge not in gone] for hop in edges_of(before)]
    assert np.array_equal(after.node_ids, before.node_ids)
    assert [block.num_rows for block in after.blocks] == [block.num_rows for block in before.blocks]
    assert sum(after.num_edges_per_hop) == len(after.edge_ids) == len(after.blocks[0].indices) < len(before.edge_ids)
    sizes = [len(edges) for edges in edges_of(after)[::-1]]
    assert sizes == (list(after.num_edges_per_hop) if resampled else np.cumsum(after.num_edges_per_hop).tolist())
    targets = np.repeat(np.arange(NODES), np.diff(topology.indptr))[after.edge_ids]
    assert np.array_equal(targets, after.node_ids[after.targets(resampled=resampled)])
    assert np.array_equal(topology.indices[after.edge_ids], after.node_ids[after.blocks[0].indices])


def test_every_batch_that_draws_an_edge_agrees_on_it(topology):
    """Ranks too, for they share a step out; another step and another seed of the run drop others."""
    everyone = np.arange(NODES)
    whole, *parts = (
        set(edges_of(drawn(topology, seeds, p=0.5))[0]) for seeds in (everyone, everyone[::2], everyone[1::2])
    )
    assert set.union(*parts) == whole
    for other in ({"step": 1}, {"rng_seed": 4}):
        both = whole & set(edges_of(drawn(topology, everyone, p=0.5, **other))[0])
        assert 0.2 < len(both) / len(topology.indices) < 0.3, "a quarter is kept by both"


def test_the_share_that_is_dropped_is_the_probability(topology):
    number = len(topology.indices)
    for p in (0.1, 0.8):
        left = len(drawn(topology, np.arange(NODES), p=p).edge_ids)
        assert abs(left - number * (1 - p)) < 5 * (number * p * (1 - p)) ** 0.5


def test_no_edge_of_an_evaluation_is_dropped(topology):
    sampler = EdgeDropout(WholeSampler(topology, (-1,), seed=5, num_threads=1, resample=True), 0.5, 3, NODES, True)
    with pytest.raises(AssertionError, match="training alone"):
        sampler.sample(EvaluationSeeds(SeedIds(np.arange(3))))
