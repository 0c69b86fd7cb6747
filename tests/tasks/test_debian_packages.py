"""The embedded data set: the file that ships. How one is made and read: tests/tools/test_build_debian_packages.py."""

import hashlib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from graphmill.tasks.debian_packages import TEST, TRAIN, DebianPackages, read_compact

REFERENCE = Path(__file__).parents[3] / "shared/data/nodes/debian_packages.npz"
SUITES = ("bullseye", "bookworm", "trixie", "sid")


def words_of(data: DebianPackages, name: str) -> dict[str, int]:
    node = data.names.index(name)
    row = slice(int(data.x_indptr[node]), int(data.x_indptr[node + 1]))
    numbers, counts = data.x_indices[row].tolist(), data.x_counts[row].tolist()
    return {data.words[number]: count for number, count in zip(numbers, counts, strict=True)}


@pytest.fixture(scope="module")
def shipped_path() -> Path:
    path = resources.files("graphmill.tasks") / "debian-packages.npz"
    assert isinstance(path, Path)
    return path


@pytest.fixture(scope="module")
def shipped(shipped_path: Path) -> DebianPackages:
    return read_compact(shipped_path)


def test_shipped_counts_checksum_and_size(shipped: DebianPackages, shipped_path: Path) -> None:
    content = shipped_path.read_bytes()
    assert len(content) < 6_000_000
    assert hashlib.sha256(content[:-64]).hexdigest().encode() == content[-64:]
    assert content[-64:] == b"d02d7f2aac2852e3b853389bf0f9d5b52c410edb8b32f76ebffdbc17e1ff421c"
    assert (len(shipped.names), shipped.edge_index.shape, len(shipped.class_names)) == (93_649, (2, 590_978), 58)
    assert (shipped.num_words, shipped.x_indices.size) == (4_000, 2_401_095)
    assert np.bincount(shipped.split).tolist() == [58_653, 10_876, 24_120]
    assert np.bincount(shipped.edge_kind).tolist() == [1_680, 515_721, 41_610, 31_967]
    assert shipped.metadata["suites"] == list(SUITES)
    assert all(shipped.metadata["list_dates"][suite] for suite in SUITES)
    assert shipped.metadata["script_version"] == 1


def test_shipped_facts_that_anyone_can_look_up(shipped: DebianPackages) -> None:
    libc = shipped.names.index("libc6")
    assert shipped.class_names[shipped.labels[libc]] == "libs"
    assert np.bincount(shipped.edge_index[1]).argmax() == libc  # nothing is depended on more often
    bash = shipped.names.index("bash")
    assert ((shipped.edge_index == [[bash], [libc]]).all(axis=0)).sum() == 1
    assert shipped.class_names[shipped.labels[bash]] == "shells"
    assert shipped.split[bash] == TRAIN
    assert {"shell", "gnu"} <= set(words_of(shipped, "bash"))
    assert shipped.split[shipped.names.index("libcurl4t64")] == TEST  # the 64-bit time_t transition came with trixie


def test_shipped_rows_hold_words_and_say_nothing_of_this_machine(shipped: DebianPackages) -> None:
    assert (np.diff(shipped.x_indptr) == 0).sum() < 50
    assert shipped.x_counts.min() >= 1
    assert not any(sign in str(shipped.metadata) for sign in ("/", "http", ".org"))


def test_shipped_loads_with_numpy_alone(shipped_path: Path) -> None:
    read_compact(shipped_path)
    with np.load(shipped_path, allow_pickle=False) as members:
        assert members["names"].tobytes().decode().split("\n")[0] == "0ad"


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared reference data are not on this machine")
def test_shipped_is_like_the_reference(shipped: DebianPackages) -> None:
    with np.load(REFERENCE, allow_pickle=False) as reference:
        assert shipped.class_names == tuple(reference["class_names"].tolist())
        ours, theirs = (
            shipped.edge_index.shape[1] / len(shipped.names),
            reference["edge_index"].shape[1] / len(reference["y"]),
        )
        assert ours == pytest.approx(theirs, rel=0.15)
        shares = [reference[name].mean() for name in ("train_mask", "val_mask", "test_mask")]
        np.testing.assert_allclose(np.bincount(shipped.split) / len(shipped.names), shares, atol=0.03)
        frequencies = [np.bincount(labels, minlength=58) / len(labels) for labels in (shipped.labels, reference["y"])]
        np.testing.assert_allclose(*frequencies, atol=0.01)
