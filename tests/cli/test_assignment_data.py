"""Assignment problems by command: generated, inspected, written as HDF5, merged, checked record by record."""

import json
import shutil

import h5py
import pytest
from command_line import run_in

SMALL = ("-o", "sizes=[6,9]", "-o", "instances=8", "-o", "frames=4", "--dataset-root", "data")


def made(graphmill, *more):
    return graphmill("prepare", "synthetic/assignment", *SMALL, *more)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with prepared problems, and the same as HDF5."""
    folder = tmp_path_factory.mktemp("written")
    run_in(folder, "prepare", "synthetic/assignment", *SMALL)
    run_in(folder, "convert", "synthetic/assignment", "--output", "a.h5", "--dataset-root", "data")
    return folder


@pytest.fixture
def here(written, tmp_path):
    """A copy of it, to be changed, where commands are run."""
    return shutil.copytree(written, tmp_path, dirs_exist_ok=True)


def test_from_generator_to_hdf5_and_back(graphmill, tmp_path):
    prepared = made(graphmill, "--split-seed", "42")
    assert prepared.code == 0, prepared.err
    assert "160" in prepared.out
    assert "seed 42" in prepared.out
    assert made(graphmill, "--split-seed", "42").code == 0
    assert made(graphmill, "--split-seed", "43").code == 2
    shown = graphmill("inspect", "synthetic/assignment", "--dataset-root", "data", "--check")
    assert shown.code == 0, shown.err
    assert "checksums and structure are as they should be" in shown.out
    facts = json.loads(graphmill("inspect", "synthetic/assignment", "--dataset-root", "data", "--json").out)
    assert facts["num_instances"] == 160
    assert len(facts["table"]) == 20
    assert facts["table"][0]["size"] == 6
    assert {row["family"] for row in facts["table"]} >= {"uniform", "tracking", "transportation"}
    written = graphmill("convert", "synthetic/assignment", "--output", "h5", "--dataset-root", "data", "--json")
    assert written.code == 0, written.err
    files = json.loads(written.out)["written"]
    assert files == ["h5/train.h5", "h5/val.h5", "h5/test.h5"]
    again = graphmill("prepare", "again", "--from", "h5", "--dataset-root", "data", "--json")
    assert again.code == 0, again.err
    found = json.loads(again.out)
    assert found["kind"] == "assignment"
    assert found["num_train"] == facts["num_train"]
    listed = json.loads(graphmill("datasets", "--dataset-root", "data", "--json").out)["datasets"]
    assert {row["name"]: row["sizes"] for row in listed}["again"] == {
        "instances": found["num_instances"],
        "sizes": 2,
        "families": 10,
    }


@pytest.mark.slow
def test_shards_are_merged(graphmill):
    made(graphmill)
    graphmill("convert", "synthetic/assignment", "--output", "a.h5", "--dataset-root", "data")
    merged = graphmill(
        *("prepare", "merged", "--from", "a.h5", "--from", "data/synthetic/assignment", "--from", "a.h5"),
        *("--dataset-root", "data", "--json"),
    )
    assert merged.code == 0, merged.err
    found = json.loads(merged.out)
    assert found["num_instances"] + found["num_duplicates"] == 480
    assert found["num_duplicates"] >= 320
    refused = graphmill("prepare", "n", "--from", "x", "--from", "y", "--task", "traffic", "--dataset-root", "data")
    assert refused.code == 2
    assert "--from is given 2 times" in refused.err


def test_files_are_checked_record_by_record(graphmill, here):
    whole = graphmill("inspect", "a.h5", "--check")
    assert whole.code == 0, whole.err
    assert "every record is as it should be" in whole.out
    with h5py.File("a.h5", "r+") as file:
        file["cost"][3] = 99.0
        file["n"][5] = 2
    checked = graphmill("inspect", "a.h5", "--check")
    assert checked.code == 1
    assert "a.h5, record 3: its cost is 99.0" in checked.out
    assert "a.h5, record 5: n is 2" in checked.out
    facts = json.loads(graphmill("inspect", "a.h5", "--check", "--json").out)
    assert len(facts["problems"]) == 2
    assert sum(row["instances"] for row in facts["table"]) == 160
    refused = graphmill("prepare", "mine", "--from", "a.h5", "--dataset-root", "data")
    assert (refused.code, "record 3" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("inspect", "toy.txt"), "no task looks into such files"),
        (("convert", "absent", "--output", "h5"), "is not prepared"),
        (("convert", "synthetic/assignment", "--output", "h5", "--to", "hdf"), "did you mean 'hdf5'"),
        (("prepare", "synthetic/assignment", "-o", "families=[unifrom]", "--force"), "uniform"),
        (("prepare", "synthetic/assignment", "-o", "instances_map=[512]", "--force"), "instances_map"),
        (("prepare", "mine", "--from", "cut.h5"), "cut.h5 cannot be read as HDF5"),
    ],
)
def test_what_is_refused(graphmill, here, words, message):
    (here / "toy.txt").write_text("text")
    content = (here / "a.h5").read_bytes()
    (here / "cut.h5").write_bytes(content[: len(content) // 2])
    refused = graphmill(*words, "--dataset-root", "data")
    assert refused.code == 2
    assert message in refused.err
