"""A hub's edges are shared out over programs: the same results, in rounds that are counted here."""

import heapq
import os
from dataclasses import replace

import pytest
import torch
from attention_problems import Problem, assert_close, native_results, triton_results

from graphmill.nn.attention import triton_launch, triton_sizes
from graphmill.nn.attention.triton_sizes import joined, node_tiles, part_sizes
from kernel_checks.chips import CHIPS, resident_programs

pytest.importorskip("triton")
interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="there is a GPU: set TRITON_INTERPRET=1"
)


def with_hub(kind: str, num_edges: int, seed: int, num_loops: int = 4) -> Problem:
    """Most edges lead to one target, and most leave one source; which, and where they stand, is drawn."""
    generator = torch.Generator().manual_seed(seed)
    sources, targets = (
        torch.randint(5, (num_edges,), generator=generator),
        torch.randint(4, (num_edges,), generator=generator),
    )
    is_of_hub = torch.rand(2, num_edges, generator=generator) < 0.7
    edge_index = torch.stack([sources.masked_fill(is_of_hub[0], seed % 5), targets.masked_fill(is_of_hub[1], seed % 4)])
    return Problem(kind, num_edges=num_edges, num_loops=num_loops, p=0.3, seed=seed, edge_index=edge_index)


@interpreted
@pytest.mark.parametrize(
    ("span", "num_edges", "kind"),
    [
        *((2, 14, "gatv2"), (4, 41, "gat")),
        *(
            pytest.param(*each, "gatv2", marks=pytest.mark.slow)
            for each in ((1, 9), (4, 40), (4, 41), (8, 40), (8, 130))
        ),
        *(pytest.param(*each, "gat", marks=pytest.mark.slow) for each in ((1, 9), (2, 14), (4, 40), (8, 40), (8, 130))),
    ],
)
def test_what_the_cpu_computes_of_a_hub(monkeypatch, kind, span, num_edges):
    monkeypatch.setattr(triton_sizes, "span_of", lambda _: span)
    assert part_sizes(4, num_edges).num_windows > 0
    for seed, num_loops in ((0, 4), (1, 0), (3, 4)):
        problem = with_hub(kind, num_edges, seed, num_loops)
        mine = triton_results(problem.arguments(torch.float32, every=torch.float32))
        assert_close(mine, native_results(problem.arguments(torch.float64, every=torch.float32)))


@interpreted
@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (16, "gat"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((16, "gatv2"), (128, "gat"), (128, "gatv2"))),
    ],
)
def test_a_hub_of_more_parts_than_are_added_up_at_once(monkeypatch, kind, rows):
    """At once are as many as a GPU's program takes, or few, so that the interpreter has less to do."""
    monkeypatch.setattr(triton_sizes, "span_of", lambda _: 2)

    def few(width: int) -> tuple[int, dict[str, int]]:
        columns, options = joined(width)
        return columns, {**options, "ROWS": rows}

    monkeypatch.setattr(triton_launch, "joined", few)
    num_edges = 2 * rows + rows // 3
    ends = torch.stack([torch.arange(num_edges) % 5, torch.full((num_edges,), 1)])
    problem = Problem(kind, num_edges=num_edges, edge_index=ends)
    assert part_sizes(4, num_edges).num_windows > rows
    mine = triton_results(problem.arguments(torch.float32, every=torch.bfloat16))
    assert_close(mine, native_results(problem.arguments(torch.float64, every=torch.bfloat16)))


@interpreted
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_channels_that_are_padded(kind):
    """Rows of 5 and of 8 channels: what lies beside the 5 is read by nobody."""
    problem = Problem(kind, num_loops=4, channels=5, p=0.3)
    assert_close(
        triton_results(problem.arguments(torch.float32, every=torch.bfloat16)),
        native_results(problem.arguments(torch.float64, every=torch.bfloat16)),
    )


@interpreted
def test_a_head_wider_than_a_program_holds_is_refused():
    arguments = replace(Problem("gat"), heads=1, channels=4097).arguments(torch.float32, every=torch.float32)
    with pytest.raises(ValueError, match="4096 channels a head: 4097"):
        triton_results(arguments)


def rounds(lengths: list[int], slots: int) -> int:
    """When the last of these programs ends, if each starts where one has ended, in order."""
    ends = [0] * slots
    for length in lengths:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


@pytest.mark.parametrize("value_bytes", [2, 4])
@pytest.mark.parametrize("heads_channels", [(8, 16), (3, 16), (4, 64), (1, 48)])
def test_a_hub_of_a_million_edges_takes_twice_the_rounds_of_the_same_edges_spread_at_most(heads_channels, value_bytes):
    """A round is a tile of edges, which waits for its loads; the hub's parts are added up in further rounds."""
    edges = 10**6
    tiles, parts = node_tiles(*heads_channels, value_bytes, has_features=True, capability=90), part_sizes(1, edges)
    slots = CHIPS[90].num_sms * resident_programs(CHIPS[90], tiles.num_warps, 72, 2048)
    of_part = -(-parts.span // tiles.block)
    joins = -(-(parts.num_windows + 1) // joined(heads_channels[1])[1]["ROWS"])
    hub = rounds([of_part] * (parts.num_windows + 1), slots) + joins
    spread = rounds([-(-16 // tiles.block)] * (edges // 16), slots)
    assert hub <= 2 * spread
    assert -(-edges // tiles.block) > 100 * spread  # what one program would take
