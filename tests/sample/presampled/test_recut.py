"""Presampled epochs for other ranks: any cut of the same global batches has the neighbourhoods that sampling gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from presampled_epochs import NUM_NODES, epoch_source

from graphmill.base.errors import UserError
from graphmill.graph.sampled import EvaluationSeeds, SeedIds, Seeds
from graphmill.sample.presampled.recut import RecutSampler
from graphmill.sample.presampled.schedule import (
    EpochSource,
    PresampledFolder,
    identity_to_read,
)

AT_ONCE = 24


def source(ranks: int, *, resample=True, with_edge_ids=False, at_once=AT_ONCE, fanouts=(4, -1, 2)) -> EpochSource:
    return epoch_source(
        ranks, fanouts, at_once // ranks, num_edges=1500, resample=resample, with_edge_ids=with_edge_ids
    )


def written(made: EpochSource, path) -> PresampledFolder:
    folder = made.folder(path)
    folder.begin()
    for epoch in range(2):
        folder.write(epoch, made.schedule, made.sampler(), lambda steps, num_bytes: None)
    return folder


def same(one, other) -> bool:
    arrays = [(one.node_ids, other.node_ids), (one.edge_ids, other.edge_ids), (one.seeds.ids, other.seeds.ids)]
    for here, there in zip(one.blocks, other.blocks, strict=True):
        arrays += [(here.indptr, there.indptr), (here.indices, there.indices)]
    counts = (one.num_nodes_per_hop, one.num_edges_per_hop) == (other.num_nodes_per_hop, other.num_edges_per_hop)
    return counts and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


@pytest.mark.parametrize("with_edge_ids", [False, True])
@pytest.mark.parametrize("sampled_for", [1, 2, 3, 4])
def test_any_number_of_ranks_reads_what_it_would_sample(tmp_path, sampled_for, with_edge_ids):
    folder = written(source(sampled_for, with_edge_ids=with_edge_ids), tmp_path / "sampled")
    for ranks in (1, 2, 3, 4, 6):
        made = source(ranks, with_edge_ids=with_edge_ids)
        assert identity_to_read(folder.path, made.identity) == folder.identity
        sampler = made.sampler()
        for rank in range(ranks):
            reader = RecutSampler(folder, rank, ranks, NUM_NODES)
            for epoch, step in [(e, s) for e in (1, 0) for s in range(made.num_steps)]:  # the last one is short
                seeds = made.schedule.seeds(epoch, step, rank)
                assert same(reader.sample(seeds), sampler.sample(seeds)), (ranks, rank, epoch, step)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_share_of_a_global_batch_is_in_it(tmp_path_factory, data):
    """Seeds that go to their owners are in no order that is known beforehand."""
    made = source(3)
    folder = written(made, tmp_path_factory.mktemp("s") / "sampled")
    batch = np.concatenate([made.schedule.seeds(1, 2, rank).ids for rank in range(3)])
    share = data.draw(st.lists(st.sampled_from(batch.tolist()), unique=True))
    seeds = Seeds(1, 2, SeedIds(np.array(share, dtype=np.int64)))
    rank = data.draw(st.integers(0, 4))
    assert same(RecutSampler(folder, rank, 5, NUM_NODES).sample(seeds), made.sampler().sample(seeds))


def test_seeds_of_another_batch_are_refused(tmp_path):
    made = source(3)
    reader = RecutSampler(written(made, tmp_path / "sampled"), 0, 2, NUM_NODES)
    with pytest.raises(UserError, match="other seeds at step 1"):
        reader.sample(Seeds(0, 1, made.schedule.seeds(0, 0, 0).ids))
    with pytest.raises(TypeError, match="evaluation"):
        reader.sample(EvaluationSeeds(SeedIds(np.arange(3))))


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (source(2, at_once=30), "a global batch has 30 seeds here and 24 there"),
        (source(2, resample=False), "resampling at every hop"),
        (source(2, fanouts=(4, -1, 3)), "train.num_neighbors is [4, -1, 3] here and [4, -1, 2] there"),
    ],
)
def test_other_batches_cannot_be_cut_out_of_it(tmp_path, wanted, says):
    folder = written(source(3), tmp_path / "sampled")
    with pytest.raises(UserError) as refused:
        identity_to_read(folder.path, wanted.identity)
    assert says in refused.value.message
    assert "train.ranks is 2 here and 3 there" in refused.value.message


def test_pyg_s_way_is_of_one_number_of_ranks(tmp_path):
    folder = written(source(3, resample=False), tmp_path / "sampled")
    with pytest.raises(UserError, match="depend on what else is in a rank's batch"):
        identity_to_read(folder.path, source(2, resample=False).identity)
