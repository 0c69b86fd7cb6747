"""Gathers, look-ups and negatives of the GPU's kernels, run by the shim, equal the CPU's."""

import numpy as np
import pytest
import torch

from graphmill import _native
from graphmill.base.errors import InvalidInputError
from graphmill.device.pairs import PairEdges, PairEnds, are_edges, draw_pairs
from graphmill.device.rows import HeldNodes, RowPlaces, RowTables, gather

TYPES = [torch.float32, torch.bfloat16, torch.float16]


def span(count: int) -> torch.Tensor:
    return torch.tensor([0, count])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("num_columns", [1, 3, 4, 100, 128, 602])
def test_rows_come_out_of_both_tables_in_float32(kernels_in_any_order, dtype, num_columns):
    table = torch.randn(500, num_columns).to(dtype)
    rows = torch.randint(0, 500, (700,))
    rows[::7] = -1
    expected = table[rows].float()
    expected[::7] = 0
    expected[600:] = 0
    for near in (500, 200, 0):
        tables = RowTables(table[:near].clone(), table[near:].clone())
        assert torch.equal(gather(kernels_in_any_order, tables, rows, span(600)), expected)
    assert torch.equal(gather(kernels_in_any_order, RowTables(table), rows, span(600)), expected)


def test_rows_that_are_not_aligned_are_gathered_too(kernels):
    memory = torch.arange(4 * 11 + 1, dtype=torch.float32)
    table = memory[1:].view(11, 4)
    assert torch.equal(gather(kernels, RowTables(table), torch.arange(10, -1, -1), span(11)), table.flip(0))


@pytest.mark.parametrize("dtype", TYPES[1:])
def test_every_short_number_is_widened_exactly(kernels, dtype):
    """All 65,536, infinities, subnormal numbers and both zeros among them; a NaN stays one."""
    table = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype).view(-1, 4)
    widened = gather(kernels, RowTables(table), torch.arange(len(table)), span(len(table)))
    expected = table.float()
    assert torch.equal(widened.isnan(), expected.isnan())
    assert torch.equal(widened.nan_to_num().view(torch.int32), expected.nan_to_num().view(torch.int32))


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInputError, match="float64"):
        RowTables(torch.zeros(1, 1, dtype=torch.float64))
    with pytest.raises(InvalidInputError, match="one table"):
        RowTables(torch.zeros(1, 2), torch.zeros(1, 3))


@pytest.mark.parametrize("storage_type", [np.int32, np.int64])
def test_rows_are_found_where_the_row_finder_finds_them(kernels_in_any_order, storage_type):
    rng = np.random.default_rng(3)
    storage = rng.permutation(5_000).astype(storage_type)
    held = rng.choice(5_000, 700, replace=False)
    nodes = rng.integers(0, 5_000, 4_000)
    expected = np.empty_like(nodes)
    finder = _native.RowFinder(storage, 1_000, 1_800)
    counts = finder.find(nodes, _native.NodeTable(held), _native.Window(), expected)
    assert min(counts) > 100
    expected[expected >= 800 + 700] = -1
    places = RowPlaces(
        kernels_in_any_order,
        storage=torch.from_numpy(storage),
        own_rows=(1_000, 1_800),
        held=HeldNodes(kernels_in_any_order, torch.from_numpy(held)),
    )
    assert np.array_equal(places.find(torch.from_numpy(nodes), span(len(nodes))), expected)
    own_alone = RowPlaces(kernels_in_any_order, storage=torch.from_numpy(storage), own_rows=(1_000, 1_800))
    assert np.array_equal(
        own_alone.find(torch.from_numpy(nodes), span(len(nodes))), np.where(expected < 800, expected, -1)
    )


def test_a_million_places_are_the_node_tables(kernels):
    rng = np.random.default_rng(4)
    held = rng.choice(1 << 40, 100_000, replace=False)
    nodes = np.where(rng.random(1_000_000) < 0.5, rng.choice(held, 1_000_000), rng.integers(0, 1 << 40, 1_000_000))
    expected = np.empty_like(nodes)
    _native.NodeTable(held).find(nodes, expected)
    places = RowPlaces(kernels, held=HeldNodes(kernels, torch.from_numpy(held)))
    assert np.array_equal(places.find(torch.from_numpy(nodes), span(len(nodes))), expected)
    some = places.find(torch.from_numpy(nodes), torch.tensor([10, 30])).numpy()
    assert np.array_equal(some[:20], expected[10:30])
    assert (some[20:] == -1).all()


class Links:
    """Edges between 300 and 200 nodes, some of them several times, with times."""

    def __init__(self, *, timed: bool) -> None:
        rng = np.random.default_rng(5)
        sources, targets = rng.integers(0, 300, 20_000), rng.integers(0, 200, 20_000)
        times = rng.integers(0, 1_000, 20_000)
        order = np.lexsort((times, sources, targets))
        self.indptr = np.searchsorted(targets[order], np.arange(201)).astype(np.int64)
        self.sources = sources[order].astype(np.int32)
        self.times = times[order] if timed else None
        self.native = _native.EdgeLookup(self.indptr, self.sources, self.times, 300)
        self.device = PairEdges(
            torch.from_numpy(self.indptr),
            torch.from_numpy(self.sources),
            None if self.times is None else torch.from_numpy(self.times),
        )


def tensor(values):
    return None if values is None else torch.from_numpy(values)


@pytest.mark.parametrize("timed", [False, True])
def test_edges_are_known_where_they_are_known_natively(kernels, timed):
    rng, links = np.random.default_rng(6), Links(timed=timed)
    sources, targets = rng.integers(0, 300, 100_000), rng.integers(0, 200, 100_000)
    at = rng.integers(0, 1_000, 100_000) if timed else None
    expected = np.empty(100_000, np.bool_)
    links.native.find(sources, targets, at, expected, 1)
    assert 0.05 < expected.mean() < 0.95
    found = are_edges(kernels, links.device, tensor(sources), tensor(targets), tensor(at))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_negatives_are_the_native_ones(kernels_in_any_order, weighted, timed, given, known):
    rng, links, count, tries = np.random.default_rng(7), Links(timed=timed), 30_000, 3
    sums = [np.cumsum(rng.random(nodes) ** 4) if weighted else None for nodes in (300, 200)]
    since = [rng.integers(0, 900, nodes) if timed else None for nodes in (300, 200)]
    sources = rng.integers(0, 300, count) if given else None
    at = rng.integers(0, 1_000, count) if timed else None
    numbers = rng.permutation(count) if given else None
    expected = np.empty(count, np.int64), np.empty(count, np.int64)
    failed = _native.draw_negatives(
        known=links.native if known else None, num_sources=300, num_targets=200, source_weights=sums[0],
        target_weights=sums[1], source_times=since[0], target_times=since[1], given=sources, at=at, numbers=numbers,
        key=2**63 + 9, tries=tries, source_out=expected[0], target_out=expected[1], num_threads=1,
    )  # fmt: skip
    ends = [PairEnds(nodes, tensor(sums[i]), tensor(since[i])) for i, nodes in enumerate((300, 200))]
    drawn = draw_pairs(
        kernels_in_any_order, links.device if known else None, *ends, count, key=2**63 + 9, tries=tries,
        given=tensor(sources), times=tensor(at), numbers=tensor(numbers),
    )  # fmt: skip
    assert np.array_equal(drawn[0], expected[0])
    assert np.array_equal(drawn[1], expected[1])
    assert int((drawn[1] == -1).sum()) == failed
    assert (failed > 0) == (known or timed)


def test_nothing_to_draw_from_is_refused(kernels):
    with pytest.raises(InvalidInputError, match="cannot be drawn"):
        draw_pairs(kernels, None, PairEnds(0), PairEnds(3), 1, key=0, tries=1)
