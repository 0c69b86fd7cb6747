"""Folders of presampled epochs: the same batches, another run's refused by name, files whole or absent."""

import struct

import numpy as np
import pytest
import xxhash
from presampled_epochs import epoch_source

from graphmill.base.errors import UserError
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.sample.presampled.epoch_file import MAGIC
from graphmill.sample.presampled.packing import Form
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
    verify_epochs,
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
    with pytest.raises(UserError, match="has format 2, and this graphmill reads 1"):
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


def piece(line, number: int) -> tuple[int, int]:
    """Where node ids (0), sources (1) or degrees (2) of a batch begin and end in the file, by its line of the index."""
    seeds, nodes, edges, rows = line[2], line[3::3].sum(), line[4::3].sum(), line[5::3].sum()
    ends = int(line[0]) + np.cumsum([0, 4 * (seeds + nodes), 4 * edges, rows])
    return ends[number], ends[number + 1]


def put(number: int, value: int, dtype: str = "<i4"):
    """A forger who overwrites the last of a piece."""

    def forge(content: bytearray, line) -> None:
        end = int(piece(line, number)[1])
        last = np.array([value], dtype).tobytes()
        content[end - len(last) : end] = last

    return forge


def count(column: int, value: int):
    """A forger who changes a line of the index."""

    def forge(content: bytearray, line) -> None:
        line[column] = value

    return forge


FORGERS = {
    "nodes beyond the graph": put(0, 2**30),
    "a node below 0": put(0, -7),
    "sources beyond the nodes": put(1, 2**30),
    "a source below 0": put(1, -7),
    "more edges than sources": put(2, 200, "u1"),
    "room for 2**60 nodes": count(3, 2**60),
    "a sum that overflows": count(slice(2, None), 2**62),
    "less than nothing": count(3, -5),
    "before the file": count(0, -8),
    "behind the file": count(0, 2**50),
    "rows of another hop": lambda content, line: line.__setitem__([5, 8], line[[8, 5]]),
}


@pytest.mark.parametrize("forger", FORGERS)
def test_what_leads_out_of_the_graph_is_refused_though_its_checksums_are_right(tmp_path, forger):
    """They are no secret: whoever hands a folder on can renew them. Native code follows what it is given."""
    made = source(ranks=1)
    folder, _ = written(made, tmp_path / "sampled", num_epochs=1)
    content = bytearray(folder.file(0).read_bytes())
    (begin,) = struct.unpack_from("<Q", content, len(content) - 24)
    index = np.frombuffer(bytes(content[begin:-24]), "<i8").reshape(made.num_steps, -1).copy()
    del content[begin:]
    FORGERS[forger](content, index[0])
    with np.errstate(over="ignore"):
        at, end = int(index[0][0]), int(piece(index[0], 2)[1])
    index[0][1] = np.uint64(xxhash.xxh3_64_intdigest(bytes(content[max(0, at) : max(0, end)]))).astype(np.int64)
    renewed = index.astype("<i8").tobytes()
    tail = struct.pack("<QQ8s", begin, xxhash.xxh3_64_intdigest(renewed), MAGIC)
    folder.file(0).write_bytes(content + renewed + tail)
    with pytest.raises(UserError, match="is damaged: the batch of step 0, rank 0 leads out of"):
        PresampledSampler(folder, 0).sample(made.schedule.seeds(0, 0, 0))
    with pytest.raises(UserError, match="leads out of"):
        verify_epochs(folder.path)


@pytest.mark.parametrize(
    "known",
    [{"node_ids": "|O"}, {"degrees": "<f8"}, {"edge_ids": "S1000000000"}, {"num_hops": "x"}, {"num_nodes": -1}],
    ids=str,
)
def test_a_header_that_nobody_writes_is_refused(known):
    with pytest.raises((ValueError, TypeError)):
        Form.from_text({**source().form.as_text(), **known})


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
