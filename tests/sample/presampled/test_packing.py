"""A neighbourhood and its bytes: there and back to the bit."""

import numpy as np
import pytest
from graphs_in_parts import graphs
from hypothesis import given
from hypothesis import strategies as st

from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.presampled.packing import Form, num_bytes_of, packed, unpacked

fan_outs = st.lists(st.sampled_from((-1, 1, 3, 300)), min_size=1, max_size=3).map(tuple)


def same(one, other) -> bool:
    """To the bit, dtypes as well."""
    arrays = [(one.node_ids, other.node_ids), (one.seeds.ids, other.seeds.ids), (one.edge_ids, other.edge_ids)]
    for here, there in zip(one.blocks, other.blocks, strict=True):
        arrays += [(here.indptr, there.indptr), (here.indices, there.indices)]
    return (
        all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)
        and one.num_nodes_per_hop == other.num_nodes_per_hop
        and one.num_edges_per_hop == other.num_edges_per_hop
        and (one.seeds.epoch, one.seeds.step) == (other.seeds.epoch, other.seeds.step)
    )


@given(
    graph=graphs(),
    fanouts=fan_outs,
    resample=st.booleans(),
    with_edge_ids=st.booleans(),
    share=st.integers(0, 10),
    position=st.tuples(st.integers(0, 2**40), st.integers(0, 2**20)),
)
def test_there_and_back(graph, fanouts, resample, with_edge_ids, share, position):
    topology, _, seeds = graph
    ids = SeedIds(seeds[:share])
    sampler = WholeSampler(topology, fanouts, 3, 1, resample=resample, with_edge_ids=with_edge_ids)
    form = Form.of(topology.num_nodes, topology.num_edges, fanouts, resample=resample, with_edge_ids=with_edge_ids)
    sampled = sampler.sample(Seeds(*position, ids))
    data, counts = packed(sampled, form)
    assert len(counts) == form.num_counts
    assert len(data) == num_bytes_of(counts, form, len(data))
    back = unpacked(np.frombuffer(bytearray(data), np.uint8), counts, form, *position)
    assert same(sampled, back)
    assert not same(sampled, unpacked(np.frombuffer(bytearray(data), np.uint8), counts, form, 2**41, 0))


@pytest.mark.parametrize(
    ("fanouts", "degrees"), [((15, 10, 5), np.uint8), ((255,), np.uint8), ((256, 1), np.uint16), ((3, -1), np.uint8)]
)
def test_degrees_take_as_little_as_holds_them(fanouts, degrees):
    assert Form.of(5, 4, fanouts, resample=True, with_edge_ids=False).degrees == degrees
