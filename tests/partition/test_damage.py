"""Parts that are damaged, of another partitioning or half written are refused; nothing that opens is left of them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from labelled_stores import made_store, split_made
from slow_cases import with_slow

from graphmill.base.errors import UserError
from graphmill.graph.arrays import write_array
from graphmill.graph.header import seal, write_metadata
from graphmill.partition.metadata import files_of
from graphmill.partition.parts import PartedGraph
from graphmill.partition.verify import verify_parts


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return split_made(made_store(folder / "s"), folder / "p")


@pytest.fixture
def graph(whole, tmp_path):
    """A copy, to be damaged."""
    return PartedGraph.open(shutil.copytree(whole.path, tmp_path / "p"))


def flip(path, *, keep_times=False):
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x10
    path.write_bytes(data)
    if keep_times:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    else:
        later = time.time_ns() + 10**10
        os.utime(path, ns=(later, later))


NAMES = ["part_00001/x", "part_00002/indices", "node_book/storage_of", "splits/train", "topology/indices"]


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_byte_is_found_when_they_are_opened(graph, name):
    flip(graph.path / f"{name}.npy")
    with pytest.raises(UserError, match=rf"(?s){name}\.npy.*its checksum is"):
        PartedGraph.open(graph.path)


INDEX = ["node_book/storage_of", "splits/train", "splits/val_y"]
INDEX += [f"part_00001/{name}" for name in ("node_ids", "indptr", "undirected_indptr", "y", "split")]


@pytest.mark.parametrize("name", [*INDEX, "topology/indptr"])
def test_what_decides_where_everything_is_is_read_whatever_its_time(graph, name):
    flip(graph.path / f"{name}.npy", keep_times=True)
    with pytest.raises(UserError, match=rf"(?s){name}\.npy.*its checksum is"):
        PartedGraph.open(graph.path)


LEADING = ["node_book/storage_of", "part_00001/node_ids", "splits/train", "splits/val"]
STRANGERS = [-1, 2**31 - 1]


@pytest.mark.parametrize(
    ("name", "stranger"),
    with_slow(product(LEADING, STRANGERS), fast=[(name, STRANGERS[i % 2]) for i, name in enumerate(LEADING)]),
)
def test_what_leads_out_of_the_graph_is_refused_though_its_checksum_is_right(graph, name, stranger):
    values = np.array(np.load(graph.path / f"{name}.npy"))
    values[len(values) // 2] = stranger
    record = write_array(graph.path / f"{name}.npy", values)
    forged = graph.metadata.model_copy(update={"arrays": {**graph.metadata.arrays, name: record}})
    write_metadata(graph.path, seal(forged))
    with pytest.raises(UserError, match=rf"{name}\.npy: it holds .* and should hold 0 to"):
        PartedGraph.open(graph.path)


@pytest.mark.parametrize("name", NAMES)
def test_one_under_old_times_is_found_when_everything_is_read(graph, name):
    flip(graph.path / f"{name}.npy", keep_times=True)
    with pytest.raises(UserError, match=rf"(?s){name}\.npy.*its checksum is"):
        verify_parts(PartedGraph.open(graph.path, reads_index=False))


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(graph, name):
    (graph.path / f"{name}.npy").unlink()
    with pytest.raises(UserError, match=f"{name.split('/')[0]}"):
        PartedGraph.open(graph.path)


def test_a_missing_part_is_named(graph):
    shutil.rmtree(graph.path / "part_00001")
    with pytest.raises(UserError, match="does not hold part 1"):
        PartedGraph.open(graph.path)


def staged(graph, tmp_path, *parts, topology=False):
    """What a host with these parts has."""
    for name in files_of(graph.metadata, parts, whole_topology=topology):
        target = tmp_path / "staged" / f"{name}.npy"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(graph.path / f"{name}.npy", target)
    shutil.copy2(graph.path / "metadata.json", tmp_path / "staged")
    return tmp_path / "staged"


HERE = [(), (1,), (0, 2), (0, 1, 2)]


@pytest.mark.parametrize(
    ("parts", "topology"),
    with_slow(product(HERE, (False, True)), fast=[(parts, i % 2 == 1) for i, parts in enumerate(HERE)]),
)
def test_what_is_on_a_host_is_opened_and_read(graph, tmp_path, parts, topology):
    here = PartedGraph.open_what_is_here(staged(graph, tmp_path, *parts, topology=topology))
    assert (here.parts, here.has_topology) == (parts, topology)
    verify_parts(here)


@pytest.mark.parametrize("name", ["part_00001/x", "part_00001/indices", "node_book/storage_of", "splits/train_y"])
def test_damage_of_what_is_on_a_host_is_found(graph, tmp_path, name):
    path = staged(graph, tmp_path, 1)
    flip(path / f"{name}.npy", keep_times=True)
    with pytest.raises(UserError, match=rf"(?s){name}\.npy.*its checksum is"):
        verify_parts(PartedGraph.open_what_is_here(path))


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("part_00001/indptr", lambda a: a[:1].__iadd__(1), "do not follow each other"),
        ("part_00001/indices", lambda a: a.__setitem__(slice(None), a[::-1].copy()), "no ascending nodes"),
        ("part_00001/indices", lambda a: a[-1:].__imul__(1000), "no ascending nodes"),
        ("part_00001/split", lambda a: a.__setitem__(slice(None), 0), "other nodes than part 1"),
        ("splits/val_y", lambda a: a.__setitem__(slice(None), (a + 1) % (a.max() + 1)), "others than those of part 1"),
        ("splits/val", lambda a: a.__setitem__(slice(None), a[::-1].copy()), "do not ascend"),
        ("part_00001/node_ids", lambda a: a.__setitem__(slice(None), a[::-1].copy()), "no ascending nodes"),
    ],
)
def test_contradictions_are_found_on_a_host_without_the_whole_topology(graph, tmp_path, name, change, says):
    from graphmill.graph.arrays import write_array
    from graphmill.graph.header import seal, write_metadata

    path = staged(graph, tmp_path, 1)
    array = np.load(path / f"{name}.npy")
    change(array)
    record = write_array(path / f"{name}.npy", array)
    write_metadata(path, seal(graph.metadata.model_copy(update={"arrays": {**graph.metadata.arrays, name: record}})))
    with pytest.raises(UserError, match=says):
        verify_parts(PartedGraph.open_what_is_here(path))


def test_a_missing_file_of_a_part_that_is_here_is_named(graph, tmp_path):
    path = staged(graph, tmp_path, 1)
    (path / "part_00001" / "x.npy").unlink()
    with pytest.raises(UserError, match=r"part_00001/x\.npy: the file is missing"):
        PartedGraph.open_what_is_here(path)


def test_a_book_of_another_partitioning_is_found(graph, tmp_path):
    other = split_made(made_store(tmp_path / "s2"), tmp_path / "q", method="random", rng_seed=5)
    book = "node_book/storage_of.npy"
    shutil.copy(other.path / book, graph.path / book)
    later = time.time_ns() + 10**10
    os.utime(graph.path / book, ns=(later, later))
    with pytest.raises(UserError, match=r"storage_of\.npy: its checksum"):
        PartedGraph.open(graph.path)


def test_files_that_contradict_each_other_are_found_whatever_their_checksums(graph, tmp_path):
    """As if metadata and book had been exchanged together."""
    from graphmill.graph.arrays import write_array
    from graphmill.graph.header import seal, write_metadata

    book = np.roll(np.array(graph.book.storage), 1)
    record = write_array(graph.path / "node_book/storage_of.npy", book)
    arrays = {**graph.metadata.arrays, "node_book/storage_of": record}
    write_metadata(graph.path, seal(graph.metadata.model_copy(update={"arrays": arrays})))
    with pytest.raises(UserError, match="another partition"):
        verify_parts(PartedGraph.open(graph.path))


@pytest.mark.parametrize("name", ["x", "indices", "undirected_indices", "y"])
def test_a_damaged_store_is_not_passed_on(tmp_path, name):
    """The features are read once, and their checksum with them: a store that went bad makes no parts that verify."""
    store = made_store(tmp_path / "s")
    path = store.path / f"{name}.npy"
    data = bytearray(path.read_bytes())
    data[-8] ^= 0x01
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"{name}\.npy.*checksum"):
        split_made(store, tmp_path / "p", method="random")
    assert not (tmp_path / "p").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


WRITER = """
import sys
from pathlib import Path
from labelled_stores import split_made
from graphmill.tasks.node_classification.data.store import LabelledGraphStore

store = LabelledGraphStore.open(Path(sys.argv[1]))
while True:  # the first round writes where nothing is, the others replace
    print("writing", flush=True)
    split_made(store, Path(sys.argv[2]), num_parts=4, rng_seed=1)
"""


@pytest.fixture
def environ_of_tests(source_environ):
    plugins = str(Path(__file__).parents[1] / "plugins")
    return {**source_environ, "PYTHONPATH": os.pathsep.join([plugins, source_environ["PYTHONPATH"]])}


def test_a_writer_that_is_killed_leaves_whole_parts_or_none(tmp_path, environ_of_tests):
    store = made_store(tmp_path / "s", num_nodes=20_000, num_edges=100_000)
    path = tmp_path / "parts" / "p"
    left = 0
    for delay_s in (0.0, 0.05, 0.1, 0.2):
        command = [sys.executable, "-c", WRITER, str(store.path), str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ_of_tests) as writer:
            writer.stdout.readline()
            time.sleep(delay_s)
            writer.kill()
        assert writer.returncode == -signal.SIGKILL
        left += bool(list(path.parent.glob(".*.tmp")))
        if path.exists():
            verify_parts(PartedGraph.open(path))
    assert left, "no kill hit a write: the test proves nothing"
    verify_parts(split_made(store, path, num_parts=4))
    assert [each.name for each in path.parent.iterdir()] == ["p"]


@pytest.mark.parametrize(("kib", "told"), [(900, "the parts take about 1 MiB"), (1220, "No space left")])
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, source_environ, kib, told):
    """A file system of so many KiB, in a namespace of its own: too small by the estimate, or full at the last parts."""
    small = tmp_path / "data" / "parts"
    small.mkdir(parents=True)
    if subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "none", small], check=False).returncode:
        pytest.skip("no user namespaces here, to mount a small file system in")
    made_store(tmp_path / "data" / "s", num_nodes=6000, num_edges=30_000)
    program = "from graphmill.cli import main; main()"
    command = f'"{sys.executable}" -c "{program}" partition s --num-parts 2 --method kaminpar --dataset-root data'
    inside = f"mount -t tmpfs -o size={kib}k none {small} && {command}; echo status $?; find {small} -type f"
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", inside],
        cwd=tmp_path,
        env=source_environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["status 2"], done.stdout + done.stderr
    assert told in done.stderr
    assert "→" in done.stderr
    assert "Traceback" not in done.stderr
