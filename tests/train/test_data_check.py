"""Bytes that changed under an old time are found while a run trains; a host's files are read once in a run."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from labelled_stores import made_store, split_made

from graphmill.base.errors import UserError
from graphmill.partition.parts import PartedGraph
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.targets import Classes, refuse_unknown_targets
from graphmill.train import data_check
from graphmill.train.data_check import DataCheck


def change(path: Path, place: int) -> None:
    """A byte, and not the file's time."""
    times, content = path.stat(), bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def checked(graph: LabelledGraphStore | PartedGraph, note: Path) -> DataCheck:
    check = DataCheck(graph.path, graph.metadata.arrays, note, f"{graph.path}\n")
    check.begin()
    return check


@pytest.fixture(params=["whole", "in parts"])
def graph(request, tmp_path) -> LabelledGraphStore | PartedGraph:
    store = made_store(tmp_path / "s")
    return store if request.param == "whole" else split_made(store, tmp_path / "p")


def test_whole_data_are_noted_and_not_read_again(graph, tmp_path):
    checked(graph, tmp_path / "run" / "host.json").finish()
    (graph.path / f"{next(iter(graph.metadata.arrays))}.npy").unlink()
    checked(graph, tmp_path / "run" / "host.json").finish()
    with pytest.raises(UserError, match="cannot be read"):
        checked(graph, tmp_path / "run" / "another.json").finish()


def test_what_a_killed_writer_left_of_the_note_is_removed(graph, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f".host.json.{socket.gethostname()}@{ended.pid}.tmp"
    left.write_text("half")
    checked(graph, tmp_path / "host.json").finish()
    assert not left.exists()


def test_a_changed_byte_ends_the_run_with_the_file_and_what_to_type(graph, tmp_path):
    name = "indices" if isinstance(graph, LabelledGraphStore) else "part_00001/x"
    change(graph.path / f"{name}.npy", -1)
    check = checked(graph, tmp_path / "host.json")
    with pytest.raises(UserError, match=rf"(?s){name}\.npy.*its checksum is") as caught:
        check.finish()
    command = "prepare NAME --force" if isinstance(graph, LabelledGraphStore) else "graphmill partition"
    assert command in caught.value.fix
    with pytest.raises(UserError):
        check.refuse_damaged()
    assert not (tmp_path / "host.json").exists()


def test_labels_that_are_no_class_are_refused_before_anything_counts_them(graph):
    num_classes = made_classes(graph)
    refuse_unknown_targets(graph.path, graph.labels, graph.nodes_in, Classes(num_classes))
    whole = isinstance(graph, LabelledGraphStore)
    node = int(graph.nodes_in("test")[-1])
    path = graph.path / ("y.npy" if whole else "splits/test_y.npy")
    change(path, 128 + 8 * node + 3 if whole else -5)
    with pytest.raises(
        UserError, match=rf"{path.name}: node {node} of the test split has label [0-9]+ of {num_classes}"
    ):
        refuse_unknown_targets(graph.path, graph.labels, graph.nodes_in, Classes(num_classes))


def made_classes(graph: LabelledGraphStore | PartedGraph) -> int:
    known = graph.metadata
    return known.num_classes if isinstance(graph, LabelledGraphStore) else int(known.store["num_classes"])


def test_nothing_is_noted_once_the_run_is_over(tmp_path, monkeypatch):
    """Its folder may be thrown away by then, as that of a trial is."""
    monkeypatch.setattr(data_check, "_WAITED_FOR", -1)
    graph = made_store(tmp_path / "s")
    path = graph.path / f"{next(iter(graph.metadata.arrays))}.npy"
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)  # read once there is something to read
    check = checked(graph, tmp_path / "run" / "host.json")
    check.finish()
    path.write_bytes(content)
    check._thread.join()
    assert check._num_read == len(graph.metadata.arrays)
    assert not (tmp_path / "run").exists()
