"""`graphmill partition`, and `inspect` of what it made."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from labelled_stores import made_store
from other_tasks import LINKS, make_links

from graphmill.partition.parts import PartedGraph
from graphmill.partition.verify import verify_parts


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset root with a graph."""
    root = tmp_path / "data"
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(root))
    made_store(root / "random", num_nodes=80, num_edges=400, edge_features=True)
    return root


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_parts_are_made_shown_and_inspected(graphmill, data):
    made = graphmill("partition", "random", "--num-parts", "3", "--seed", "4", "--json")
    assert made.code == 0, made.err
    document = json.loads(made.out)
    path = data / "parts" / "random" / "3-kaminpar"
    assert Path(document["path"]) == path
    assert (document["method"], document["balance"], document["rng_seed"]) == ("kaminpar", "all", 4)
    assert document["took"]["peak_bytes"] > 0
    assert document["took"]["partitioner_peak_bytes"] > 0
    assert set(document["took"]["seconds"]) == {"assigning", "evening", "measuring", "writing"}
    verify_parts(PartedGraph.open(path))
    shown = graphmill("inspect", "parts/random/3-kaminpar")
    for word in ("edges cut", "imbalance", "nodes", "train", "halo nodes", "remote rows"):
        assert word in shown.out
    told = graphmill("partition", "random", "--num-parts", "3", "--seed", "4")  # is there already: the same report
    assert told.out.splitlines()[1:] == shown.out.splitlines()[1:]
    checked = json.loads(graphmill("inspect", path, "--check", "--json").out)
    assert checked["checked"]
    assert checked["quality"] == document["quality"]


def test_links_lie_whole_beside_the_parts_of_their_graph(graphmill, data):
    make_links(data)
    made = graphmill("partition", LINKS, "--num-parts", "2", "--method", "ldg", "--fanouts", "4", "3", "--json")
    assert made.code == 0, made.err
    document = json.loads(made.out)
    links, path = document["store"]["links"], data / "parts" / LINKS / "2-ldg"
    assert sum(document["quality"]["train"]) == links["train"], "each is of the part that has its source"
    assert document["arrays"]["lists/test_links"]["shape"] == [2, links["test"]]
    checked = json.loads(graphmill("inspect", path, "--check", "--json").out)
    assert checked["checked"]
    damaged = path / "lists" / "val_links.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    refused = graphmill("inspect", path, "--check")
    assert (refused.code, "val_links.npy" in refused.err) == (2, True), refused.err


def test_what_it_needs_is_said_before_it_works(graphmill, data):
    done = graphmill("partition", "random", "--num-parts", "2", "--method", "random")
    assert done.err.index("random: needs about") < done.err.index("assigning nodes")
    assert "peak of memory" in done.err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_says_what_it_needs_and_writes_nothing(graphmill, data, as_json):
    before = files(data)
    done = graphmill("partition", "random", "--num-parts", "2", "--dry-run", *(["--json"] if as_json else []))
    assert done.code == 0
    assert "2-kaminpar" in done.out
    if as_json:
        steps = json.loads(done.out)["estimate"]
        assert [step["step"] for step in steps] == ["kaminpar", "balance", "measure", "write"]
        assert steps[0]["partitioner_bytes"] > 0
        assert json.loads(done.out)["disk_bytes"] > 80 * 4
    assert files(data) == before


def test_other_files_are_not_replaced(graphmill, data):
    mine = data / "parts/random/mine"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    for words in ((), ("--force",)):
        refused = graphmill("partition", "random", "--num-parts", "2", "--name", "mine", *words)
        assert (refused.code, "holds other files" in refused.err) == (2, True)
        assert files(mine) == {"notes.txt"}


def test_a_cancelled_job_leaves_nothing(data, source_environ):
    made_store(data / "larger", num_nodes=60_000, num_edges=1_000_000)
    words = ("partition", "larger", "--num-parts", "4", "--method", "kaminpar", "--dataset-root", data)
    with subprocess.Popen([sys.executable, "-m", "graphmill", *words], env=source_environ) as partitioning:
        while not (half := list(data.rglob(".*.tmp"))) and partitioning.poll() is None:
            time.sleep(0.01)
        partitioning.terminate()
    assert half, "it was over before it could be cancelled: the test proves nothing"
    assert partitioning.returncode == 128 + signal.SIGTERM
    assert list((data / "parts").rglob("*.*")) == []


def test_datasets_lists_no_parts(graphmill, data):
    before = graphmill("datasets", "--json").out
    assert graphmill("partition", "random", "--num-parts", "2", "--method", "ldg").code == 0
    assert graphmill("datasets", "--json").out == before


def test_another_partition_in_the_place_is_kept_unless_forced(graphmill, data):
    words = ("partition", "random", "--num-parts", "2", "--method", "random", "--name", "mine")
    assert graphmill(*words).code == 0
    again = graphmill(*words, "--seed", "1")
    assert again.code == 2
    assert "--seed is 0 there and 1 here" in again.err
    assert "--force" in again.err
    first = json.loads(graphmill("inspect", "parts/random/mine", "--json").out)
    assert first["rng_seed"] == 0
    assert graphmill(*words, "--seed", "1", "--force").code == 0
    assert json.loads(graphmill("inspect", "parts/random/mine", "--json").out)["rng_seed"] == 1


def test_hot_nodes_are_ranked_if_fanouts_are_given(graphmill, data):
    words = ("partition", "random", "--num-parts", "2", "--method", "ldg", "--fanouts", "3", "2")
    assert graphmill(*words).code == 0
    known = json.loads(graphmill("inspect", "parts/random/2-ldg", "--json").out)
    assert known["fanouts"] == [3, 2]
    assert {name for name in known["arrays"] if "/hot/" in name} == {
        f"part_0000{part}/hot/{policy}" for part in (0, 1) for policy in ("degree", "presample", "hotness", "vip")
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num-parts", "2", "--method", "metiss"], ["'metiss'", "--method metis"]),
        (["--num-parts", "2", "--balance", "edge"], ["'edge'", "--balance edges"]),
        (["--num-parts", "2", "--method", "random", "--balance", "edges"], ["equally many nodes", "--balance"]),
        (["--num-parts", "0"], ["0 parts", "--num-parts"]),
        (["--num-parts", "81", "--method", "ldg"], ["81 parts", "80 nodes"]),
        (["--num-parts", "2", "--fanouts", "0"], ["fan-out", "--fanouts"]),
        (["--num-parts", "2", "--fanouts", "4,2"], ["4,2", "--fanouts 4 2"]),
        (["--num-parts", "2", "--name", "a/b"], ["--name"]),
    ],
)
def test_a_wrong_request_is_told(graphmill, data, words, said):
    before = files(data)
    done = graphmill("partition", "random", *words)
    assert done.code == 2
    for word in [*said, "→"]:
        assert word in done.err
    assert files(data) == before


def test_a_name_that_is_nothings(graphmill, data):
    """Of parts, what there is; of data that were to be verified as a run, the command that checks data."""
    assert graphmill("partition", "random", "--num-parts", "2", "--method", "ldg").code == 0
    for name in ("parts/random/2-ldgg", "parts/random"):
        refused = graphmill("inspect", name)
        assert (refused.code, "parts/random/2-ldg," in refused.err) == (2, True)
    assert "did you mean 'random'" in graphmill("inspect", "randm").err
    assert "graphmill inspect parts/random/2-ldg --check" in graphmill("verify", "parts/random/2-ldg").err


def test_what_is_no_whole_graph_is_refused(graphmill, data):
    assert "no dataset" in graphmill("partition", "nothing", "--num-parts", "2").err
    assert graphmill("partition", "random", "--num-parts", "2", "--method", "ldg").code == 0
    twice = graphmill("partition", "parts/random/2-ldg", "--num-parts", "2")
    assert twice.code == 2
    assert "parts of random already" in twice.err


def test_damaged_parts_are_told_with_what_to_type(graphmill, data):
    assert graphmill("partition", "random", "--num-parts", "2", "--method", "ldg").code == 0
    path = data / "parts/random/2-ldg/part_00001/x.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    later = time.time_ns() + 10**10
    os.utime(path, ns=(later, later))
    done = graphmill("inspect", "parts/random/2-ldg")
    assert done.code == 2
    assert "x.npy: its checksum" in done.err
    assert "graphmill partition" in done.err


def test_a_copy_of_some_parts_is_shown_and_checked(graphmill, data, tmp_path):
    assert graphmill("partition", "random", "--num-parts", "4", "--method", "ldg").code == 0
    stage = ("stage", "parts/random/4-ldg", "--part", "0", "--part", "2", "--to", tmp_path / "near", "--json")
    copy = json.loads(graphmill(*stage).out)[0]["to"]
    shown = graphmill("inspect", copy)
    assert shown.code == 0, shown.err
    assert "not on this host: parts 1, 3 and the whole topology" in shown.out
    rows = [line.split() for line in shown.out.splitlines()]
    assert [row[-1] for row in rows if row and row[0] in "0123"] == ["yes", "no", "yes", "no"]
    checked = graphmill("inspect", copy, "--check")
    assert checked.code == 0, checked.err
    assert "as they should be of what is here: parts 0, 2, the book and the splits" in checked.out
    facts = json.loads(graphmill("inspect", copy, "--check", "--json").out)
    assert (facts["parts_here"], facts["whole_topology_here"], facts["checked"]) == ([0, 2], False, True)
    whole = graphmill("inspect", "parts/random/4-ldg", "--check")
    assert "not on this host" not in whole.out
    assert "here" not in whole.out.splitlines()[-1]


def test_what_a_copy_lacks_is_told_where_it_is_staged_on(graphmill, data, tmp_path):
    assert graphmill("partition", "random", "--num-parts", "4", "--method", "ldg").code == 0
    stage = ("stage", "parts/random/4-ldg", "--part", "0", "--part", "2", "--to", tmp_path / "near", "--json")
    copy = json.loads(graphmill(*stage).out)[0]["to"]
    whole = graphmill("stage", copy, "--to", tmp_path / "next")
    assert whole.code == 2
    assert "copy what is there: --part 0 --part 2;" in whole.err
    absent = graphmill("stage", copy, "--part", "0", "--part", "3", "--topology", "--to", tmp_path / "next")
    assert absent.code == 2
    assert "does not hold part 3, the whole topology" in absent.err
    for name in ("parts/random/8-ldg", "parts/random/4-ldgg"):
        none = graphmill("stage", name, "--part", "0", "--to", tmp_path / "next")
        assert none.code == 2
        assert f"no such parts under {data}: {name}; there are 4-ldg" in none.err


def test_damage_says_what_makes_the_same_parts_again(graphmill, data):
    words = ("random", "--num-parts", "2", "--method", "ldg", "--seed", "3", "--balance", "edges", "--name", "mine")
    assert graphmill("partition", *words, "--fanouts", "4", "--fanouts", "2").code == 0
    (data / "parts/random/mine/part_00001/x.npy").write_bytes(b"")
    said = graphmill("inspect", "parts/random/mine").err
    again = f"graphmill {said.partition('graphmill ')[2].strip()}".split()[1:]
    assert again == [
        *("partition", "random", "--num-parts", "2", "--method", "ldg", "--balance", "edges", "--seed", "3"),
        *("--fanouts", "4", "2", "--name", "mine", "--force"),
    ]
    before = json.loads((data / "parts/random/mine/metadata.json").read_text())["checksum"]
    assert graphmill(*again).code == 0
    assert json.loads((data / "parts/random/mine/metadata.json").read_text())["checksum"] == before


def test_auto_streams_what_a_partitioner_has_no_memory_for(data, caplog):
    from graphmill.partition.split import Wanted, choose
    from graphmill.tasks.node_classification.data.store import LabelledGraphStore

    store = LabelledGraphStore.open(data / "random")
    chosen, needed = choose(store, Wanted(num_parts=2), available_bytes=2**60)
    assert (chosen.method, chosen.balance) == ("kaminpar", "all")
    assert not caplog.text
    chosen, _ = choose(store, Wanted(num_parts=2), available_bytes=needed.total_bytes - 1)
    assert chosen.method == "ldg"
    assert "ldg instead" in caplog.text
    chosen, _ = choose(store, Wanted(num_parts=2, method="kaminpar"), available_bytes=1)
    assert chosen.method == "kaminpar"
    assert "may be killed" in caplog.text
