"""Small files in each real layout (`tests/data`): which task each is, and that it is read."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from graphmill.spec.kinds import all_kinds
from graphmill.tasks.recognise import Certainty, looks_of, recognised

DATA = Path(__file__).parents[1] / "data"
NAMED = DATA / "named"
SAMPLES = sorted(
    path for kind in all_kinds() for path in (DATA / kind.name).glob("*") if not path.name.startswith("adjacency")
)
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
    assert stored[0] != stored[1] or ("zzz" in changed.err and "not used" in changed.err), changed.err


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
