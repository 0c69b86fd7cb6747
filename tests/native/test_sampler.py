"""Neighbour sampling: what is sampled, in which order, with which odds, and that nothing but the key decides it."""

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill import _native

PROGRAM = Path(__file__).parent / "programs" / "sample_digest.py"
ARRAYS = ("node_ids", "indptr", "indices", "edge_ids")


def same(one, other) -> bool:
    counts = ("num_nodes_per_hop", "num_edges_per_hop", "num_rows_per_hop")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS) and all(
        getattr(one, name) == getattr(other, name) for name in counts
    )


def check(graph, hood, seeds, fanouts, *, resample):
    """All that a neighbourhood promises, by a plain walk over it."""
    nodes = list(seeds)
    known = {int(node): local for local, node in enumerate(seeds)}
    row_number = 0
    new_since = 0
    for hop, fanout in enumerate(fanouts):
        rows = nodes[:] if resample else nodes[new_since:]
        new_since = len(nodes)
        edges_before = hood.indptr[row_number]
        for node in rows:
            begin, end = hood.indptr[row_number : row_number + 2]
            row_number += 1
            row = graph.row(int(node))
            assert end - begin == (len(row) if fanout < 0 else min(len(row), fanout))
            picked = hood.node_ids[hood.indices[begin:end]]
            assert len(np.unique(picked)) == len(picked), "a neighbour was picked twice"
            assert np.isin(picked, row).all(), "an edge was made up"
            assert np.array_equal(graph.indices[hood.edge_ids[begin:end]], picked)
            if len(row) == len(picked):
                assert np.array_equal(picked, row), "a whole row stands in its own order"
            for source in picked.tolist():
                if source not in known:
                    known[source] = len(nodes)
                    nodes.append(source)
        assert hood.num_rows_per_hop[hop] == len(rows)
        assert hood.num_nodes_per_hop[hop + 1] == len(nodes) - new_since
        assert hood.num_edges_per_hop[hop] == hood.indptr[row_number] - edges_before
    assert hood.node_ids.tolist() == [int(node) for node in nodes], "nodes stand in order of discovery"
    assert len(hood.indptr) == row_number + 1
    assert len(hood.indices) == hood.indptr[-1]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_every_neighbourhood_keeps_its_promises(graph, data):
    resample = data.draw(st.booleans())
    fanouts = data.draw(st.lists(st.sampled_from([-1, 1, 2, 5, 20, 63, 64, 65, 150]), min_size=1, max_size=2))
    num_seeds = data.draw(st.integers(0, 40))
    key = data.draw(st.integers(0, 2**64 - 1))
    seeds = np.random.default_rng(key % 2**32).choice(graph.num_nodes, num_seeds, replace=False)
    sampler = _native.NeighborSampler(*graph)
    hood = sampler.sample(seeds, fanouts, key, resample=resample, with_edge_ids=True)
    check(graph, hood, seeds, fanouts, resample=resample)


@pytest.mark.each_isa
def test_three_hops_of_both_kinds(graph):
    seeds = np.arange(10, dtype=np.int64)
    sampler = _native.NeighborSampler(*graph)
    for resample in (False, True):
        hood = sampler.sample(seeds, [4, 3, 2], 5, resample=resample, with_edge_ids=True)
        check(graph, hood, seeds, [4, 3, 2], resample=resample)


def test_resampled_rows_depend_on_their_node_alone(graph):
    """With `resample` a row is the same whatever else is in the batch; that makes batches cuttable among ranks."""
    sampler = _native.NeighborSampler(*graph)
    seeds = np.random.default_rng(0).choice(graph.num_nodes, 60, replace=False)
    whole = sampler.sample(seeds, [5, 5], 9, resample=True)
    parts = [sampler.sample(part, [5, 5], 9, resample=True) for part in (seeds[:25], seeds[25:])]

    def rows(hood, hop):
        first = sum(hood.num_rows_per_hop[:hop])
        ends = hood.indptr[first : first + hood.num_rows_per_hop[hop] + 1]
        neighbours = hood.node_ids[hood.indices]
        spans = pairwise(ends)
        return {int(node): neighbours[b:e].tolist() for node, (b, e) in zip(hood.node_ids, spans, strict=False)}

    for hop in (0, 1):
        for part in parts:
            assert rows(part, hop).items() <= rows(whole, hop).items()


def test_a_frontier_node_draws_once(graph):
    """Without `resample` the rows of all hops are those of distinct nodes: one subgraph."""
    hood = _native.NeighborSampler(*graph).sample(np.arange(50, dtype=np.int64), [6, 4, 2], 3)
    assert sum(hood.num_rows_per_hop) == sum(hood.num_nodes_per_hop[:-1]) == len(hood.indptr) - 1
    assert sum(hood.num_nodes_per_hop) == len(hood.node_ids)


def chi_square(counts: np.ndarray, expected: float) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(("degree", "fanout"), [(10, 3), (64, 63), (65, 8), (300, 20), (300, 100), (90, 89)])
def test_neighbours_are_equally_likely(degree, fanout):
    """Draws without replacement: the statistic, divided by (1 - p)·n / (n - 1), is chi-square with n - 1 degrees."""
    sampler = _native.NeighborSampler(
        np.array([0, degree] + [degree] * degree), np.arange(1, degree + 1, dtype=np.int32)
    )
    seed, counts, num_draws = np.zeros(1, dtype=np.int64), np.zeros(degree), 4000
    for key in range(num_draws):
        counts[sampler.sample(seed, [fanout], key, with_edge_ids=True).edge_ids] += 1
    assert 0 < counts.min() <= counts.max() < num_draws, "every edge is drawn at some time, and left out at some time"
    p = fanout / degree
    statistic = chi_square(counts, num_draws * p) / (1 - p) * (degree - 1) / degree
    mean, sd = degree - 1, (2 * (degree - 1)) ** 0.5
    assert abs(statistic - mean) < 4 * sd


def test_pairs_are_equally_likely():
    sampler = _native.NeighborSampler(np.array([0, 6] + [6] * 6), np.arange(1, 7, dtype=np.int32))
    counts = dict.fromkeys(combinations(range(6), 2), 0)
    for key in range(15_000):
        counts[tuple(sorted(sampler.sample(np.zeros(1, dtype=np.int64), [2], key, with_edge_ids=True).edge_ids))] += 1
    assert chi_square(np.array(list(counts.values())), 1000.0) < 36.1  # chi-square(14) at 0.001


def test_hops_and_nodes_draw_independently(make_graph):
    """Two nodes with the same neighbours, and two hops of one node, do not pick alike."""
    indptr, indices = np.array([0, 50, 100] + [100] * 50), np.tile(np.arange(2, 52, dtype=np.int32), 2)
    sampler = _native.NeighborSampler(indptr, indices)
    alike = 0
    for key in range(300):
        hood = sampler.sample(np.array([0, 1]), [5, 5], key, resample=True, with_edge_ids=True)
        first, second, again = (set((hood.edge_ids[b : b + 5] % 50).tolist()) for b in (0, 5, 10))
        alike += len(first & second) + len(first & again)
    assert 200 < alike < 400  # 2 x 300 x 25/50 common picks are expected


@pytest.mark.parametrize("resample", [False, True])
def test_threads_change_nothing(large_graph, resample):
    sampler = _native.NeighborSampler(*large_graph)
    seeds = np.random.default_rng(3).choice(large_graph.num_nodes, 1024, replace=False)
    alone = sampler.sample(seeds, [25, 10], 77, resample=resample, with_edge_ids=True)
    for num_threads in (2, 3):
        assert same(
            alone, sampler.sample(seeds, [25, 10], 77, resample=resample, with_edge_ids=True, num_threads=num_threads)
        )
    assert not same(alone, sampler.sample(seeds, [25, 10], 78, resample=resample, with_edge_ids=True))


def test_the_instruction_set_changes_nothing(graph, tmp_path, printed_on_each_isa):
    np.savez(tmp_path / "graph.npz", **graph._asdict(), seeds=np.arange(0, 1200, 7))
    assert len(set(printed_on_each_isa(PROGRAM, tmp_path / "graph.npz").values())) == 1


def test_both_widths_of_ids_agree(graph):
    seeds = np.arange(30, dtype=np.int64)
    narrow = _native.NeighborSampler(*graph)
    wide = _native.NeighborSampler(graph.indptr, graph.indices.astype(np.int64))
    for resample in (False, True):
        options = {"resample": resample, "with_edge_ids": True}
        assert same(narrow.sample(seeds, [9, 4], 1, **options), wide.sample(seeds, [9, 4], 1, **options))


@pytest.mark.parametrize(
    ("seeds", "message"),
    [([3, 1200], "seed 1200 is not a node"), ([3, -1], "seed -1 is not a node"), ([5, 8, 5], "seed 5 stands twice")],
)
def test_bad_seeds_are_refused_and_leave_the_sampler_whole(graph, seeds, message):
    sampler = _native.NeighborSampler(*graph)
    good = np.arange(20, dtype=np.int64)
    before = sampler.sample(good, [5, 5], 4, with_edge_ids=True)
    for _ in range(3):
        with pytest.raises(ValueError, match=message):
            sampler.sample(np.array(seeds), [5, 5], 4)
    assert same(before, sampler.sample(good, [5, 5], 4, with_edge_ids=True))


@pytest.mark.parametrize("seeds", [np.zeros((2, 2), dtype=np.int64), np.zeros((), dtype=np.int64), [1.5], None])
def test_seeds_of_another_shape_are_refused(graph, seeds):
    with pytest.raises(TypeError):
        _native.NeighborSampler(*graph).sample(seeds, [2], 0)


def test_seeds_of_another_format_are_read_all_the_same(graph):
    sampler = _native.NeighborSampler(*graph)
    expected = sampler.sample(np.array([0, 2, 4, 6, 8]), [3], 5, with_edge_ids=True)
    for seeds in (np.arange(10)[::2], np.arange(0, 10, 2, dtype=np.int32)):
        assert same(expected, sampler.sample(seeds, [3], 5, with_edge_ids=True))


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [([], []), ([0], []), ([0, 2], [0]), ([1, 2], [0]), ([0, 1], [0.5])],
)
def test_graphs_that_cannot_be_are_refused(indptr, indices):
    with pytest.raises((ValueError, TypeError)):
        _native.NeighborSampler(
            np.array(indptr, dtype=np.int64), np.array(indices, dtype=np.float32 if 0.5 in indices else np.int32)
        )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("stranger", [-1, 1200, 2**31 - 1])
@pytest.mark.parametrize("num_threads", [1, 4])
def test_ids_out_of_range_are_refused_with_their_place(graph, dtype, stranger, num_threads):
    indices = np.tile(graph.indices.astype(dtype), 30)  # rows hold neighbours many times: enough for several threads
    indptr = graph.indptr * 30
    _native.NeighborSampler(indptr, indices, num_threads)
    indices[[len(indices) // 2, -1]] = stranger
    with pytest.raises(ValueError, match=f"edge {len(indices) // 2} .* node {stranger} .* 1200 nodes"):
        _native.NeighborSampler(indptr, indices, num_threads)


def test_offsets_that_fall_are_refused(graph):
    indptr = graph.indptr.copy()
    indptr[500] = indptr[-1] + 1
    with pytest.raises(ValueError, match=f"node 500, from {indptr[500]} to {indptr[501]}"):
        _native.NeighborSampler(indptr, graph.indices)


def test_edge_ids_are_empty_where_they_were_not_asked_for(graph):
    sampler = _native.NeighborSampler(*graph)
    first = sampler.sample(np.arange(50), [4], 0, with_edge_ids=True)
    assert len(first.edge_ids) == len(first.indices)
    del first  # its memory serves the next
    assert len(sampler.sample(np.arange(50), [4], 0).edge_ids) == 0


def composed(sampler, relabeller, seeds, fanouts, key, *, resample, num_threads=1):
    """The neighbourhood of `sample`, hop by hop, with edges that could come from anywhere."""
    batch = relabeller.begin(seeds, resample=resample, with_edge_ids=True)
    for hop, fanout in enumerate(fanouts):
        picked = sampler.pick(batch.frontier, fanout, _native.subkey(key, hop), num_threads=num_threads)
        batch.relabel(picked.indptr.copy(), picked.sources.copy(), picked.edge_ids.copy())
    return batch.finish()


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    num_seeds=st.integers(0, 400),
    fanouts=st.lists(st.sampled_from([-1, 0, 1, 3, 5, 10, 70]), max_size=3),
    key=st.integers(0, 2**64 - 1),
    resample=st.booleans(),
    threads=st.tuples(st.sampled_from([1, 2, 5]), st.sampled_from([1, 3])),
)
def test_sample_is_pick_and_relabel(small_graph, seed, num_seeds, fanouts, key, resample, threads):
    sampler, relabeller, hashing = small_graph
    seeds = np.random.default_rng(seed).choice(1200, num_seeds, replace=False)
    whole = sampler.sample(seeds, fanouts, key, resample=resample, with_edge_ids=True, num_threads=threads[0])
    parts = composed(sampler, relabeller, seeds, fanouts, key, resample=resample, num_threads=threads[1])
    assert same(whole, parts)
    assert whole.num_rows_per_hop == parts.num_rows_per_hop
    hashed = composed(sampler, hashing, seeds, fanouts, key, resample=resample)
    assert same(whole, hashed)
    assert whole.num_rows_per_hop == hashed.num_rows_per_hop


@pytest.fixture(scope="module")
def small_graph(graph):
    relabellers = (_native.Relabeller(graph.num_nodes, hashed=hashed) for hashed in (False, True))
    return _native.NeighborSampler(*graph), *relabellers


def test_a_hashed_relabeller_refuses_seeds_that_stand_twice_and_goes_on(graph):
    relabeller = _native.Relabeller(graph.num_nodes, hashed=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="seed 7 stands twice"):
            relabeller.begin(np.array([3, 7, 7]))
        assert relabeller.begin(np.array([7, 3])).finish().node_ids.tolist() == [7, 3]


@pytest.mark.parametrize("resample", [True, False])
def test_sample_is_pick_and_relabel_with_helpers_that_pick(large_graph, resample):
    sampler, relabeller = _native.NeighborSampler(*large_graph), _native.Relabeller(large_graph.num_nodes)
    seeds = np.random.default_rng(1).choice(20_000, 6000, replace=False)
    for key in range(5):
        whole = sampler.sample(seeds, [5, 4], key, resample=resample, with_edge_ids=True, num_threads=4)
        assert same(whole, composed(sampler, relabeller, seeds, [5, 4], key, resample=resample, num_threads=3))


def test_draws_follow_the_identity_of_a_node_and_not_its_place(graph):
    """A part that holds some rows in another order picks what the whole graph would."""
    nodes = np.random.default_rng(3).permutation(graph.num_nodes)[:500]  # row i of the part is node nodes[i]
    degrees = np.diff(graph.indptr)[nodes]
    part = _native.NeighborSampler(
        np.concatenate([[0], np.cumsum(degrees), np.full(700, degrees.sum())]),
        np.concatenate([graph.row(node) for node in nodes]),
    )
    asked = np.random.default_rng(4).permutation(500)[:200]
    here = part.pick(nodes[asked], 5, 77, places=asked)
    there = _native.NeighborSampler(*graph).pick(nodes[asked], 5, 77)
    assert np.array_equal(here.indptr, there.indptr)
    assert np.array_equal(here.sources, there.sources)
    assert not np.array_equal(here.edge_ids, there.edge_ids)
    assert np.array_equal(graph.indices[there.edge_ids], there.sources)


def test_edges_that_cannot_be_are_refused_and_leave_the_batch_whole(graph):
    sampler, relabeller = _native.NeighborSampler(*graph), _native.Relabeller(graph.num_nodes)
    batch = relabeller.begin(np.arange(3))
    good = sampler.pick(batch.frontier, 4, _native.subkey(9, 0))
    for indptr, sources, complaint in [
        ([0, 1], [5], "3 rows, and 1"),
        ([0, 1, 1, 2], [5, 1200], "source 1200"),
        ([0, 1, 1, 2], [5, -1], "source -1"),
        ([0, 2, 1, 2], [5, 6], "falls at row 1"),
        ([1, 2, 3, 3], [5, 6, 7], "from 0"),
        ([0, 1, 2, 2], [5], "number of sources"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            batch.relabel(np.array(indptr), np.array(sources))
    with pytest.raises(ValueError, match="edge_ids"):
        batch.relabel(good.indptr, good.sources, good.edge_ids)
    batch.relabel(good.indptr, good.sources)
    assert same(batch.finish(), sampler.sample(np.arange(3), [4], 9))
    with pytest.raises(ValueError, match="finished"):
        batch.relabel(good.indptr, good.sources)
    with pytest.raises(ValueError, match="place 1200"):
        sampler.pick(np.array([1200]), 4, 0)


def test_no_seeds_make_an_empty_neighbourhood(graph):
    hood = _native.NeighborSampler(*graph).sample(np.array([], dtype=np.int64), [5, 5], 0, resample=True)
    assert hood.num_nodes_per_hop == [0, 0, 0]
    assert hood.indptr.tolist() == [0]
    assert len(hood.node_ids) == len(hood.indices) == len(hood.edge_ids) == 0


def test_several_python_threads_may_sample_at_once(large_graph):
    sampler = _native.NeighborSampler(*large_graph)
    seeds = [np.random.default_rng(i).choice(large_graph.num_nodes, 300, replace=False) for i in range(24)]

    def sample(number: int):
        return sampler.sample(seeds[number], [10, 5], number, with_edge_ids=True, num_threads=1 + number % 3)

    alone = [sample(number) for number in range(24)]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(sample, range(24)))
    assert all(same(*pair) for pair in zip(alone, together, strict=True))


def test_results_outlive_the_sampler_and_later_batches(graph):
    sampler = _native.NeighborSampler(*graph)
    hood = sampler.sample(np.arange(40, dtype=np.int64), [10, 10], 6, with_edge_ids=True)
    views = [getattr(hood, name) for name in ARRAYS]
    copies = [view.copy() for view in views]
    for key in range(20):
        sampler.sample(np.arange(40, 80, dtype=np.int64), [10, 10], key)
    del sampler, hood
    gc.collect()
    other = _native.NeighborSampler(*graph)
    for key in range(20):
        other.sample(np.arange(200, dtype=np.int64), [10, 10], key)
    assert all(np.array_equal(view, copy) for view, copy in zip(views, copies, strict=True))


def test_the_graph_outlives_its_last_name():
    indptr, indices = np.array([0, 2, 2, 2]), np.array([1, 2], dtype=np.int32)
    sampler = _native.NeighborSampler(indptr, indices)
    del indptr, indices
    gc.collect()
    assert sampler.sample(np.array([0]), [-1], 0).node_ids.tolist() == [0, 1, 2]


@pytest.mark.forks
def test_a_forked_child_samples_too(large_graph):
    """A child has no helper threads of its parent: it must not wait for them."""
    sampler = _native.NeighborSampler(*large_graph)
    seeds = np.arange(1024, dtype=np.int64)
    expected = sampler.sample(seeds, [10, 5], 1, num_threads=3)
    child = os.fork()
    if child == 0:
        mine = sampler.sample(seeds, [10, 5], 1, num_threads=3)
        os._exit(0 if np.array_equal(mine.indices, expected.indices) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
