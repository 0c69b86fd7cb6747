"""`graphmill.NeighborLoader` over a graph in parts: the batches of the graph stored whole, for the same seeds."""

import numpy as np
import pytest
import torch

import graphmill
from graphmill.base.errors import UserError

pytest.importorskip("torch_geometric")


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("ranks", "num_parts", "ways"),
    [
        (2, 4, "few"),
        *(pytest.param(*each, "all", marks=pytest.mark.slow) for each in ((1, 4), (2, 2), (2, 4))),
    ],
)
def test_batches_are_those_of_the_whole_graph(told_by_ranks, ranks, num_parts, ways):
    """Features dense and sparse, features and types of edges, both topologies, with and without a hot cache."""
    told = told_by_ranks("loaders.py", ranks, num_parts, ways)
    refusals = [cells.pop("refused") for cells in told]
    for rank, cells in enumerate(told):
        assert len(cells) == (5 * 2 * 2 if ways == "all" else 5 * 2)
        assert not {words: cell["differences"] for words, cell in cells.items() if cell["differences"]}, f"rank {rank}"
        assert all(bool(cell["fetched"]) == (ranks > 1) for cell in cells.values())
    for words in told[0]:
        for epoch in range(2):
            everyone = np.concatenate([cells[words]["seeds"][epoch] for cells in told])
            assert len(everyone) == len(np.unique(everyone)) == 70, "no seed is dropped or doubled"
    assert all(("input_nodes" in said) == (ranks > 1) for said in refusals)


def test_one_process_reads_all_parts(root):
    parts = graphmill.open_partitioned(root / "parts/synthetic/sbm/4-ldg")
    assert (parts.num_nodes, parts.num_features, parts.num_classes) == (1200, 7, 3)
    mask = torch.zeros(parts.num_nodes, dtype=torch.bool)
    mask[parts.nodes_in("val")] = True
    batches = list(graphmill.NeighborLoader(parts, [3, 2], mask, batch_size=50))
    assert torch.equal(torch.cat([batch.input_id for batch in batches]), parts.nodes_in("val"))
    assert all(len(batch.y) == batch.batch_size for batch in batches)


def test_seeds_in_no_split_have_no_y(root):
    """The labels of the other nodes are with their parts."""
    parts = graphmill.open_partitioned(root / "parts/edgy/2-ldg")
    in_splits = torch.cat([parts.nodes_in(split) for split in ("train", "val", "test")])
    outside = np.setdiff1d(np.arange(parts.num_nodes), in_splits.numpy())
    (batch,) = graphmill.NeighborLoader(parts, [2], [int(in_splits[0]), int(outside[0])], batch_size=2)
    assert "y" not in batch


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topology": "whole"}, "replicated"),
        ({"cache_ratio": 2}, "cache_ratio"),
        ({"ranks_per_host": 2}, "ranks_per_host"),
    ],
)
def test_wrong_options_are_refused(root, options, says):
    with pytest.raises(UserError, match=says):
        graphmill.open_partitioned(root / "parts/synthetic/sbm/4-ldg", **options)


def test_a_graph_in_one_piece_is_refused(root):
    with pytest.raises(UserError, match="not partitioned"):
        graphmill.open_partitioned(root / "debian-packages")


def test_types_of_both_directions_are_refused(root):
    with pytest.raises(UserError, match=r"undirected is true, but the edges of typed have types"):
        graphmill.open_partitioned(root / "parts/typed/2-ldg", undirected=True)


def test_a_wrong_split_is_refused(root):
    with pytest.raises(UserError, match="split is 'valid'"):
        graphmill.open_partitioned(root / "parts/synthetic/sbm/4-ldg").nodes_in("valid")
