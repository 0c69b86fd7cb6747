"""A store that is damaged is refused with the file's name, or still verifies; nothing else ever happens."""

import json
import os
import shutil
import time

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.graph.features import dense, sparse
from graphmill.graph.header import read_header, seal, write_metadata
from graphmill.sample.neighbor import WholeSampler
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store


def write(path, *, sparse_features=False):
    rng = np.random.default_rng(0)
    x = dense(rng.random((50, 4)))
    if sparse_features:
        x = sparse(np.arange(51) * 2, np.tile([0, 3], 50), rng.random(100), 4)
    raw = LabelledGraph(
        edge_index=rng.integers(0, 50, (2, 300)),
        features=x,
        labels=rng.integers(0, 3, 50),
        split=np.repeat([0, 1, 2, -1, 0], 10).astype(np.int8),
        name="damaged",
        source="random",
        synthetic=True,
        class_names=("a", "b", "c"),
    )
    return write_store(raw, path)


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "s")


def set_age(path, seconds):
    then = time.time_ns() - seconds * 10**9
    os.utime(path, ns=(then, then))


@pytest.mark.parametrize("name", ["x", "indices", "y"])
def test_data_changed_since_they_were_prepared_are_refused_when_opened(store, name):
    path = store.path / f"{name}.npy"
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x10
    path.write_bytes(data)
    set_age(store.path / "metadata.json", 10)
    with pytest.raises(UserError, match=rf"(?s){name}\.npy.*its checksum is"):
        LabelledGraphStore.open(store.path)


def test_a_copy_without_times_is_read_once(store):
    metadata = store.path / "metadata.json"
    for path in store.path.glob("*.npy"):
        set_age(path, 5)
    set_age(metadata, 10)
    LabelledGraphStore.open(store.path)
    sealed = metadata.stat().st_mtime_ns
    assert sealed > max(path.stat().st_mtime_ns for path in store.path.glob("*.npy"))
    LabelledGraphStore.open(store.path)
    assert metadata.stat().st_mtime_ns == sealed, "no file was younger, so none was read"


def refused(store, match):
    with pytest.raises(UserError, match=match) as error:
        LabelledGraphStore.open(store.path).verify()
    assert error.value.fix


def edit_metadata(store, **changes):
    """Change metadata and seal it again, as a forger would."""
    metadata = store.metadata.model_copy(update=changes)
    write_metadata(store.path, seal(metadata))


def replace_array(store, name, array):
    """Write another array under a record that vouches for it."""
    from graphmill.graph.arrays import write_array

    record = write_array(store.path / f"{name}.npy", np.asarray(array))
    edit_metadata(store, arrays={**store.metadata.arrays, name: record})


@pytest.mark.parametrize("stranger", [50, -1, 2**31 - 1])
def test_neighbours_out_of_range_under_a_record_that_vouches_for_them_are_an_error_and_no_crash(store, stranger):
    indices = np.array(LabelledGraphStore.open(store.path).topology(undirected=False).indices)
    indices[7] = stranger
    replace_array(store, "indices", indices)
    with pytest.raises(UserError, match=f"edge 7 .* node {stranger} .* 50 nodes"):
        WholeSampler(
            LabelledGraphStore.open(store.path).topology(undirected=False), (5, 5), 0, num_threads=1, resample=True
        )


@pytest.mark.parametrize("stranger", [3, -2, 2**40])
def test_labels_out_of_range_under_a_record_that_vouches_for_them_ask_for_no_memory(store, stranger):
    labels = np.array(store.labels)
    labels[7] = stranger
    replace_array(store, "y", labels)
    forged = LabelledGraphStore.open(store.path)
    with pytest.raises(UserError, match=r"y\.npy: it holds .* and should hold -1 to 2"):
        forged.described()


def test_a_split_of_another_size_than_the_metadata_say_is_refused(store):
    split = np.array(store.array("split"))
    split[np.flatnonzero(split == 0)[:3]] = 77
    replace_array(store, "split", split)
    with pytest.raises(UserError, match=r"split\.npy: 17 nodes are train, and metadata\.json says 20"):
        LabelledGraphStore.open(store.path).nodes_in("train")


def test_a_missing_folder(tmp_path):
    with pytest.raises(UserError, match="holds no prepared data") as error:
        LabelledGraphStore.open(tmp_path / "nothing")
    assert "graphmill prepare" in error.value.fix


@pytest.mark.parametrize("name", ["indptr", "indices", "x", "y", "split", "undirected_indices"])
def test_a_missing_file(store, name):
    (store.path / f"{name}.npy").unlink()
    refused(store, rf"{name}\.npy: the file is missing")


def test_a_truncated_file_is_seen_on_opening(store):
    path = store.path / "x.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"x\.npy: the file has \d+ bytes and should have \d+"):
        LabelledGraphStore.open(store.path)


def test_a_bit_that_the_disk_flipped_is_seen_on_verifying(store):
    path = store.path / "x.npy"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    LabelledGraphStore.open(store.path)
    refused(store, r"x\.npy: its checksum is")


def test_another_dtype(store):
    np.save(store.path / "y.npy", store.labels.astype(np.float64))
    refused(store, r"y\.npy: it holds <f8, and metadata.json says int64")


def test_another_byte_order(store):
    np.save(store.path / "y.npy", store.labels.astype(">i8"))
    refused(store, r"y\.npy: it holds >i8")


def test_another_shape(store):
    np.save(store.path / "y.npy", store.labels.reshape(50, 1))
    refused(store, r"y\.npy: its shape is \[50, 1\]")


def test_a_pickle(store):
    np.save(store.path / "y.npy", np.array([{"a": 1}] * 50, dtype=object), allow_pickle=True)
    refused(store, r"y\.npy: the header cannot be read: it holds Python objects")


def test_another_format_version(store):
    raw = json.loads((store.path / "metadata.json").read_text())
    (store.path / "metadata.json").write_text(json.dumps(raw | {"format_version": 2}))
    refused(store, "format version 2, and this graphmill reads 1")


def test_a_changed_count_breaks_the_checksum(store):
    raw = json.loads((store.path / "metadata.json").read_text())
    (store.path / "metadata.json").write_text(json.dumps(raw | {"num_isolated_nodes": 7}))
    refused(store, r"metadata\.json: its checksum is")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format_version": 1}', "[" * 100_000, '{"a": 1e999}', "\x00"]
)
def test_metadata_that_is_none(store, content):
    (store.path / "metadata.json").write_text(content)
    refused(store, r"metadata\.json")


def test_metadata_too_large_to_be_read(store):
    with (store.path / "metadata.json").open("ab") as file:
        file.truncate(2**24 + 1)
    refused(store, "too many for metadata")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_self_loops": 99}, "num_self_loops"),
        ({"num_isolated_nodes": 49}, "num_isolated_nodes"),
        ({"num_classes": 2, "class_names": ()}, "of 2 classes"),
        ({"num_classes": 4}, "3 class names for 4 classes"),
        ({"num_nodes": 51}, r"arrays\.indptr is int64 \[51\], and should be int64 \[52\]"),
        ({"is_symmetric": True}, "arrays are"),
        ({"splits": {"train": 21, "val": 10, "test": 10, "none": 9}}, "20 nodes are train"),
        ({"splits": {"train": 0, "val": 10, "test": 10, "none": 30}}, "training split is empty"),
        ({"splits": {"train": 50}}, "do not add up"),
        ({"feature_dtype": "bfloat16"}, r"arrays\.x is float32"),
        ({"arrays": {}}, "arrays are"),
    ],
)
def test_sealed_metadata_that_lies(store, changes, match):
    edit_metadata(store, **changes)
    refused(store, match)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("indices", lambda a: np.where(np.arange(len(a)) == 3, 50, a), "names column 50"),
        ("indices", lambda a: a[::-1], "not in ascending order"),
        ("indptr", lambda a: np.concatenate([a[:10], a[9:10] - 1, a[11:]]), "indptr falls"),
        ("undirected_indices", lambda a: np.concatenate([a[:-1], [a[-1] - 1]]), "not in ascending|not the union"),
        ("y", lambda a: np.where(np.arange(50) == 4, 3, a), "node 4 has label 3"),
        ("y", lambda a: np.where(np.arange(50) == 4, -1, a), "node 4 is in a split"),
        ("split", lambda a: np.where(np.arange(50) == 4, 7, a).astype(np.int8), "nodes are train"),
        ("x", lambda a: np.where(a == a[2, 1], np.nan, a).astype(np.float32), "row 2, column 1 is nan"),
    ],
)
def test_sealed_arrays_that_break_a_promise(store, name, change, match):
    array = np.load(store.path / f"{name}.npy")
    replace_array(store, name, change(array).astype(array.dtype))
    refused(store, match)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", ""])
def test_an_array_that_leads_out_of_the_folder_is_refused_by_whoever_reads_the_header(store, name):
    edit_metadata(store, arrays={**store.metadata.arrays, name: store.metadata.arrays["x"]})
    with pytest.raises(UserError, match="leads out of the folder"):
        read_header(store.path)


def test_extra_files_are_left_alone(store):
    (store.path / "notes.txt").write_text("mine")
    LabelledGraphStore.open(store.path).verify()


def corrupt(path, rng):
    """Damage the file as disks, copies and people do."""
    content = bytearray(path.read_bytes())
    at, span = int(rng.integers(len(content))), int(rng.integers(1, 40))
    kind = rng.choice(["truncate", "flip", "zeros", "insert", "delete", "header", "empty", "remove", "swap", "digit"])
    match kind:
        case "truncate":
            del content[at:]
        case "flip":
            for position in rng.integers(len(content), size=3):
                content[position] ^= 1 << int(rng.integers(8))
        case "zeros":
            content[at : at + span] = bytes(len(content[at : at + span]))
        case "insert":
            content[at:at] = rng.bytes(span)
        case "delete":
            del content[at : at + span]
        case "header":  # where formats keep their promises
            content[int(rng.integers(min(128, len(content))))] = int(rng.integers(256))
        case "empty":
            content.clear()
        case "remove":
            path.unlink()
            return
        case "swap":
            content[:64], content[-64:] = content[-64:], content[:64]
        case "digit":
            places = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
            if places:
                content[int(rng.choice(places))] = int(rng.integers(48, 58))
    path.write_bytes(content)


def fuzz(tmp_path, seed):
    rng = np.random.default_rng(seed)
    store = write(tmp_path / "s", sparse_features=bool(seed % 2))
    target = store.path / rng.choice(sorted(path.name for path in store.path.iterdir()))
    before = target.read_bytes()
    corrupt(target, rng)
    outcome = opened(store.path)
    if isinstance(outcome, UserError):
        assert str(store.path) in outcome.message
        assert outcome.fix
    elif target.suffix == ".json":  # blanks do not matter, and who wrote it is not sealed
        assert outcome.metadata.model_copy(update={"created_by": store.metadata.created_by}) == store.metadata
    else:
        assert target.read_bytes() == before, f"seed {seed}: damage went unseen"
    shutil.rmtree(store.path)


def opened(path):
    """The verified store, or the error that a person would see."""
    try:
        store = LabelledGraphStore.open(path)
        store.verify()
    except UserError as error:
        return error
    return store


@pytest.mark.parametrize("seed", range(15))
def test_damaged_stores(tmp_path, seed):
    fuzz(tmp_path, seed)


@pytest.mark.slow
def test_damaged_stores_at_length(tmp_path):
    for seed in range(1000, 1400):
        fuzz(tmp_path, seed)
