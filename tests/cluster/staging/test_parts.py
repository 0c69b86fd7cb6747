"""A host's share of a graph in parts: what it needs is copied and opens, what it does not need is not."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_stores import made_store
from parts_folder import write_parts

from graphmill.base.errors import UserError
from graphmill.cluster.staging.dataset import read_dataset
from graphmill.cluster.staging.stage import stage, stage_for_run
from graphmill.partition.parts import PartedGraph
from graphmill.partition.placement import Placement, share_of_host, share_of_plan
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import LABELS, Share, read_staged, staged_path, staged_problem, staged_store_path
from graphmill.spec.partition import InParts, PartitionSpec
from graphmill.spec.world import World
from graphmill.tasks.node_classification.parts import open_labels

SIZES = st.tuples(st.integers(1, 12), st.integers(1, 12))  # parts and hosts, which seldom divide


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    write_parts(tmp_path / "parts", num_parts=4)
    return tmp_path / "parts"


def top(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_share_is_copied_verified_and_opens(parts: Path, tmp_path: Path):
    share = Share((0, 2), whole_topology=False)
    dataset = read_dataset(parts, share)
    first, second = stage(dataset, tmp_path / "fast"), stage(dataset, tmp_path / "fast")
    copy = Path(first.to)
    assert (first.outcome, second.outcome) == ("copied", "reused")
    assert top(copy) == {"metadata.json", "node_book", "splits", "part_00000", "part_00002"}
    assert first.bytes < read_dataset(parts).bytes
    graph = PartedGraph.open(copy, parts=(0, 2), whole_topology=False)
    assert graph.part(2).node_ids.tolist() == list(range(2, 24, 4))
    assert np.array_equal(graph.book.storage, PartedGraph.open(parts).book.storage)
    with pytest.raises(UserError, match="does not hold part 1"):
        PartedGraph.open(copy, parts=(1,), whole_topology=False)


def test_the_whole_topology_goes_along_where_it_is_asked_for(parts: Path, tmp_path: Path):
    copied = stage(read_dataset(parts, Share((3,), whole_topology=True)), tmp_path / "fast")
    graph = PartedGraph.open(Path(copied.to), parts=(3,), whole_topology=True)
    assert np.array_equal(graph.topology(undirected=True).indptr, 2 * np.arange(25))


def test_ranks_find_their_share_in_any_copy_that_has_it(parts: Path, tmp_path: Path):
    root, needed = tmp_path / "fast", Share((1,), whole_topology=False)
    whole = read_dataset(parts)

    def found() -> Path:
        return staged_path(root, whole.name, whole.checksum, needed)

    stage(read_dataset(parts, Share((2, 3), whole_topology=True)), root)
    assert staged_problem(found(), whole.checksum) == "there is no verified copy of the dataset here"
    all_of_it = stage(whole, root)
    assert str(found()) == all_of_it.to
    larger = stage(read_dataset(parts, Share((0, 1, 2), whole_topology=False)), root)
    largest = stage(read_dataset(parts, Share((0, 1, 2, 3), whole_topology=True)), root)
    assert str(found()) == larger.to
    shutil.rmtree(larger.to)
    assert str(found()) == largest.to
    own = stage(read_dataset(parts, needed), root)
    assert str(found()) == own.to
    assert staged_problem(found(), whole.checksum) is None


def test_a_folder_with_other_parts_only_is_staged_from_as_well(parts: Path, tmp_path: Path):
    near = stage(read_dataset(parts, Share((0, 1), whole_topology=True)), tmp_path / "near")
    assert stage(read_dataset(Path(near.to), Share((1,), whole_topology=True)), tmp_path / "nearer").outcome == "copied"
    with pytest.raises(UserError, match="does not hold part 3"):
        read_dataset(Path(near.to), Share((3,), whole_topology=True))


def test_a_flipped_byte_is_found_at_the_source_and_in_the_copy(parts: Path, tmp_path: Path):
    share, root = Share((1,), whole_topology=False), tmp_path / "fast"
    copy = Path(stage(read_dataset(parts, share), root).to)
    flip(copy / "part_00001" / "x.npy")
    assert stage(read_dataset(parts, share), root).outcome == "copied"
    flip(parts / "part_00001" / "x.npy")
    shutil.rmtree(copy)
    with pytest.raises(UserError, match="part_00001/x"):
        stage(read_dataset(parts, share), root)
    assert not list(root.glob("ring*"))
    assert stage(read_dataset(parts, Share((2,), whole_topology=False)), root).outcome == "copied"


def test_each_host_of_a_job_stages_its_own_share(parts: Path, tmp_path: Path, make_plan, monkeypatch):
    plan = make_plan()
    known = {"path": str(parts), "checksum": read_dataset(parts).checksum, "name": "ring", "num_parts": 4}
    task = plan.task.model_copy(
        update={"dataset": plan.dataset.model_copy(update=known), "partition": PartitionSpec(topology="partitioned")}
    )
    plan = plan.model_copy(update={"task": task, "hosts": 2, "ranks": 4})
    run = RunFolder.create(plan, tmp_path / "logs")
    monkeypatch.delenv("SLURM_NODEID", raising=False)
    with pytest.raises(UserError, match="SLURM_NODEID"):
        stage_for_run(run, tmp_path / "fast")
    for host, own in enumerate([{"part_00000", "part_00001"}, {"part_00002", "part_00003"}]):
        monkeypatch.setenv("SLURM_NODEID", str(host))
        root = tmp_path / f"fast{host}"
        copy = stage_for_run(run, root, via=tmp_path / "scratch" if host else None)
        assert top(Path(copy.to)) == {"metadata.json", "node_book", "splits", *own}
        environ = {"GRAPHMILL_STAGED_ROOT": str(root)}
        assert staged_store_path(plan, environ, run, share_of_plan(plan, host)) == Path(copy.to)
        with pytest.raises(UserError, match="no verified copy"):
            staged_store_path(plan, environ, run, share_of_plan(plan, 1 - host))
    assert [staged.checksum for staged in read_staged(run)] == [known["checksum"]]
    assert top(next((tmp_path / "scratch").glob("ring*"))) == top(parts)


def test_the_command(parts: Path, tmp_path: Path, graphmill):
    def run(*words: object):
        return graphmill("stage", *words, "--to", tmp_path / "fast")

    done = run(parts, "--part", 2, "--part", 0, "--part", 2, "--topology", "--json")
    assert done.code == 0, done.err
    (copy,) = json.loads(done.out)
    assert top(Path(copy["to"])) == {"metadata.json", "node_book", "splits", "topology", "part_00000", "part_00002"}
    for words, told in (
        ((parts, "--part", 4), "4 parts, and no part 4"),
        ((parts, parts / "node_book", "--part", 0), "of one graph"),
        ((parts, "--topology"), "--part N"),
    ):
        refused = run(*words)
        assert (refused.code, told in refused.err) == (2, True), refused.err
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert run(tmp_path, "--part", 0).code == 2


@given(SIZES, st.integers(1, 4), st.sampled_from(["per_host", "per_rank"]))
def test_hosts_have_every_part_and_each_rank_finds_its_own(sizes: tuple[int, int], each: int, placement):
    num_parts, hosts = sizes
    ranks, asked = hosts * each, InParts(num_parts, placement, "replicated")
    places, per_place = (hosts, each) if placement == "per_host" else (ranks, 1)
    shares = [share_of_host(asked, host, hosts=hosts, ranks=ranks) for host in range(hosts)]
    assert {part for share in shares for part in share.parts} == set(range(num_parts))
    for rank in range(ranks):
        assert set(Placement(num_parts, places, per_place).parts_of(rank)) <= set(shares[rank // each].parts)
    assert sum(len(share.parts) for share in shares) <= max(num_parts, ranks)


@given(st.sets(st.integers(0, 40), min_size=1), st.booleans())
def test_a_label_says_what_a_copy_has(parts: set[int], whole_topology: bool):
    share = Share(tuple(sorted(parts)), whole_topology)
    assert Share.of_label(share.label) == share
    assert share.holds(Share((min(parts),), whole_topology=False))
    assert not share.holds(Share((41,), whole_topology=False))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("samplers", "trainers", "hosts", "shares"),
    [
        (2, 4, 2, [(0, 1), (2, 3)]),
        (2, 4, 3, [(), (), (0, 1, 2, 3)]),
        (2, 2, 4, [(), (), (0, 1), (2, 3)]),
        (1, 2, 1, [(0, 1, 2, 3)]),
    ],
)
def test_hosts_that_only_train_need_no_part(make_plan, samplers, trainers, hosts, shares):
    world = World(hosts=hosts, ranks=trainers, threads=1, samplers=samplers)
    plan = make_plan()
    dataset = plan.task.dataset.model_copy(update={"num_parts": 4})
    task = plan.task.model_copy(update={"dataset": dataset, "partition": PartitionSpec(topology="partitioned")})
    parted = plan.model_copy(update={"task": task})
    assert [share_of_plan(parted, host, world).parts for host in range(hosts)] == shares
    whole = [share_of_plan(plan, host, world) for host in range(hosts)]
    assert whole == [None if parts else LABELS for parts in shares]


def test_classes_and_splits_alone_are_copied_of_any_graph(parts: Path, tmp_path: Path):
    dataset = read_dataset(parts, LABELS)
    copy = Path(stage(dataset, tmp_path / "fast").to)
    assert top(copy) == {"metadata.json", "node_book", "splits"}
    assert Share.of_label(LABELS.label) == LABELS
    assert staged_path(tmp_path / "fast", dataset.name, dataset.checksum, LABELS) == copy
    store = made_store(tmp_path / "whole")
    whole = stage(read_dataset(store.path, LABELS), tmp_path / "fast")
    assert top(Path(whole.to)) == {"metadata.json", "y.npy", "split.npy"}
    assert np.array_equal(open_labels(Path(whole.to)).labels, store.labels)
