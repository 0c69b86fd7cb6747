"""Features of all hops: S^k x as the papers write it, dense and sparse, in blocks, cut to the largest values."""

import numpy as np
import pytest
from rounding import Bounded, assert_within
from torch import from_numpy

from graphmill.access import propagated as module
from graphmill.access.propagated import propagated
from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures, SparseFeatures, dense, sparse, stored_as
from graphmill.graph.topology import Topology
from graphmill.spec.sign import Propagation

NUM_NODES, WIDTH = 40, 7


def asked(hops, reads="all", values_per_hop=None):
    return Propagation(hops=hops, reads=reads, values_per_hop=values_per_hop)


@pytest.fixture
def topology():
    """Directed, with nodes that have no in-neighbour, and a self-loop."""
    adjacency = np.random.default_rng(0).random((NUM_NODES, NUM_NODES)) < 0.1
    adjacency[:5], adjacency[7, 7] = False, True
    counts = adjacency.sum(axis=1)
    return Topology(np.concatenate([[0], np.cumsum(counts)]), np.nonzero(adjacency)[1].astype(np.int32))


@pytest.fixture
def x():
    values = np.random.default_rng(1).normal(size=(NUM_NODES, WIDTH))
    return np.where(np.random.default_rng(2).random(values.shape) < 0.4, values, 0).astype(np.float32)


def as_sparse(x):
    rows, columns = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
    return sparse(indptr, columns, x[rows, columns], x.shape[1])


def written_out(features):
    if isinstance(features, DenseFeatures):
        return np.array(features.x)
    found = np.zeros((features.num_nodes, features.num_features), dtype=np.float32)
    found[np.repeat(np.arange(features.num_nodes), np.diff(features.indptr)), features.indices] = features.values
    return found


def by_definition(x, topology, hops):
    """x, S x, …, S^hops x with S = D^-1/2 (A + I) D^-1/2, as matrices in float64."""
    targets = np.repeat(np.arange(NUM_NODES), np.diff(topology.indptr))
    step = np.eye(NUM_NODES)
    np.add.at(step, (targets, topology.indices), 1)
    degrees = np.diff(topology.indptr) + 1.0
    step = step / np.sqrt(np.outer(degrees, degrees))
    found = [x.astype(np.float64)]
    for _ in range(hops):
        found.append(step @ found[-1])
    return found


def assert_hops(features, x, topology, hops):
    """Each hop adds the roundings of a sum over at most all nodes, of terms that add up to S^k |x|."""
    exact, terms = (np.concatenate(by_definition(each, topology, hops), axis=1) for each in (x, np.abs(x)))
    roundings = hops * (NUM_NODES + 4) * terms
    assert_within(from_numpy(written_out(features)), Bounded(from_numpy(exact), from_numpy(roundings)))


@pytest.mark.parametrize("form", [dense, as_sparse])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_rows_are_powers_of_the_normalised_adjacency(topology, x, form, hops):
    found = propagated(form(x), topology, asked(hops))
    assert found.num_features == (hops + 1) * WIDTH
    assert_hops(found, x, topology, hops)


@pytest.mark.parametrize("form", [dense, as_sparse])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_last_hop_alone(topology, x, form, hops):
    alone = written_out(propagated(form(x), topology, asked(hops, "last")))
    assert np.array_equal(alone, written_out(propagated(form(x), topology, asked(hops)))[:, -WIDTH:])


def test_short_numbers_are_read_as_their_values(topology, x):
    short = stored_as(dense(x), "bfloat16")
    exact = stored_as(short, "float32")
    assert np.array_equal(propagated(short, topology, asked(2)).x, propagated(exact, topology, asked(2)).x)


@pytest.fixture
def beside():
    """More columns than features have."""
    values = np.random.default_rng(3).random((NUM_NODES, WIDTH + 3), dtype=np.float32)
    return np.where(values < 0.3, np.float32(0), values)


@pytest.mark.parametrize("form", [dense, as_sparse])
@pytest.mark.parametrize("reads", ["all", "last"])
@pytest.mark.parametrize("num_extra_columns", [1, WIDTH + 3])
def test_columns_beside_follow_those_of_the_hops_as_they_are(topology, x, form, reads, num_extra_columns, beside):
    found = propagated(form(x), topology, asked(2, reads), beside[:, :num_extra_columns])
    alone = propagated(form(x), topology, asked(2, reads))
    assert found.num_features == alone.num_features + num_extra_columns
    assert np.array_equal(
        written_out(found), np.concatenate([written_out(alone), beside[:, :num_extra_columns]], axis=1)
    )


def test_columns_beside_are_read_of_nodes_without_features(topology, beside):
    nothing = dense(np.empty((NUM_NODES, 0), dtype=np.float32))
    assert np.array_equal(propagated(nothing, topology, asked(2), beside).x, beside)


@pytest.mark.parametrize("form", [dense, as_sparse])
@pytest.mark.parametrize("at_a_time", [1, 50, 300])
def test_the_size_of_a_block_changes_nothing(topology, x, form, at_a_time, beside, monkeypatch):
    whole = written_out(propagated(form(x), topology, asked(2, values_per_hop=3), beside))
    monkeypatch.setattr(module, "_VALUES_AT_A_TIME", at_a_time)
    assert np.array_equal(written_out(propagated(form(x), topology, asked(2, values_per_hop=3), beside)), whole)


def test_sparse_rows_keep_their_largest_values_and_the_next_hop_is_made_of_those(topology, x):
    found = written_out(propagated(as_sparse(x), topology, asked(2, values_per_hop=2)))
    own, first, second = np.split(found, 3, axis=1)
    assert np.array_equal(own, x)
    whole = written_out(propagated(as_sparse(x), topology, asked(1)))[:, WIDTH:]
    assert np.count_nonzero(first, axis=1).max() == 2
    for mine, all_of_it in zip(first, whole, strict=True):
        kept = np.flatnonzero(mine)
        assert np.array_equal(mine[kept], all_of_it[kept])
        assert np.abs(all_of_it[np.setdiff1d(np.arange(WIDTH), kept)]).max() <= np.abs(all_of_it[kept]).min(initial=9)
    again = written_out(propagated(as_sparse(first), topology, asked(1, values_per_hop=2)))[:, WIDTH:]
    assert np.array_equal(second, again)


def test_of_equal_values_the_first_are_kept():
    alone = Topology(np.zeros(2, dtype=np.int64), np.empty(0, dtype=np.int32))
    found = propagated(as_sparse(np.array([[1, -1, 2, 1, -1]], np.float32)), alone, asked(1, "last", 3))
    assert written_out(found).tolist() == [[1, -1, 2, 0, 0]]


def test_no_edges_and_no_values(x):
    empty = Topology(np.zeros(NUM_NODES + 1, dtype=np.int64), np.empty(0, dtype=np.int32))
    assert np.array_equal(propagated(dense(x), empty, asked(2)).x, np.tile(x, 3))
    assert np.array_equal(written_out(propagated(as_sparse(x), empty, asked(2))), np.tile(x, 3))
    none = SparseFeatures(np.zeros(NUM_NODES + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), WIDTH)
    assert not written_out(propagated(none, empty, asked(1))).any()


def test_more_rows_than_a_product_can_name_are_refused(topology, x, monkeypatch):
    monkeypatch.setattr(module, "_MOST_ROWS", 3 * NUM_NODES)
    propagated(dense(x), topology, asked(2))
    with pytest.raises(UserError, match="40 nodes with 4 rows of propagated features each are more than 120"):
        propagated(dense(x), topology, asked(3))


@pytest.mark.parametrize("form", [dense, as_sparse])
@pytest.mark.parametrize("reads", ["all", "last"])
def test_a_table_is_within_what_the_plan_says(topology, x, form, reads):
    wanted = asked(2, reads, values_per_hop=4)
    found = propagated(form(x), topology, wanted)
    is_sparse = isinstance(found, SparseFeatures)
    taken = 8 * np.count_nonzero(found.indices >= (WIDTH if reads == "all" else 0)) if is_sparse else found.x.nbytes
    assert taken <= wanted.table_bytes(NUM_NODES, WIDTH, is_sparse=is_sparse)
