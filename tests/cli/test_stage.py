"""`graphmill stage`: copies of several datasets, and a run that says which copy its ranks read."""

import json
import os
from pathlib import Path

import pytest

from graphmill.cluster.staging.dataset import Dataset
from graphmill.cluster.staging.stage import StagingError, refuse_too_large
from graphmill.tasks.node_classification.data.prepare import prepare


@pytest.fixture
def two(graphmill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two prepared datasets."""
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    names = ["one", "two"]
    for seed, name in enumerate(names):
        options = {"num_nodes": 60, "num_edges": 200, "features": 4, "seed": seed}
        prepare("synthetic/sbm", root=tmp_path / "data", options=options, save_as=name)
    return names


def test_several_datasets_are_copied(graphmill, two, tmp_path: Path):
    done = graphmill("stage", *two, two[0], "--to", "fast", "--json")
    assert done.code == 0, done.err
    copies = json.loads(done.out)
    assert [(Path(copy["source"]).name, copy["outcome"]) for copy in copies] == [(name, "copied") for name in two]
    again = graphmill("stage", *two, "--to", "fast", "--via", "scratch", "--json")
    assert [copy["outcome"] for copy in json.loads(again.out)] == ["reused", "reused"]


def test_nothing_is_copied_if_one_of_them_is_not_prepared(graphmill, two, tmp_path: Path):
    done = graphmill("stage", *two, "three", "--to", "fast")
    assert done.code == 2
    assert "three" in done.err
    assert not (tmp_path / "fast").exists()


def test_what_does_not_fit_together_is_refused_before_anything_is_copied(tmp_path: Path):
    half = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize * 2 // 3
    datasets = [Dataset(tmp_path, name, "0" * 32, {"x": half}, {}) for name in ("a", "b")]
    refuse_too_large(datasets[:1], tmp_path / "new" / "folder")
    with pytest.raises(StagingError, match=r"MiB free, and a, b need"):
        refuse_too_large(datasets, tmp_path / "new" / "folder")
    assert not (tmp_path / "new").exists()


@pytest.mark.distributed
def test_a_run_says_which_copy_it_read(graphmill, two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "toy.yaml").write_text(
        "name: toy\ndataset: {name: one}\nmodel: {hidden_channels: 4}\n"
        "train: {epochs: 1, batch_size: 30, num_neighbors: [2, 2], threads: 1, baselines: false}\n"
    )
    assert graphmill("train", "toy.yaml", "--run-id", "shared").code == 0
    (copy,) = json.loads(graphmill("stage", "one", "--to", "fast", "--json").out)
    monkeypatch.setenv("GRAPHMILL_STAGED_ROOT", str(tmp_path / "fast"))
    assert graphmill("train", "toy.yaml", "--run-id", "near").code == 0
    read = {run: json.loads(graphmill("inspect", run, "--json").out)["data_read"] for run in ("shared", "near")}
    assert list(read["shared"].values()) == [str(tmp_path / "data" / "one")]
    assert list(read["near"].values()) == [copy["to"]]
    assert copy["to"] in graphmill("inspect", "near").out.replace("\n", "").replace(" ", "")
