"""Small files in each real layout (`tests/data`): which task each is, and that it is read."""

import gzip
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from graphmill.spec.kinds import all_kinds
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.recognise import Certainty, looks_of, recognised

DATA = Path(__file__).parents[1] / "data"
NAMED = DATA / "named"
SAMPLES = sorted(
    path for kind in all_kinds() for path in (DATA / kind.name).glob("*") if not path.name.startswith("adjacency")
)
PUBLISHED = {str(folder.relative_to(NAMED)): folder for folder in sorted(NAMED.glob("*")) + sorted(NAMED.glob("*/*"))
             if folder.is_dir() and any(not each.is_dir() or each.name == "raw" for each in folder.iterdir())
             and folder.name not in ("raw", "split")}  # fmt: skip
OPTIONS = {"crysys.txt": ["-o", "unlabelled=benign"]}


def ids(path):
    return f"{path.parent.name}/{path.name}"


def prepare(graphmill, name, path, root, *more, of=None):
    return graphmill("prepare", name, "--from", path, "--dataset-root", root, *options_of(of or path), *more)


def options_of(path):
    if path.parent.name == "intrusion":
        return ["-o", "window=50", "-o", "stride=50", *OPTIONS.get(path.name, [])]
    return []


def test_every_task_has_samples():
    assert {path.parent.name for path in SAMPLES} == {kind.name for kind in all_kinds()}


@pytest.mark.parametrize("path", SAMPLES, ids=ids)
def test_each_sample_is_laid_before_all_tasks_and_known_as_its_own(path):
    looks = {kind.name: look for kind, look in looks_of(path)}
    own = looks.pop(path.parent.name)
    assert own.certainty > Certainty.WEAK
    assert own.reason
    assert all(other.certainty < own.certainty for other in looks.values()), looks
    kind, reason = recognised(path)
    assert kind.name == path.parent.name
    assert reason == own.reason


@pytest.mark.parametrize("path", SAMPLES, ids=ids)
def test_each_sample_is_prepared_without_its_task(path, tmp_path, graphmill):
    result = prepare(graphmill, "mine", path, tmp_path)
    assert result.code == 0, result.err


def with_more(path, to):
    """A copy with something that no reader knows: a key, a column, a channel, a field, a file."""
    if path.is_dir():
        shutil.copytree(path, to)
        table = next(iter(sorted(to.glob("nodes.csv"))), None)
        if table is not None:
            lines = table.read_text().splitlines()
            table.write_text(
                "".join(f"{line},{'zzz' if number == 0 else 'word'}\n" for number, line in enumerate(lines))
            )
        elif (to / "desc.json").is_file():
            add_channel(to)
        else:
            (to / "zzz.txt").write_text("1\n")
            (to / "MADE_zzz_attributes.txt").write_text("1\n")
    elif path.suffix == ".npz":
        with np.load(path) as arrays:
            np.savez(to, **arrays, zzz=np.arange(3))
    elif path.suffix == ".h5":
        shutil.copy(path, to)
        with h5py.File(to, "a") as file:
            file["zzz"] = np.arange(12)
    elif path.suffix == ".csv" and path.parent.name == "traffic":
        lines = path.read_text().splitlines()
        to.write_text("".join(f"{line},{'zzz' if number == 0 else number}\n" for number, line in enumerate(lines)))
    else:
        separator = "," if path.suffix == ".csv" else " "
        to.write_text("".join(f"{line}{separator}7\n" for line in path.read_text().splitlines()))
    return to


def add_channel(folder):
    said = json.loads((folder / "desc.json").read_text())
    steps, sensors, channels = said["shape"]
    values = np.fromfile(folder / "data.dat", "<f4").reshape(steps, sensors, channels)
    np.concatenate([values, np.ones((steps, sensors, 1), "<f4")], axis=2).tofile(folder / "data.dat")
    said["shape"][2] += 1
    said["feature_description"].append("zzz")
    (folder / "desc.json").write_text(json.dumps(said))


@pytest.mark.parametrize("path", [path for path in SAMPLES if path.suffix != ".mtx"], ids=ids)
def test_what_a_source_carries_is_used_named_or_refused(path, tmp_path, graphmill):
    task = ["--task", path.parent.name]
    as_it_is = prepare(graphmill, "mine", path, tmp_path / "one", *task, "--json")
    more = with_more(path, tmp_path / path.name)
    changed = graphmill(
        "prepare", "mine", "--from", more, "--dataset-root", tmp_path / "two", *options_of(path), *task, "--json"
    )
    if changed.code:
        assert "→" in changed.err
        return
    stored = [json.loads(each.out)["checksum"] for each in (as_it_is, changed)]
    added = [each.name for each in more.glob("*zzz*")] if more.is_dir() else []
    named = [
        name for line in changed.err.splitlines() if "not used" in line for name in added or ["zzz"] if name in line
    ]
    assert stored[0] != stored[1] or len(named) == max(1, len(added)), changed.err


@pytest.mark.parametrize("name", PUBLISHED)
def test_files_of_a_named_set_are_prepared_by_its_name(name, tmp_path, graphmill):
    result = graphmill("prepare", name, "--from", PUBLISHED[name], "--dataset-root", tmp_path)
    assert result.code == 0, result.err
    assert "not used" not in result.err


@pytest.mark.parametrize("name", [name for name in PUBLISHED if not name.startswith("planetoid")])
def test_what_the_files_of_a_named_set_carry_besides_is_named(name, tmp_path, graphmill):
    folder = tmp_path / "more"
    shutil.copytree(PUBLISHED[name], folder)
    archive = next((path for path in sorted(folder.rglob("*.npz")) if "graph" not in path.name), None)
    if archive is None:
        shutil.copy(next(folder.rglob("train.csv.gz")), folder / "raw/zzz.csv.gz")
    else:
        with np.load(archive) as arrays:
            np.savez(archive, **arrays, zzz=np.arange(3))
    result = graphmill("prepare", name, "--from", folder, "--dataset-root", tmp_path)
    assert result.code == 0, result.err
    assert "not used: " in result.err
    assert "zzz" in result.err


def test_a_heterogeneous_set_of_ogb_is_known_under_any_name(tmp_path, graphmill):
    result = graphmill("prepare", "mine", "--from", NAMED / "ogbn-mag", "--dataset-root", tmp_path, "--json")
    assert result.code == 0, result.err
    store = LabelledGraphStore.open(tmp_path / "mine")
    assert store.metadata.node_type_names == ("author", "institution", "paper")
    assert store.metadata.relation_names == (
        "author:affiliated_with:institution",
        "author:writes:paper",
        "paper:cites:paper",
    )
    assert store.metadata.splits == {"train": 12, "val": 9, "test": 9, "none": 16}
    papers = np.asarray(store.labels)[16:]
    assert papers.tolist() == [number % 3 for number in range(30)]


def test_a_set_of_ogb_with_several_labels_and_features_of_edges_alone(tmp_path, graphmill):
    folder = NAMED / "ogbn-proteins/raw"
    result = graphmill("prepare", "ogbn-proteins", "--from", folder.parent, "--dataset-root", tmp_path)
    assert "y has 5 columns of 0 and 1" in result.err
    assert "the mean of those of its edges" in result.err
    store = LabelledGraphStore.open(tmp_path / "ogbn-proteins")
    edges, of_edges, labels = (
        np.loadtxt(folder / f"{name}.csv.gz", delimiter=",", ndmin=2) for name in ("edge", "edge-feat", "node-label")
    )
    assert np.array_equal(store.labels, labels)
    assert store.metadata.is_symmetric
    assert len(store.metadata.edge_features) == 8
    for node in range(30):
        ends = [row for end in (0, 1) for row in of_edges[edges[:, end] == node]]
        np.testing.assert_allclose(store.features.x[node], np.mean(ends, axis=0) if ends else np.zeros(8), rtol=1e-6)


def test_labels_that_are_no_class_are_refused_where_they_are(tmp_path, graphmill):
    shutil.copytree(NAMED / "ogbn-proteins", tmp_path / "proteins")
    path = tmp_path / "proteins/raw/node-label.csv.gz"
    path.write_bytes(gzip.compress(b"0,1,1\n" * 29 + b"0,1,3\n"))
    result = graphmill("prepare", "ogbn-proteins", "--from", tmp_path / "proteins")
    assert result.code == 2
    assert "3 columns, a label each, and row 29, column 2 has 3.0" in result.err


def test_a_table_of_numbers_alone_is_a_question(tmp_path, graphmill):
    (tmp_path / "v.csv").write_text("59.1,49.9\n51.1,54.7\n" * 300)
    result = graphmill("prepare", "v", "--from", "v.csv")
    assert result.code == 2
    assert "--task traffic" in result.err


def test_two_tasks_that_are_equally_sure_are_a_question(tmp_path, graphmill):
    folder = tmp_path / "both"
    folder.mkdir()
    shutil.copy(DATA / "traffic/frame.h5", folder)
    shutil.copy(DATA / "assignment/records.h5", folder)
    result = graphmill("prepare", "both", "--from", folder)
    assert result.code == 2
    assert "--task traffic or --task assignment" in result.err


def test_errors_of_a_guessed_task_say_so_first_and_those_of_a_named_one_do_not(tmp_path, graphmill):
    (tmp_path / "t.csv").write_text("time,a\n2024-03-01 00:00:00,1\n2024-03-01 00:05:00,x\n")
    guessed = graphmill("prepare", "t", "--from", "t.csv", "--dataset-root", tmp_path / "data")
    named = graphmill("prepare", "t", "--from", "t.csv", "--dataset-root", tmp_path / "data", "--task", "traffic")
    assert "error: read as traffic because" in guessed.err
    assert "read as" not in named.err
    assert "line 3: 'x'" in named.err
