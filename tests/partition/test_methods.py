"""Partitioners on a graph of planted communities, and what they say where they cannot run."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from labelled_stores import made_store, split_made

from graphmill.base.errors import UserError
from graphmill.graph.topology import Topology, edge_keys, topology_from_keys, undirected_keys
from graphmill.partition.balance import amounts_of, even_out, graph_of, limits_of
from graphmill.partition.inclusion import hotness
from graphmill.partition.methods import packages
from graphmill.partition.methods.files import read_graph_file, write_graph_file
from graphmill.partition.methods.own import hotness_parts, ldg, random_parts
from graphmill.partition.methods.packages import partition_with
from graphmill.partition.problem import PartitionProblem, nothing_assigned
from graphmill.partition.quality import crossing
from graphmill.partition.write import bytes_to_write
from graphmill.tasks.node_classification.data.prepare import prepare

METHODS = ("kaminpar", "metis", "ldg", "random", "hotness")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two communities, 96 % of the edges inside."""
    options = {"num_nodes": 1200, "num_edges": 12_000, "communities": 2, "inside": 0.96, "features": 4}
    return prepare("synthetic/sbm", root=tmp_path_factory.mktemp("data"), options=options)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_parts_for_the_same_seed(planted, tmp_path, method):
    first, again, other = (
        split_made(planted, tmp_path / str(number), method=method, num_parts=2, rng_seed=seed).metadata
        for number, seed in enumerate((3, 3, 4))
    )
    assert first.checksum == again.checksum
    if method in ("ldg", "random"):  # KaMinPar finds the same best one
        assert first.arrays["node_book/storage_of"] != other.arrays["node_book/storage_of"]


@pytest.mark.parametrize(("method", "most_cut"), [("kaminpar", 0.08), ("metis", 0.08), ("ldg", 0.4)])
def test_planted_communities_are_found(planted, tmp_path, method, most_cut):
    """2 % of the edges are between the communities, half of them between random parts. A stream that begins with one
    community splits it before it knows of the other.
    """
    quality = split_made(planted, tmp_path / "p", method=method, num_parts=2).metadata.quality
    assert quality["edge_cut"] < most_cut
    assert max(quality[f"imbalance_{name}"] for name in ("nodes", "edges", "train")) <= 0.05


def test_random_parts_are_even_and_no_planted_ones(planted, tmp_path):
    quality = split_made(planted, tmp_path / "p", method="random", num_parts=2).metadata.quality
    assert quality["imbalance_nodes"] == 0
    assert 0.45 < quality["edge_cut"] < 0.55


def undirected(pairs, num_nodes):
    keys = edge_keys(np.array(pairs).T, num_nodes)
    both = undirected_keys(keys, num_nodes)
    return topology_from_keys(keys if both is None else both, num_nodes)


def problem(graph: Topology, num_parts=2, **more):
    ones = np.ones(graph.num_nodes, np.int64)
    given = {
        "amounts": ones[:, None].astype(np.uint32),
        "limits": np.array([graph.num_nodes]),
        "weights": ones,
        "rng_seed": 0,
        "train": np.arange(graph.num_nodes),
    }
    return PartitionProblem(graph=graph, num_parts=num_parts, **(given | more))


def test_the_file_leaves_out_self_loops_and_nodes_without_neighbours(tmp_path):
    graph = undirected([[1, 3], [3, 3], [4, 4], [3, 6]], 8)
    weights = np.arange(8) * 10
    cleaned = write_graph_file(tmp_path / "g", graph, weights)
    found = read_graph_file(tmp_path / "g")
    assert cleaned.nodes.tolist() == [1, 3, 6]
    assert found.indptr.tolist() == [0, 1, 3, 4]
    assert found.indices.tolist() == [1, 0, 2, 1]
    assert found.weights.tolist() == [10, 30, 60]
    assert cleaned.of_all_nodes(np.array([1, 0, 1])).tolist() == [-1, 1, -1, 0, -1, -1, 1, -1]


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_file_takes_less_of_the_disk_than_the_parts(tmp_path, symmetric):
    """With the answer, 4 bytes a node. So whether a disk has room for the parts is all that need be asked."""
    store = made_store(tmp_path / "s", num_nodes=500, num_edges=20_000, symmetric=symmetric, is_sparse=True)
    cleaned = write_graph_file(tmp_path / "g", store.topology(undirected=True), np.ones(500, np.int64))
    assert (tmp_path / "g").stat().st_size + 4 * len(cleaned.nodes) < bytes_to_write(store)


def test_kaminpar_reads_the_file_as_it_was_meant(tmp_path):
    kaminpar = pytest.importorskip("kaminpar")
    write_graph_file(tmp_path / "g", undirected([[0, 1], [1, 2], [2, 2]], 5), np.array([5, 6, 7, 8, 9]))
    graph = kaminpar.load_graph(str(tmp_path / "g"), kaminpar.GraphFileFormat.PARHIP)
    assert (graph.n(), graph.m()) == (3, 4)
    assert [graph.node_weight(node) for node in range(3)] == [5, 6, 7]
    assert sorted(other for other, _ in graph.neighbors(1)) == [0, 2]


def test_a_graph_without_edges_needs_no_partitioner(tmp_path):
    found = partition_with("kaminpar", problem(undirected([[2, 2]], 4)), tmp_path)
    assert found.parts.tolist() == [-1] * 4
    assert not list(tmp_path.iterdir())


def test_hotness_takes_turns_at_the_hottest_nodes():
    rng = np.random.default_rng(0)
    graph = undirected(rng.integers(0, 40, (150, 2)), 50)
    train = np.sort(rng.permutation(50)[:13])
    asked = problem(graph, num_parts=3, train=train, fanouts=(3, 2))
    reached = np.array([hotness(graph, seeds, (3, 2)) for seeds in np.array_split(train, 3)], np.float32)
    scores = 3 * reached - (reached.sum(axis=0) - reached)
    free, expected = set(range(50)), np.empty(50, np.int32)
    for part, quota in enumerate((17, 17, 16)):
        best = sorted(free, key=lambda node: (-scores[part, node], node))[:quota]
        expected[best] = part
        free -= set(best)
    np.testing.assert_array_equal(hotness_parts(asked), expected)


def test_hotness_starts_each_blob_with_another_part(monkeypatch):
    monkeypatch.setattr("graphmill.partition.methods.own._CHUNK", 2)
    graph = undirected([[node, node + 1] for node in range(11)], 12)
    parts = hotness_parts(problem(graph, train=np.array([0, 11])))
    assert [np.bincount(parts[start : start + 4]).tolist() for start in (0, 4, 8)] == [[2, 2]] * 3


@pytest.mark.parametrize("num_parts", [1, 2, 7])
def test_random_counts_differ_by_one_at_most(num_parts):
    counts = np.bincount(random_parts(problem(undirected([[0, 1]], 30), num_parts)), minlength=num_parts)
    assert counts.max() - counts.min() <= 1


def test_a_missing_package_is_told_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "PACKAGES", {"metis": "no_such_package"})
    with pytest.raises(UserError, match=r"no_such_package(?s:.*)pip install 'graphmill\[partition\]'"):
        split_made(made_store(tmp_path / "s"), tmp_path / "p", method="metis")
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("what_it_does", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", ["ended by SIGKILL", "memory"]),
        ("import os; os.kill(os.getpid(), 11)", ["ended by SIGSEGV"]),
        ("raise MemoryError('no room for the coarse graph')", ["status 1", "no room for the coarse graph"]),
        ("raise SystemExit(0)", ["has not put each of"]),
    ],
)
def test_a_partitioner_that_is_killed_or_fails_is_an_error_and_leaves_nothing(
    tmp_path, source_environ, what_it_does, words
):
    """A package of the same name, found first, in a process of graphmill's own."""
    made_store(tmp_path / "data" / "s")
    (tmp_path / "kaminpar.py").write_text(what_it_does)
    environ = {**source_environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source_environ["PYTHONPATH"]])}
    program = "import sys; sys.argv[0] = 'graphmill'; from graphmill.cli import main; main()"
    words_of_command = ["partition", "s", "--num-parts", "2", "--method", "kaminpar", "--dataset-root", "data"]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *words_of_command],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    for word in [*words, "→", "--method ldg"]:
        assert word in done.stderr
    assert not [path for path in (tmp_path / "data" / "parts").rglob("*") if path.name != "s"]


def communities(rng, num_nodes=2000):
    """Four of them, 90 % of the edges inside; degrees fall with the id by a power law, as a crawl finds nodes."""
    chance = (np.arange(num_nodes) + 1.0) ** -1.1
    first, second = (rng.choice(num_nodes, 3 * num_nodes, p=chance / chance.sum()) for _ in range(2))
    inside = rng.random(len(first)) < 0.9
    second[inside] += (first[inside] - second[inside]) % 4
    return undirected(np.stack([first, second % num_nodes]).T, num_nodes)


@pytest.mark.parametrize(("seed", "num_parts"), [(0, 2), (0, 4), (1, 4), (2, 2)])
def test_ldg_cuts_little_more_than_a_plain_one_that_balances_nodes_only(seed, num_parts):
    """It evens out nodes, edges and training nodes as well: when it balanced them while it streamed, it had up to three
    times the cut here, depending on where the stream began.
    """
    graph = communities(np.random.default_rng(seed))
    edges, is_train = np.diff(graph.indptr), np.random.default_rng(1).random(graph.num_nodes) < 0.6
    amounts = amounts_of("all", edges, is_train)
    limits = limits_of(amounts, num_parts)
    known = {"amounts": amounts, "limits": limits, "weights": edges + 1, "train": np.flatnonzero(is_train)}
    asked = problem(graph, num_parts, rng_seed=seed, **known)
    parts = ldg(asked)
    even_out(asked, parts, refine=True)
    plain, ones = nothing_assigned(graph.num_nodes), np.ones((graph.num_nodes, 1), np.uint32)
    stream = graph_of(asked, plain, limits_of(ones, num_parts), ones).stream
    for _ in range(2):
        stream(np.arange(graph.num_nodes), 1)
    cut, of_plain = (crossing(graph, np.maximum(each, 0), num_parts)[0] for each in (parts, plain))
    assert cut <= 1.3 * of_plain


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ldg_takes_the_order_of_nodes_that_cuts_less(seed):
    """A path is cut by 6 to 8 entries in the order of ids, and by 70 and more in that of shuffled blocks. Two paths
    whose nodes are tied to each other, far apart, are cut by 2,000 to 5,000 and by 150 to 550.
    """
    numbers = np.arange(6400)
    path = np.stack([numbers[:-1], numbers[1:]]).T
    tied = np.concatenate([path[:3199], np.stack([numbers[:3200], numbers[3200:]]).T])
    for pairs, most in ((path, 20), (tied, 1000)):
        graph = undirected(pairs, len(numbers))
        ones = np.ones((len(numbers), 1), np.uint32)
        known = {"amounts": ones, "limits": limits_of(ones, 4), "train": np.arange(3)}
        parts = ldg(problem(graph, 4, rng_seed=seed, weights=np.diff(graph.indptr) + 1, **known))
        assert crossing(graph, np.maximum(parts, 0), 4)[0] <= most


@pytest.mark.parametrize("method", ["auto", "ldg"])
def test_parts_are_not_cut_to_even_out_a_few_edges(tmp_path, caplog, method):
    """50 of 3,000 nodes have edges. All three were balanced, which cut more than half of them."""
    store = made_store(tmp_path / "s", num_nodes=3000, num_edges=140, busy=50)
    found = split_made(store, tmp_path / "p", method=method, num_parts=2).metadata
    assert found.method == "ldg"
    assert found.quality["edge_cut"] < 0.1
    assert max(found.quality[f"imbalance_{name}"] for name in ("nodes", "train")) <= 0.05
    assert "exceeds the mean" not in caplog.text


def test_parts_that_are_nearly_random_are_told(tmp_path, caplog):
    store = made_store(tmp_path / "s", num_nodes=60, num_edges=1500)
    split_made(store, tmp_path / "p", method="ldg", num_parts=3)
    assert "random parts have 66.7%" in caplog.text
    caplog.clear()
    split_made(store, tmp_path / "q", method="random", num_parts=3)
    assert "random parts have" not in caplog.text
