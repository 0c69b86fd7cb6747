"""An interrupted preparation goes on where it stopped and ends with the same bytes; nothing half-written opens."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from assignment_problems import as_the_seed_writes_it, contents, prepared
from command_line import start
from waiting import wait_until

from graphmill.base.errors import UserError
from graphmill.base.files import leftovers
from graphmill.graph.header import prepared_in
from graphmill.tasks.assignment.data.instance import NO_SEQUENCE
from graphmill.tasks.assignment.data.store import AssignmentStore
from graphmill.tasks.assignment.page.data import GENERATED

SMALL = {"sizes": (8, 40), "instances": 9, "frames": 4, "seed": 5}
WORK = ".mine.preparing"


class StoppedError(Exception):
    """What a test interrupts with."""


def interrupted(root: Path, monkeypatch, after: int, error: Exception, **options) -> None:
    """Prepare, and raise `error` while the instance number `after` is written: its costs are, the rest is not."""
    from graphmill.tasks.assignment.data import growing

    write, count = growing.GrowingArrays._write, [0]

    def failing(self, name, part):
        write(self, name, part)
        count[0] += name == "costs"
        if count[0] > after:
            raise error

    with monkeypatch.context() as patched:
        patched.setattr(growing.GrowingArrays, "_write", failing)
        with pytest.raises((StoppedError, UserError)) as stopped:
            prepared(root, **options)
    if isinstance(error, OSError):
        assert f"{after} instances are made and kept" in str(stopped.value)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupted_preparation_ends_with_the_same_bytes(tmp_path, monkeypatch, workers, caplog):
    whole = prepared(tmp_path / "whole", **SMALL, workers=2)
    root = tmp_path / "cut"
    for after in (0, 7, 30, 100):
        interrupted(root, monkeypatch, after, StoppedError(), **SMALL, workers=workers)
        assert not (root / "mine").exists()
        assert list(prepared_in(root)) == []
        kept = json.loads((root / WORK / "journal.json").read_text())
        assert kept["taken"] == kept["written"]
    again = prepared(root, **SMALL, workers=workers)
    assert "going on with an interrupted preparation" in caplog.text
    assert contents(again.path) == contents(whole.path)
    assert [path.name for path in root.iterdir()] == ["mine"]
    again.verify()


def test_other_options_do_not_go_on_with_it(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, 20, StoppedError(), **SMALL)
    with pytest.raises(UserError, match="other options was interrupted, when 20 of 180"):
        prepared(tmp_path, **{**SMALL, "seed": 6})
    assert (tmp_path / WORK).exists()
    prepared(tmp_path, **{**SMALL, "seed": 6}, force=True).verify()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_was_lost_is_made_again(tmp_path, monkeypatch, caplog):
    interrupted(tmp_path / "a", monkeypatch, 20, StoppedError(), **SMALL)
    (tmp_path / "a" / WORK / "arrays" / "costs.npy").write_bytes(b"")
    whole = prepared(tmp_path / "b", **SMALL)
    assert contents(prepared(tmp_path / "a", **SMALL).path) == contents(whole.path)
    assert "begun anew" in caplog.text


def test_prepared_already(tmp_path, caplog):
    store = prepared(tmp_path, **SMALL)
    again = prepared(tmp_path, **SMALL, workers=1)
    assert "prepared already" in caplog.text
    assert again.metadata == store.metadata
    for other in ({"seed": 6}, {"split_seed": 3}, {"dtype": "float32"}):
        with pytest.raises(UserError, match="holds a prepared dataset"):
            prepared(tmp_path, **{**SMALL, **other})
    assert prepared(tmp_path, **{**SMALL, "seed": 6}, force=True).metadata.checksum != store.metadata.checksum


@pytest.mark.slow
def test_a_killed_preparation_goes_on(tmp_path, source_environ):
    """SIGKILL at random moments, until it is done; then the bytes of one that was never killed."""
    words = ["prepare", GENERATED, "-o", "sizes=[8,40]", "-o", "instances=9", "-o", "frames=4", "-o", "seed=5"]
    words += ["--as", "mine", "--dataset-root", str(tmp_path / "killed")]
    # Kept after every instance, so that there is something to lose.
    slow = {**source_environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{source_environ.get('PYTHONPATH', '')}"}
    (tmp_path / "sitecustomize.py").write_text(SLOWLY)
    rng, seen = random.Random(3), []
    for _ in range(4):
        process = start(slow, tmp_path, *words)
        before = _taken(tmp_path)
        wait_until(
            lambda before=before: _taken(tmp_path) > before or (tmp_path / "killed" / "mine").exists(), "progress"
        )
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.communicate()
        seen.append(_taken(tmp_path))
        assert not (tmp_path / "killed" / "mine").exists()
    assert seen == sorted(set(seen)), "each went on where the one before was killed"
    process = start(source_environ, tmp_path, *words)
    assert process.wait() == 0, process.stderr.read()
    process.communicate()
    assert contents(tmp_path / "killed" / "mine") == contents(prepared(tmp_path / "whole", **SMALL).path)
    assert leftovers(tmp_path) == []
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["mine"]


SLOWLY = """
import sys, time
if sys.argv[:1] == ["-c"]:
    from graphmill.tasks.assignment.data import growing
    growing._KEEP_EVERY_S = 0.0
    add = growing.GrowingArrays.add
    def slowly(self, *arguments, **named):
        add(self, *arguments, **named)
        time.sleep(0.02)
    growing.GrowingArrays.add = slowly
"""


def _taken(folder: Path) -> int:
    try:
        return json.loads((folder / "killed" / WORK / "journal.json").read_text())["taken"]
    except FileNotFoundError:
        return 0


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = ["graphmill", *sys.argv[2:]]
from graphmill.cli import main
main()
"""


def test_a_full_disk_loses_nothing(tmp_path, source_environ):
    """No file may grow beyond 60 kB: the costs do. With room for them it goes on."""
    words = ["prepare", GENERATED, "-o", "sizes=[8,40]", "-o", "instances=9", "-o", "frames=4", "-o", "seed=5"]
    words += ["--as", "mine", "--dataset-root", str(tmp_path / "full")]
    command = [sys.executable, "-c", LIMITED, "60000", *words]
    failed = subprocess.run(command, env=source_environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert failed.returncode == 2, failed.stderr
    assert "cannot be written: File too large" in failed.stderr
    assert "instances are made and kept" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "full" / "mine").exists()
    kept = json.loads((tmp_path / "full" / WORK / "journal.json").read_text())
    assert kept["written"] > 20
    again = prepared(tmp_path / "full", **SMALL)
    assert contents(again.path) == contents(prepared(tmp_path / "whole", **SMALL).path)


def test_two_at_once(tmp_path, monkeypatch):
    from graphmill.record.lock import hold

    interrupted(tmp_path, monkeypatch, 20, StoppedError(), **SMALL)
    with hold(tmp_path / WORK), pytest.raises(UserError, match="is being prepared by process"):
        prepared(tmp_path, **SMALL)
    prepared(tmp_path, **SMALL).verify()


def test_shards_are_merged_and_duplicates_left_out(tmp_path, small, caplog):
    parts = [tmp_path / "one.h5", tmp_path / "two.h5"]
    as_the_seed_writes_it(parts[0], small, list(range(60)))
    as_the_seed_writes_it(parts[1], small, list(range(40, 100)))
    other = prepared(tmp_path, sizes=(5,), families=("tie",), instances=4, name="other")
    merged = prepared(tmp_path, *parts, other.path, name="merged")
    merged.verify()
    seen = {tuple(each) for each in small.array("fingerprints")[:100].tolist()}
    assert len(merged) == len(seen) + 4
    assert merged.metadata.num_duplicates == 120 - len(seen)
    assert "duplicates left out" in caplog.text
    for number in range(40):
        assert np.array_equal(merged.cost(number), small.cost(number))
        np.testing.assert_allclose(
            merged.u(number), small.u(number), rtol=0, atol=1e-12 * np.abs(small.u(number)).max()
        )
    kept = prepared(tmp_path, *parts, name="kept", duplicates="keep")
    assert len(kept) == 120


def test_a_killed_merge_loses_nothing(tmp_path, small, monkeypatch):
    parts = [tmp_path / "one.h5", tmp_path / "two.h5"]
    as_the_seed_writes_it(parts[0], small, list(range(60)))
    as_the_seed_writes_it(parts[1], small, list(range(40, 100)))
    whole = prepared(tmp_path / "whole", *parts)
    before = {path: path.read_bytes() for path in parts}
    for after in (10, 60, 75):
        from graphmill.tasks.assignment.data import growing

        add, count = growing.GrowingArrays.add, [0]

        def failing(self, found, *, drops_duplicates, add=add, count=count, after=after):
            add(self, found, drops_duplicates=drops_duplicates)
            count[0] += 1
            if self.journal.taken >= after:
                raise StoppedError

        with monkeypatch.context() as patched:
            patched.setattr(growing.GrowingArrays, "add", failing)
            with pytest.raises(StoppedError):
                prepared(tmp_path / "cut", *parts)
        assert not (tmp_path / "cut" / "mine").exists()
    assert contents(prepared(tmp_path / "cut", *parts).path) == contents(whole.path)
    assert {path: path.read_bytes() for path in parts} == before


def test_changed_files_are_read_anew(tmp_path, small, monkeypatch, caplog):
    part = tmp_path / "one.h5"
    as_the_seed_writes_it(part, small, list(range(30)))
    from graphmill.tasks.assignment.data import growing

    add = growing.GrowingArrays.add

    def failing(self, found, *, drops_duplicates):
        add(self, found, drops_duplicates=drops_duplicates)
        if self.journal.taken >= 10:
            raise StoppedError

    with monkeypatch.context() as patched:
        patched.setattr(growing.GrowingArrays, "add", failing)
        with pytest.raises(StoppedError):
            prepared(tmp_path, part)
    as_the_seed_writes_it(part, small, list(range(100, 120)))
    found = prepared(tmp_path, part)
    assert "files that have changed" in caplog.text
    assert found.tag(0) == small.tag(100)


def test_splits_of_files_and_of_prepared_data_are_kept(tmp_path, small):
    folder = tmp_path / "h5"
    folder.mkdir()
    for split, ids in (("train", range(20)), ("val", range(20, 30)), ("test", range(30, 45))):
        as_the_seed_writes_it(folder / f"{split}.h5", small, list(ids))
    store = prepared(tmp_path, folder)
    known = {tuple(each): number for number, each in enumerate(small.array("fingerprints").tolist())}
    for split, ids in (("train", range(20)), ("val", range(20, 30)), ("test", range(30, 45))):
        found = {known[tuple(each)] for each in store.array("fingerprints")[store.instances(split)].tolist()}
        assert found <= set(ids)
    assert store.metadata.split == "as given"
    again = prepared(tmp_path, store.path, name="again")
    assert {split: again.instances(split).tolist() for split in ("train", "val", "test")} == {
        split: store.instances(split).tolist() for split in ("train", "val", "test")
    }
    drawn = prepared(tmp_path, store.path, name="drawn", split_seed=42)
    assert "seed 42" in drawn.metadata.split
    assert drawn.instances("test").tolist() != store.instances("test").tolist()


def test_a_store_that_is_replaced_may_be_its_own_source(tmp_path, small):
    shutil.copytree(small.path, tmp_path / "mine")
    again = prepared(tmp_path, tmp_path / "mine", force=True, dtype="float32")
    again.verify()
    assert again.metadata.dtype == "float32"
    assert len(again) <= len(small)
    assert AssignmentStore.open(tmp_path / "mine").metadata == again.metadata


def test_a_request_that_cannot_be_met(tmp_path):
    with pytest.raises(UserError, match="needs --from"):
        prepared_without_source(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        prepared(tmp_path, tmp_path / "absent.h5")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no assignment problems"):
        prepared(tmp_path, tmp_path / "empty")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def prepared_without_source(root):
    from graphmill.tasks.assignment.data.prepare import prepare_requested
    from graphmill.tasks.assignment.page.data import AssignmentPrepareOptions
    from graphmill.tasks.stores import Preparation

    return prepare_requested(Preparation("assignment/orlib", root, AssignmentPrepareOptions()))


@pytest.mark.parametrize("split_seed", [None, 3])
def test_frames_of_a_sequence_are_in_one_split(tmp_path, split_seed):
    """Frames that follow each other are nearly the same matrix: one in train would be known in test."""
    store = prepared(tmp_path, sizes=(8, 12), instances=9, frames=6, seed=5, split_seed=split_seed, workers=1)
    split_of = {i: split for split in ("train", "val", "test") for i in store.array(split).tolist()}
    found: dict[int, set[str]] = {}
    for i, sequence in enumerate(store.array("sequences").tolist()):
        if sequence != NO_SEQUENCE:
            found.setdefault(sequence, set()).add(split_of[i])
    assert len(found) > 3
    assert {len(splits) for splits in found.values()} == {1}
    assert len(set().union(*found.values())) > 1, "all sequences in one split show nothing"
