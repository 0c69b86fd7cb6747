"""Checkpoints: what is saved comes back to the bit, and no damage goes unnoticed."""

import errno
import json
import os
import pickle
import re
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_checkpoints import state_of, weights_at

from graphmill.base.errors import UserError
from graphmill.record.manifest import Manifest, file_checksum
from graphmill.sync.group import Group
from graphmill.train.checkpoint import CheckpointStore, ResumeState

SOURCE = Path(__file__).parents[2] / "src" / "graphmill"


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def folder_of(store: CheckpointStore, steps_done: int) -> Path:
    return store.folder / f"step_{steps_done:010d}"


def save(store: CheckpointStore, state, *, keep: bool = False) -> None:
    store.save(weights_at(state.position.steps_done), state, parameter_hash=0xABC, keep=keep)


def test_what_is_saved_comes_back(store, make_state, said):
    state = make_state(12, best=9)
    save(store, state)
    assert sorted(path.name for path in store.folder.iterdir()) == ["step_0000000012"]
    assert sorted(path.name for path in folder_of(store, 12).iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "rank_0.safetensors",
    ]
    manifest = store.latest(said[1])
    assert (manifest.steps_done, manifest.parameter_hash, manifest.keep) == (12, "0000000000000abc", False)
    loaded = store.load(12)
    assert same(loaded.tensors, state.tensors)
    assert loaded.position == state.position
    weights = store.load_weights(12)
    assert same(weights.tensors, weights_at(state.position.steps_done).tensors)
    assert weights.origin == weights_at(state.position.steps_done).origin
    assert said[0] == []


class PowerCut:
    """What would be on disk after a power cut: contents and names as they were when they were last fsynced."""

    def __init__(self, monkeypatch) -> None:
        self.contents: dict[int, bytes] = {}  # by inode: a rename changes no content
        self.names: dict[Path, set[str]] = {}
        self.renamed: list[tuple[Path, Path, set[str]]] = []  # from, to, and which files of it were durable by then
        fsync = os.fsync

        def noted(fd: int) -> None:
            fsync(fd)
            path = Path(f"/proc/self/fd/{fd}").readlink()
            if path.is_dir():
                self.names[path] = {child.name for child in path.iterdir()}
            else:
                self.contents[path.stat().st_ino] = path.read_bytes()

        def noting(rename):
            def renaming(source, target, **options) -> None:
                if Path(source).is_dir():
                    self.renamed.append((Path(source), Path(target), self.durable(Path(source))))
                rename(source, target, **options)

            return renaming

        monkeypatch.setattr(os, "fsync", noted)
        monkeypatch.setattr(os, "rename", noting(os.rename))
        monkeypatch.setattr(os, "replace", noting(os.replace))

    def durable(self, folder: Path) -> set[str]:
        """The files of a folder whose present content, and whose name, would be there."""
        return {
            path.name
            for path in folder.iterdir()
            if self.contents.get(path.stat().st_ino) == path.read_bytes() and path.name in self.names.get(folder, ())
        }


def test_a_checkpoint_has_its_name_only_when_all_of_it_is_durable(store, make_state, monkeypatch):
    """Invariant 7: contents, then the manifest, then the name, then the name's own durability."""
    disk = PowerCut(monkeypatch)
    save(store, make_state(12))
    final = folder_of(store, 12)
    files = {"manifest.json", "model.safetensors", "rank_0.safetensors"}
    assert [(to, durable) for _, to, durable in disk.renamed] == [(final, files)]
    assert {path.name for path in final.iterdir()} == files
    assert final.name in disk.names[store.folder], "the checkpoint's name"
    assert store.folder.name in disk.names[store.folder.parent], "the name of the folder of checkpoints"


def test_a_disk_that_takes_no_more_is_an_os_error_that_names_the_file(store, make_state):
    """The worker tells those in a sentence; safetensors has an exception of its own. A limit stands for the disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(OSError, match="safetensors") as caught:
            save(store, make_state(12))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert not folder_of(store, 12).exists()


def test_the_same_state_makes_the_same_bytes(store, make_state, tmp_path):
    save(store, make_state(3))
    first = {path.name: path.read_bytes() for path in folder_of(store, 3).iterdir()}
    save(store, make_state(3))
    assert {path.name: path.read_bytes() for path in folder_of(store, 3).iterdir()} == first
    assert [path.name for path in store.folder.iterdir()] == ["step_0000000003"]


def test_each_rank_gets_its_own_back(pair, save_pair, make_state, said):
    save_pair(5)
    assert pair[0].latest(said[1]).world_size == 2
    for rank, store in enumerate(pair):
        loaded, saved = store.load(5), make_state(5, rank=rank)
        assert same(loaded.tensors, saved.tensors)
        assert loaded.position == saved.position, "its own sum of losses, too"
        assert same(store.load_weights(5).tensors, weights_at(5).tensors)


def test_the_latest_is_read_from_manifests_not_from_times_or_order(store, make_state, said):
    for steps in (30, 2, 110):
        save(store, make_state(steps))
    (folder_of(store, 2) / "model.safetensors").touch()
    assert store.latest(said[1]).steps_done == 110


def test_there_is_none(store, said):
    assert store.latest(said[1]) is None
    store.folder.mkdir()
    assert store.latest(said[1]) is None
    assert said[0] == []


@pytest.mark.parametrize("suffix", [".making", ".removing"])
def test_half_made_and_half_removed_ones_do_not_count(store, make_state, said, suffix):
    save(store, make_state(5))
    hidden = store.folder / f".step_0000000009{suffix}"
    shutil.copytree(folder_of(store, 5), hidden)
    assert store.latest(said[1]).steps_done == 5
    assert said[0] == [], "what a killed writer leaves is no damage"
    store.remove_leftovers()
    assert not hidden.exists()
    assert store.latest(said[1]).steps_done == 5


@pytest.mark.parametrize("name", [".step_0000000002.mine", ".step_0000000002"])
def test_what_we_did_not_write_is_no_leftover(store, make_state, name):
    save(store, make_state(5))
    kept = store.folder / name / "keep"
    kept.parent.mkdir()
    kept.write_text("of the user")
    store.remove_leftovers()
    assert kept.read_text() == "of the user"


def test_one_that_was_about_to_be_replaced_is_put_back(store, make_state, said):
    save(store, make_state(5))
    hidden = store.folder / ".step_0000000005.replaced"
    folder_of(store, 5).rename(hidden)
    assert store.latest(said[1]) is None
    store.remove_leftovers()
    assert store.latest(said[1]).steps_done == 5
    shutil.copytree(folder_of(store, 5), hidden)
    store.remove_leftovers()
    assert not hidden.exists()


def test_pruning_keeps_what_is_needed_and_what_is_kept_for_good(store, make_state):
    for steps in range(1, 8):
        save(store, make_state(steps), keep=steps == 4)
    store.prune([7, 2])
    assert sorted(path.name for path in store.folder.iterdir()) == [f"step_{steps:010d}" for steps in (2, 4, 7)]


def flip(path: Path, place: float, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[min(int(place * len(content)), len(content) - 1)] ^= 1 << bit
    path.write_bytes(content)


def restore(store: CheckpointStore, steps: int) -> ResumeState:
    """What a rank reads when it resumes."""
    store.load_weights(steps)
    return store.load(steps)


FILES = ("model.safetensors", "rank_0.safetensors", "manifest.json")
DAMAGE = {
    "flipped": lambda path: flip(path, 0.7, 3),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "emptied": lambda path: path.write_bytes(b""),
    "removed": Path.unlink,
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "foreign": lambda path: path.write_bytes((path.parents[1] / "step_0000000010" / path.name).read_bytes()),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_said_and_passed_over(store, make_state, said, name, damage):
    save(store, make_state(10))
    save(store, make_state(20))
    DAMAGE[damage](folder_of(store, 20) / name)
    told, report = said
    assert store.latest(report).steps_done == 10
    assert [place for place, _ in told] == ["step_0000000020"]
    assert name in told[0][1]
    with pytest.raises(UserError, match=re.escape(name)) as refused:
        restore(store, 20)
    assert "step_0000000020" in refused.value.message
    assert f"--resume {store.folder.parent}" in refused.value.fix


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(FILES), place=st.floats(0, 1), bit=st.integers(0, 7))
def test_no_flipped_bit_goes_unnoticed(store, make_state, name, place, bit):
    """In a manifest a flip may change a blank into something else that means the same; nothing else may pass."""
    if not folder_of(store, 10).exists():
        save(store, make_state(10, best=4))
    path = folder_of(store, 10) / name
    whole, expected = path.read_bytes(), Manifest.read(folder_of(store, 10))
    flip(path, place, bit)
    found = store.latest(lambda *_: None)
    path.write_bytes(whole)
    assert found is None or (name == "manifest.json" and found == expected)


def test_damage_to_another_ranks_file_is_found_by_rank_0(pair, save_pair, said):
    save_pair(4)
    save_pair(8)
    flip(folder_of(pair[0], 8) / "rank_1.safetensors", 0.5, 0)
    assert pair[0].latest(said[1]).steps_done == 4
    assert said[0][0][1] == "rank_1.safetensors does not match its checksum"


def test_when_all_are_damaged_there_is_none(store, make_state, said):
    for steps in (1, 2):
        save(store, make_state(steps))
        (folder_of(store, steps) / "model.safetensors").unlink()
    assert store.latest(said[1]) is None
    assert [name for name, _ in said[0]] == ["step_0000000002", "step_0000000001"]


def test_one_under_another_name_is_damaged(store, make_state, said):
    save(store, make_state(5))
    folder_of(store, 5).rename(folder_of(store, 6))
    assert store.latest(said[1]) is None
    assert said[0] == [("step_0000000006", "manifest.json is damaged: it is that of step 5")]


def test_another_plans_checkpoint_is_refused(store, make_state, said):
    save(store, make_state(5))
    other = CheckpointStore(store.folder, "anotherhash", store.group)
    for read in (lambda: other.latest(said[1]), lambda: other.load(5), lambda: other.load_weights(5)):
        with pytest.raises(UserError, match="written by another plan"):
            read()


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_gets_what_the_writers_had_in_common(pair, save_pair, ranks):
    """The mean of what differed by rank; the sum of what both had added up, once."""
    save_pair(5)
    both = [state_of(5, rank=rank) for rank in (0, 1)]
    groups = [Group(rank, ranks, torch.device("cpu")) for rank in range(ranks)]
    loaded = [CheckpointStore(pair[0].folder, "planhash", group).load(5) for group in groups]
    for name, one in both[0].tensors.items():
        other = both[1].tensors[name]
        wanted = (one.double() + other.double()).div(2).to(one.dtype) if one.dim() else torch.maximum(one, other)
        assert all(torch.equal(state.tensors[name], wanted) for state in loaded)
    losses = [state.position.books.loss_sum for state in loaded]
    assert losses == [sum(state.position.books.loss_sum for state in both), *[0.0] * (ranks - 1)]
    assert {(state.position.epoch, state.position.step, state.position.steps_done) for state in loaded} == {
        (both[0].position.epoch, both[0].position.step, 5)
    }
    store = CheckpointStore(pair[0].folder, "planhash", groups[0])
    assert store.load_weights(5).tensors.keys() == {"layer.weight", "layer.bias"}, "the model is common to all ranks"


def test_where_ranks_are_alike_the_file_of_one_is_read(pair, save_pair):
    save_pair(5)
    (folder_of(pair[0], 5) / "rank_1.safetensors").unlink()
    alone = CheckpointStore(pair[0].folder, "planhash", Group(0, 1, torch.device("cpu")))
    assert same(alone.load(5, are_alike=True).tensors, state_of(5, rank=0).tensors)
    with pytest.raises(UserError, match=r"rank_1\.safetensors is absent"):
        alone.load(5)


def test_a_checkpoint_that_is_not_there_is_refused(store):
    with pytest.raises(UserError, match=r"manifest\.json is absent"):
        restore(store, 3)


def test_a_manifest_cannot_smuggle_in_other_fields(store, make_state):
    save(store, make_state(5))
    path = folder_of(store, 5) / "manifest.json"
    document = json.loads(path.read_text())
    document["content"]["files"]["evil"] = "00"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="does not match its checksum"):
        restore(store, 5)
    document["content"]["more"] = 1
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="Extra inputs"):
        restore(store, 5)


@pytest.mark.parametrize("name", ["../../evil", "/evil", "deeper/evil", "..", ".", ""])
def test_a_manifest_names_files_beside_it_alone(store, make_state, name):
    """Whoever copies a checkpoint writes what it names; its checksum is no signature."""
    save(store, make_state(5))
    folder = folder_of(store, 5)
    manifest = Manifest.read(folder)
    manifest.model_copy(update={"files": dict(sorted({**manifest.files, name: "00"}.items()))}).write(folder)
    with pytest.raises(UserError, match="no name of a file beside it"):
        restore(store, 5)


def test_views_of_one_vector_are_saved_as_what_they_are(store, make_state):
    """Parameters share one piece of memory; a checkpoint holds each with its own shape and nothing else."""
    flat = torch.arange(10.0)
    state = make_state(1)
    views = {"a": flat[:6].view(2, 3), "b": flat[6:].view(4), "c": flat[:6].view(2, 3).t()}
    store.save(replace(weights_at(state.position.steps_done), tensors=views), state, parameter_hash=0xABC, keep=False)
    loaded = store.load_weights(1).tensors
    assert same(loaded, {"a": flat[:6].view(2, 3), "b": flat[6:], "c": flat[:6].view(2, 3).t()})


def test_nothing_is_ever_unpickled():
    """Invariant 8, by reading the source: one restricted reader of old raw formats is all there is."""
    calls = re.compile(
        r"(import|from) +(pickle|cPickle|dill|cloudpickle|joblib|marshal|shelve)|torch\.load|allow_pickle=True"
    )
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if calls.search(path.read_text())}
    assert found == {"graph/pickled.py"}


def test_a_pickle_in_a_checkpoint_is_not_run(store, make_state, tmp_path):
    """Somebody puts a pickle in the place of the weights, and mends the manifest to go with it."""

    class Evil:
        def __reduce__(self):
            return (tmp_path.joinpath("executed").touch, ())

    save(store, make_state(5))
    path = folder_of(store, 5)
    (path / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    manifest = Manifest.read(path)
    files = {**manifest.files, "model.safetensors": file_checksum(path / "model.safetensors")}
    manifest.model_copy(update={"files": files}).write(path)
    with pytest.raises(UserError, match="is damaged"):
        restore(store, 5)
    assert not (tmp_path / "executed").exists()
