"""What a plan says that links take, against what lies there."""

import tracemalloc

import numpy as np
import pytest

from graphmill.partition.metadata import files_of, read_parts_metadata
from graphmill.spec.load import inline_experiment
from graphmill.spec.modelled import modelled
from graphmill.tasks.link_prediction.data.store import LinkStore
from graphmill.tasks.planning import plan_experiment


def memory_of(root, name, ranks=1, **partition):
    raw = {
        "task": "link_prediction",
        "dataset": {"name": name},
        "model": {"kind": "graphsage", "hidden_channels": 8},
        "train": {"epochs": 1, "batch_size": 64, "num_neighbors": [4, 3], "ranks": ranks, "device": "cpu"},
        "partition": partition,
    }
    return modelled(plan_experiment(inline_experiment(raw, "test"), dataset_root=root, run_id="run")).memory


@pytest.mark.parametrize("name", ["circle", "typed"])
def test_what_a_host_maps_of_parts_is_counted_with_the_links(root, name):
    path = f"parts/{name}/3-ldg"
    known, read = read_parts_metadata(root / path), ("node_ids", "x", "storage_of", "undirected_", "_links")
    names = [each for each in files_of(known, range(3), whole_topology=True) if any(word in each for word in read)]
    arrays = [known.arrays[each] for each in names]
    mapped = sum(int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize for each in arrays)
    counted = memory_of(root, path, cache={"policy": "none"}).data_mib * 2**20
    assert mapped <= counted <= 1.1 * mapped


def test_known_edges_are_counted_of_parts_as_of_the_whole(root):
    whole, parts = (memory_of(root, name) for name in ("circle", "parts/circle/3-ldg"))
    assert whole.data_mib is None
    assert parts.index_mib > whole.index_mib > 0, "and the rows that are held"


def test_ranks_that_own_links_may_have_more_than_their_share(root):
    """Of three parts one of two ranks has two."""
    batches = [
        memory_of(root, "parts/circle/3-ldg", ranks=2, placement="per_rank", seeds=seeds).batches_mib
        for seeds in ("equal", "owner")
    ]
    assert batches[0] < batches[1]


def test_what_partitioning_holds_of_links_is_no_more_than_estimated(root):
    """Beside a chunk of message edges."""
    store = LinkStore.open(root / "mutual")
    tracemalloc.start()
    try:
        store.lists()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    links, edges = store.metadata.links["train"], store.metadata.num_edges
    assert peak < 100 * (links + edges) + 2**15
