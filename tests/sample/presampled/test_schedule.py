"""Folders of presampled epochs: the same batches, another run's refused by name, files whole or absent."""

import numpy as np
import pytest
from presampled_epochs import epoch_source

from graphmill.base.errors import UserError
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.sample.presampled.schedule import (
    FILE_NAME,
    KEY_OF,
    EpochSource,
    PresampledSampler,
    ScheduleIdentity,
    epochs_to_write,
    read_identity,
    refuse_missing,
    refuse_other,
)

FANOUTS = (5, 3)


def source(ranks: int = 2, *, resample: bool = True, with_edge_ids: bool = False) -> EpochSource:
    return epoch_source(ranks, FANOUTS, 16, num_edges=2500, resample=resample, with_edge_ids=with_edge_ids)


def written(made: EpochSource, path, num_epochs: int = 2):
    folder = made.folder(path)
    folder.begin()
    told = []
    for epoch in epochs_to_write(folder, num_epochs):
        folder.write(epoch, made.schedule, made.sampler(), lambda steps, num_bytes: told.append((steps, num_bytes)))
    return folder, told


def same(one, other) -> bool:
    arrays = [(one.node_ids, other.node_ids), (one.edge_ids, other.edge_ids)]
    for here, there in zip(one.blocks, other.blocks, strict=True):
        arrays += [(here.indptr, there.indptr), (here.indices, there.indices)]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("resample", [True, False])
@pytest.mark.parametrize("with_edge_ids", [True, False])
def test_ranks_read_what_they_would_sample(tmp_path, ranks, resample, with_edge_ids):
    made = source(ranks, resample=resample, with_edge_ids=with_edge_ids)
    folder, told = written(made, tmp_path / "sampled")
    assert [steps for steps, _ in told] == [*range(1, made.num_steps + 1)] * 2
    sampler = made.sampler()
    for rank in range(ranks):
        reader = PresampledSampler(folder, rank)
        for epoch, step in [(e, s) for e in (1, 0) for s in reversed(range(made.num_steps))]:
            seeds = made.schedule.seeds(epoch, step, rank)
            read, drawn = reader.sample(seeds), sampler.sample(seeds)
            assert same(read, drawn)
            assert read.num_nodes_per_hop == drawn.num_nodes_per_hop
            assert read.num_edges_per_hop == drawn.num_edges_per_hop
            read.node_ids[0] = -1  # torch takes no read-only memory; and no other batch is touched
            assert same(reader.sample(seeds), drawn)


def test_epochs_that_are_there_are_kept(tmp_path):
    folder, _ = written(source(), tmp_path / "sampled")
    before = {path: path.stat().st_mtime_ns for path in folder.path.glob("epoch_*")}
    written(source(), tmp_path / "sampled", num_epochs=3)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sorted(path.name for path in folder.path.iterdir()) == [
        *(f"epoch_0000{n}.schedule" for n in range(3)),
        FILE_NAME,
    ]


def test_a_writer_that_fails_leaves_no_epoch(tmp_path):
    made = source()
    folder = made.folder(tmp_path / "sampled")
    folder.begin()

    def fail(steps, num_bytes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write(0, made.schedule, made.sampler(), fail)
    assert [path.name for path in folder.path.iterdir()] == [FILE_NAME]
    with pytest.raises(UserError, match="epoch 0 and 1 more"):
        refuse_missing(folder, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", "1" * 32),
        ("num_train", 3),
        ("undirected", False),
        ("seed", 22),
        ("num_neighbors", (5, 4)),
        ("batch_size", 17),
        ("ranks", 4),
        ("seeds", "owner of parts 0123"),
        ("resample", False),
        ("edge_ids", True),
    ],
)
def test_a_schedule_of_another_run_is_refused_with_both_values(tmp_path, name, value):
    folder, _ = written(source(), tmp_path / "sampled", num_epochs=1)
    other = folder.identity.model_copy(update={name: value})
    with pytest.raises(UserError) as refused:
        refuse_other(folder.path, other)
    here, there = (list(v) if isinstance(v, tuple) else v for v in (value, getattr(folder.identity, name)))
    assert f"{KEY_OF[name]} is {here} here and {there} there" in str(refused.value)
    refuse_other(folder.path, folder.identity)
    assert other.checksum != folder.identity.checksum


def test_every_field_of_an_identity_is_compared():
    assert {*KEY_OF, "format_version"} == set(ScheduleIdentity.model_fields)


def test_what_is_no_folder_of_epochs(tmp_path):
    with pytest.raises(UserError, match=r"schedule\.json is missing"):
        read_identity(tmp_path)
    (tmp_path / "other").write_text("kept")
    with pytest.raises(UserError, match="holds other files"):
        source().folder(tmp_path).begin()
    (tmp_path / FILE_NAME).write_text('{"format_version": 2}')
    with pytest.raises(UserError, match="of another version"):
        read_identity(tmp_path)


@pytest.mark.parametrize("where", [0.0, 0.2, 0.5, 0.9, 0.9999])
def test_a_flipped_byte_is_found(tmp_path, where):
    made = source()
    folder, _ = written(made, tmp_path / "sampled", num_epochs=1)
    path = folder.file(0)
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1
    path.write_bytes(data)

    def read_all():
        for rank in range(2):
            for step in range(made.num_steps):
                PresampledSampler(folder, rank).sample(made.schedule.seeds(0, step, rank))

    with pytest.raises(UserError, match="is damaged"):
        read_all()


@pytest.mark.parametrize("kept", [0, 7, 100, 5000])
def test_a_file_that_is_cut_short_is_made_again(tmp_path, kept):
    made = source()
    folder, _ = written(made, tmp_path / "sampled", num_epochs=1)
    whole = folder.file(0).read_bytes()
    folder.file(0).write_bytes(whole[:kept])
    with pytest.raises(UserError, match="is damaged"):
        PresampledSampler(folder, 0).sample(made.schedule.seeds(0, 0, 0))
    written(made, tmp_path / "sampled", num_epochs=1)
    assert folder.file(0).read_bytes() == whole


def test_other_seeds_and_other_epochs_are_refused(tmp_path):
    made = source()
    folder, _ = written(made, tmp_path / "sampled", num_epochs=1)
    reader = PresampledSampler(folder, 0)
    with pytest.raises(UserError, match="other seeds at step 1, rank 0"):
        reader.sample(made.schedule.seeds(0, 1, 1))
    with pytest.raises(UserError, match="does not hold epoch 5"):
        reader.sample(made.schedule.seeds(5, 0, 0))
    with pytest.raises(TypeError, match="not presampled"):
        reader.sample(EvaluationSeeds(SeedIds(np.arange(3))))
