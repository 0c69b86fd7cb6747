"""What the estimate of memory counts beside the mapped graph is what is allocated, at most, and not far above it."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from graphs_in_parts import topology_of

from graphmill.partition.estimate import PartitionSizes, estimate
from graphmill.partition.methods.own import hotness_parts
from graphmill.partition.problem import PartitionProblem
from graphmill.partition.quality import MeasuredPartition, measure
from graphmill.sample.hot.rank import STATIC_POLICIES, Draws, rank_all

NODES, PARTS, FANOUTS = 60_000, 3, (5, 3)


def peak(work: Callable[[], object]) -> int:
    """Bytes that `work` has allocated at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def known() -> MeasuredPartition:
    rng = np.random.default_rng(5)
    ends = rng.integers(0, NODES, (5 * NODES, 2))
    graph = topology_of(NODES, map(tuple, ends.tolist()), symmetric=True)
    parts = rng.integers(0, PARTS, NODES).astype(np.int32)
    edges, train = np.diff(graph.indptr), np.arange(0, NODES, 4)
    seeds = np.bincount(train, minlength=NODES).astype(np.uint32)
    return MeasuredPartition(
        graph=graph, edges=edges, train=train, seeds=seeds, parts=parts, num_parts=PARTS, fanouts=FANOUTS
    )


@pytest.fixture(scope="module")
def sizes(known: MeasuredPartition) -> PartitionSizes:
    return PartitionSizes(
        num_nodes=NODES,
        num_isolated=0,
        num_train=len(known.train),
        num_entries=known.graph.num_edges,
        is_symmetric=True,
        num_parts=PARTS,
        num_amounts=3,
        largest_bytes=8 * NODES,
        base_bytes=0,
    )


def counted(sizes: PartitionSizes, name: str, apart: int) -> int:
    """Of a step, without its input."""
    method = "hotness" if name == "hotness" else "random"
    (found,) = [step for step in estimate(sizes, method, ranked=True).steps if step.name == name]
    return found.own_bytes - apart


def test_measuring(known: MeasuredPartition, sizes: PartitionSizes):
    expected = counted(sizes, "measure", sizes.measured)
    assert expected / 2 <= peak(lambda: measure(known)) <= expected


def test_ranking_by_every_policy(known: MeasuredPartition, sizes: PartitionSizes):
    owner = known.parts[known.train]
    seeds, draws = [known.train[owner == part] for part in range(PARTS)], Draws(fanouts=FANOUTS, batch_size=1024)
    expected = counted(sizes, "rank", sizes.measured)
    found = peak(lambda: rank_all(known.graph, known.parts, seeds, draws, STATIC_POLICIES))
    assert expected / 2 <= found <= expected


def test_assigning_by_hotness(known: MeasuredPartition, sizes: PartitionSizes):
    problem = PartitionProblem(
        graph=known.graph,
        amounts=np.ones((NODES, 1), np.uint32),
        limits=np.array([NODES]),
        weights=known.edges,
        train=known.train,
        num_parts=PARTS,
        rng_seed=0,
        fanouts=FANOUTS,
    )
    expected = counted(sizes, "hotness", sizes.problem)
    assert expected / 2 <= peak(lambda: hotness_parts(problem)) <= expected
