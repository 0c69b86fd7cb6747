"""Rows out of a table: every number format, means over neighbours, sparse rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import Bounded, assert_within

from graphmill import _native

FORMATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def table_of(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal, tiny, huge and special values, in a number format."""
    generator = torch.Generator().manual_seed(rows * 1000 + columns)
    x = torch.randn(rows, columns, generator=generator) * 10.0 ** torch.randint(
        -9, 5, (rows, columns), generator=generator
    )
    x.view(-1)[:: max(1, x.numel() // 7)] = float("inf")
    x.view(-1)[1 :: max(1, x.numel() // 5)] = float("nan")
    return x.to(dtype)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal to the bit, but for which NaN a NaN is."""
    words = {4: torch.int32, 2: torch.int16}[one.element_size()]
    both_nan = one.isnan() & other.isnan()
    return one.dtype == other.dtype and bool(((one.view(words) == other.view(words)) | both_nan).all())


@pytest.mark.each_isa
@pytest.mark.parametrize("columns", [1, 7, 16, 33, 128, 602])
@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
def test_rows_are_converted_as_torch_does(columns, stored, wanted):
    table = table_of(90, columns, FORMATS[stored])
    ids = torch.randint(0, 90, (333,), generator=torch.Generator().manual_seed(1))
    out = torch.empty(333, columns, dtype=FORMATS[wanted])
    for num_threads in (1, 3):
        _native.gather_rows(table, ids, out.fill_(-1), num_threads)
        assert same_bits(out, table[ids].float().to(FORMATS[wanted]))


def test_bfloat16_words_in_numpy():
    """A store holds bfloat16 as uint16 words: numpy has no such format."""
    table = table_of(10, 20, torch.bfloat16)
    out = torch.empty(3, 20)
    _native.gather_rows(table.view(torch.int16).numpy().view(np.uint16), np.array([9, 0, 4]), out, 1)
    assert same_bits(out, table[[9, 0, 4]].float())


def test_rounding_to_bfloat16_is_to_nearest_ties_to_even():
    words = torch.arange(2**16, dtype=torch.int32) << 16
    halves = (words.unsqueeze(1) + torch.tensor([0x7FFF, 0x8000, 0x8001], dtype=torch.int32)).view(torch.float32)
    out = torch.empty(2**16, 3, dtype=torch.bfloat16)
    _native.gather_rows(halves, torch.arange(2**16), out, 1)
    assert same_bits(out, halves.to(torch.bfloat16))


@pytest.mark.each_isa
def test_every_float16_and_bfloat16_is_widened_exactly():
    words = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(-1, 16)
    for dtype in (torch.float16, torch.bfloat16):
        out = torch.empty(words.shape)
        _native.gather_rows(words.view(dtype), torch.arange(len(words)), out, 1)
        assert same_bits(out, words.view(dtype).float())


def test_float16_results_are_refused():
    table, out = torch.randn(4, 5), torch.zeros(2, 5, dtype=torch.float16)
    with pytest.raises((ValueError, TypeError)):
        _native.gather_rows(table, np.array([0, 1]), out, 1)
    assert not out.any()


def segments(num_rows: int, num_sources: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of 0 to 9 in-edges; the first is empty."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 10, (num_rows,), generator=generator)
    lengths[:1] = 0
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=indptr[1:])
    indices = torch.randint(0, num_sources, (int(indptr[-1]),), generator=generator, dtype=torch.int32)
    return indptr, indices


@pytest.mark.each_isa
@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
@pytest.mark.parametrize(("num_rows", "columns"), [(1, 1), (70, 5), (200, 33), (150, 100)])
def test_self_and_mean(stored, wanted, num_rows, columns):
    table = torch.randn(300, columns, generator=torch.Generator().manual_seed(0)).to(FORMATS[stored])
    ids = torch.randperm(300, generator=torch.Generator().manual_seed(2))
    indptr, indices = segments(num_rows, 300, 3)
    results = []
    for num_threads in (1, 2, 3):
        out = torch.full((num_rows, 2 * columns), -1.0, dtype=FORMATS[wanted])
        _native.gather_self_and_mean(table, ids[:num_rows], ids, indptr, indices, out, num_threads)
        results.append(out)
    assert all(same_bits(results[0], other) for other in results[1:])
    own, mean = results[0].split(columns, dim=1)
    assert same_bits(own, table[ids[:num_rows]].float().to(FORMATS[wanted]))
    assert mean[0].abs().sum() == 0, "the mean of nothing is 0"
    for row in range(num_rows):
        neighbours = table[ids[indices[indptr[row] : indptr[row + 1]].long()]]
        expected = Bounded.of(neighbours).sum(0) * (1 / max(1, len(neighbours)))
        assert_within(mean[row], expected, stored=FORMATS[wanted])


@pytest.mark.each_isa
@pytest.mark.parametrize("columns", [3, 64, 101])
def test_neighbours_are_added_up_in_the_order_of_edges(columns):
    """As a GPU does: means have its bits."""
    table = torch.randn(300, columns, generator=torch.Generator().manual_seed(7))
    indptr, indices = segments(150, 300, 8)
    out, rows = torch.empty(150, 2 * columns), torch.arange(150)
    _native.gather_self_and_mean(table, rows, None, indptr, indices, out, 1)
    sums = torch.zeros(150, columns)
    for edge in range(int(indptr.diff().max())):
        has_it = indptr.diff() > edge
        sums[has_it] += table[indices[indptr[:-1][has_it] + edge].long()]
    assert same_bits(out[:, columns:], sums * (1 / indptr.diff().clamp(min=1).float()).unsqueeze(1))


def test_self_and_mean_by_global_ids():
    table = torch.randn(50, 9)
    indptr, indices = segments(20, 50, 5)
    direct, by_ids = torch.empty(20, 18), torch.empty(20, 18)
    rows = torch.arange(20)
    _native.gather_self_and_mean(table, rows, None, indptr, indices, direct, 1)
    _native.gather_self_and_mean(table, rows, torch.arange(50), indptr, indices, by_ids, 1)
    assert torch.equal(direct, by_ids)


@pytest.mark.parametrize("stored", FORMATS)
def test_a_stack_of_tables_gives_what_one_table_gives(stored):
    """Also where a table has no rows, and the tables lie in memory in another order than in the stack."""
    whole = torch.randn(60, 9, generator=torch.Generator().manual_seed(4)).to(FORMATS[stored])
    second, first = whole[25:59].clone(), whole[:25].clone()
    stack = _native.RowStack([first, whole[:0], second, whole[59:]])
    ids = torch.randperm(60, generator=torch.Generator().manual_seed(5))
    indptr, indices = segments(40, 60, 6)
    assert len(stack) == 60
    found, expected = torch.empty(40, 18), torch.empty(40, 18)
    _native.gather_self_and_mean(stack, ids[:40], ids, indptr, indices, found, 2)
    _native.gather_self_and_mean(whole, ids[:40], ids, indptr, indices, expected, 1)
    assert same_bits(found, expected)
    rows, copied = torch.empty(60, 9), torch.empty(60, 9, dtype=FORMATS[stored])
    _native.gather_rows(stack, ids, rows, 1)
    stack.copy(ids, copied, 2)
    assert same_bits(rows, whole[ids].float())
    assert same_bits(copied, whole[ids])


def test_rows_outside_a_stack_and_tables_that_differ_are_refused():
    table, out = torch.zeros(3, 2), torch.empty(1, 2)
    for row in (-1, 6):
        with pytest.raises(ValueError, match="outside the stack"):
            _native.RowStack([table, table]).copy(torch.tensor([row]), out, 1)
    for other in (torch.zeros(3, 1), torch.zeros(3, 2, dtype=torch.float16)):
        with pytest.raises(ValueError, match="one width and format"):
            _native.RowStack([table, other])


def test_nothing_to_gather():
    out = torch.empty(0, 4)
    _native.gather_rows(torch.randn(3, 4), torch.empty(0, dtype=torch.int64), out, 2)
    empty, no_edges = torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
    _native.gather_self_and_mean(torch.randn(3, 2), empty[:0], None, empty, no_edges, out, 2)


@settings(deadline=None, max_examples=40)
@given(
    num_rows=st.integers(1, 60), num_ids=st.integers(0, 200), seed=st.integers(0, 10**6), num_threads=st.integers(1, 3)
)
def test_sparse_rows(num_rows, num_ids, seed, num_threads):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, num_rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = rng.integers(0, 40, indptr[-1]).astype(np.int32)
    values = rng.standard_normal(indptr[-1]).astype(np.float32)
    ids = rng.integers(0, num_rows, num_ids)
    out_indptr = np.concatenate([[0], np.cumsum(lengths[ids])]).astype(np.int64)
    out_indices, out_values = np.full(out_indptr[-1], -1, np.int32), np.full(out_indptr[-1], -1, np.float32)
    _native.gather_sparse_rows(indptr, indices, values, ids, out_indptr, out_indices, out_values, num_threads)
    spans = [slice(indptr[i], indptr[i + 1]) for i in ids]
    assert np.array_equal(out_indices, np.concatenate([indices[span] for span in spans] or [indices[:0]]))
    assert np.array_equal(out_values, np.concatenate([values[span] for span in spans] or [values[:0]]))


@pytest.mark.parametrize(
    "call",
    [
        lambda: _native.gather_rows(torch.zeros(3, 4), np.array([0]), torch.zeros(2, 4), 1),
        lambda: _native.gather_rows(torch.zeros(3, 4), np.array([0]), torch.zeros(1, 5), 1),
        lambda: _native.gather_rows(torch.zeros(3, 4, dtype=torch.float64), np.array([0]), torch.zeros(1, 4), 1),
        lambda: _native.gather_self_and_mean(
            torch.zeros(3, 4), np.array([0]), None, np.array([0, 9]), np.zeros(1, np.int32), torch.zeros(1, 8), 1
        ),
        lambda: _native.keys_of(1, np.array([1, 2]), np.zeros(3, np.uint64)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call):
    with pytest.raises((ValueError, TypeError)):
        call()


@pytest.mark.parametrize(
    "out", [torch.zeros(2, 6, dtype=torch.float64), torch.zeros(6, 2).t(), torch.zeros(2, 12)[:, ::2]]
)
def test_memory_of_another_format_is_refused_for_results(out):
    indptr, indices = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 2], dtype=torch.int32)
    with pytest.raises(TypeError):
        _native.segment_mean(torch.ones(4, 6), indptr, indices, out, 1)


def test_keys_are_functions_of_their_coordinates():
    ids = np.array([0, 1, 2**40, 5], dtype=np.int64)
    keys = np.empty(4, dtype=np.uint64)
    _native.keys_of(99, ids, keys)
    assert [int(key) for key in keys] == [_native.subkey(99, int(i)) for i in ids]
    assert len({_native.subkey(key, i) for key in range(100) for i in range(100)}) == 10_000


ANY_FORMAT = (torch.float64, torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.int16, torch.uint8)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_rows_of_many_tables_are_taken_at_once(num_threads):
    generator = torch.Generator().manual_seed(3)
    shapes = [(), (1,), (3,), (5, 7), (602,), (0,)]
    tables = [torch.randn(50, *shape, generator=generator).to(dtype) for shape in shapes for dtype in ANY_FORMAT]
    counts = [0, 1, 63, 4000]
    ids = [torch.randint(0, 50, (counts[k % 4],), generator=generator) for k in range(len(tables))]
    outs = [torch.empty(len(i), *t.shape[1:], dtype=t.dtype) for t, i in zip(tables, ids, strict=True)]
    _native.take_rows(tables, ids, outs, num_threads)
    for table, each, out in zip(tables, ids, outs, strict=True):
        assert torch.equal(out, table[each])


@pytest.mark.parametrize("bad", [-1, 50, 2**62, -(2**63)])
@pytest.mark.parametrize("shape", [(), (100,)])
def test_a_row_that_is_not_there_is_not_taken(bad, shape):
    table, ids = torch.zeros(50, *shape), torch.zeros(3000, dtype=torch.long)
    ids[2990] = bad
    for num_threads in (1, 3):
        with pytest.raises(IndexError, match="outside its table"):
            _native.take_rows([table], [ids], [torch.empty(3000, *shape)], num_threads)


def test_rows_at_odd_addresses_are_taken():
    words = torch.arange(801, dtype=torch.uint8)[1:].view(100, 8)
    out = torch.empty(7, 8, dtype=torch.uint8)
    _native.take_rows([words], [torch.arange(90, 97)], [out], 1)
    assert torch.equal(out, words[90:97])


@pytest.mark.parametrize(
    ("table", "out"), [((50, 4), (3, 5)), ((50, 4), (2, 4)), ((50,), (3, 1)), ((50, 4), (3,)), ((), ())]
)
def test_rows_are_of_the_shape_of_their_table(table, out):
    with pytest.raises(ValueError, match=r"rows have the dimensions|out must be"):
        _native.take_rows([torch.zeros(table)], [torch.zeros(3, dtype=torch.long)], [torch.empty(out)], 1)
