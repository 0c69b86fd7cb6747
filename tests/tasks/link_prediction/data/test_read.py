"""Every layout of raw links: what it gives, whose it is, and what is said of what is malformed."""

import logging

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.graph.splits import SPLITS
from graphmill.tasks.link_prediction.data.prepare import prepare_requested
from graphmill.tasks.link_prediction.data.read import LinkRequest, holds_links, read_links
from graphmill.tasks.link_prediction.page.data import LinkPrepareOptions
from graphmill.tasks.node_classification.data.read import holds_graph
from graphmill.tasks.recognise import Certainty
from graphmill.tasks.stores import Preparation

RING = np.array([[i, (i + 1) % 12] for i in range(12)])


def prepared(tmp_path, path, name="mine", **options):
    root = tmp_path / "root"
    store = prepare_requested(Preparation(name, root, LinkPrepareOptions(**options), path, force=True))
    store.verify()
    return store


def ends(links):
    return links.ends.T.tolist()


# ---- npz -------------------------------------------------------------------------------------------------------------


def npz(tmp_path, **arrays):
    path = tmp_path / "links.npz"
    np.savez(path, **arrays)
    return path


def given_links():
    return {
        "edge_index": RING[:8].T,
        "train_links": RING[:8],
        "val_links": RING[8:10],
        "test_links": RING[10:],
        "x": np.random.default_rng(0).random((12, 3)),
    }


def test_npz_with_links_of_each_split(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    store = prepared(tmp_path, npz(tmp_path, **given_links(), names=np.array(list("abcdefghijkl")), note=np.zeros(1)))
    assert ends(store.links("val")) == RING[8:10].tolist()
    assert store.metadata.links_have_direction
    assert store.names_of([3]) == ["d"]
    assert "not used: note of links.npz" in caplog.text
    assert "links: train 8, val 2, test 2" in caplog.text


def test_npz_with_candidates(tmp_path):
    given = {"val_candidates": np.full((2, 3), 5), "test_candidates": np.full((2, 4), 6)}
    assert prepared(tmp_path, npz(tmp_path, **given_links(), **given)).candidates("test").targets.shape == (2, 4)
    pool = {"val_pool": np.array([[0, 5], [1, 7], [2, 9]]), "test_pool": np.array([[0, 5]])}
    store = prepared(tmp_path, npz(tmp_path, **given_links(), **pool))
    assert store.candidates("val").pairs.tolist() == [[0, 1, 2], [5, 7, 9]]


def test_npz_of_triples(tmp_path):
    arrays = given_links()
    del arrays["x"]
    kinds = np.arange(12) % 3
    for split, rows in (("train", slice(0, 8)), ("val", slice(8, 10)), ("test", slice(10, 12))):
        arrays[f"{split}_links"] = np.stack([RING[rows, 0], kinds[rows], RING[rows, 1]], axis=1)
    store = prepared(tmp_path, npz(tmp_path, **arrays, edge_type=kinds[:8], num_nodes=np.array(14)))
    assert store.metadata.num_nodes == 14
    assert store.metadata.num_features == 0
    assert store.links("test").columns.tolist() == [[10, 11], [11, 0], [1, 2]]
    assert store.relation_names == ("0", "1", "2")
    plain = prepared(tmp_path, tmp_path / "links.npz", typed=False)
    assert plain.metadata.num_relations == 0
    both = prepared(tmp_path, tmp_path / "links.npz", reverse_relations=True)
    assert (both.metadata.num_relations, len(both.metadata.edge_types), both.metadata.num_edges) == (3, 6, 16)


def test_npz_of_edges_alone(tmp_path):
    path = npz(tmp_path, edge_index=np.concatenate([RING, RING + 12]).T, edge_time=np.arange(24))
    with pytest.raises(UserError, match="there is no split") as error:
        prepared(tmp_path, path)
    assert "--random-split" in error.value.fix
    assert "time_split" in error.value.fix
    store = prepared(tmp_path, path, random_split=True, val_fraction=0.1)
    assert store.metadata.links == {"train": 20, "val": 2, "test": 2}
    store = prepared(tmp_path, path, time_split=True, val_fraction=0.1)
    assert ends(store.links("test")) == [[22, 23], [23, 12]]
    assert store.metadata.num_nodes == 24


def test_npz_with_codes(tmp_path):
    split = np.array(["train"] * 8 + ["valid", "test", "test", "none"])
    store = prepared(tmp_path, npz(tmp_path, edge_index=RING.T, split=split))
    assert store.metadata.links == {"train": 8, "val": 1, "test": 2}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"val_links": RING[8:10].T[None]}, "key val_links"),
        ({"val_links": RING[8:10] + 0.5}, "key val_links"),
        ({"val_links": np.full((1, 3), 1)}, "a relation|edges have none"),
        ({"val_links": None}, "lacks val_links"),
        ({"x": np.full((12, 1), np.inf)}, "inf"),
        ({"x": np.zeros((9, 1))}, "nodes run from 0 to 8"),
        ({"names": np.array(["a"])}, "1 names"),
        ({"names": np.zeros(12)}, "key names"),
        ({"val_candidates": np.zeros((2, 3), int)}, "candidates of val"),
        ({"val_pool": np.zeros((2, 3), int), "test_candidates": np.zeros((2, 3), int)}, "not of one kind"),
        ({"val_candidates": np.zeros((2, 3)), "test_candidates": np.zeros((2, 3))}, "float64"),
        ({"edge_index": np.zeros((2, 0), int)}, "no edges"),
        ({"edge_index": np.array([[99], [0]])}, "99"),
        ({"edge_type": np.array([0, -1] * 4)}, "edge_type"),
    ],
)
def test_malformed_npz(tmp_path, change, found):
    arrays = {key: value for key, value in {**given_links(), **change}.items() if value is not None}
    with pytest.raises(UserError, match=found):
        prepared(tmp_path, npz(tmp_path, **arrays))


def test_a_split_of_its_own_is_not_drawn_anew(tmp_path):
    with pytest.raises(UserError, match="of its own"):
        prepared(tmp_path, npz(tmp_path, **given_links()), random_split=True)


def test_num_nodes_that_is_no_count(tmp_path):
    with pytest.raises(UserError, match="num_nodes"):
        prepared(tmp_path, npz(tmp_path, edge_index=RING.T, num_nodes=np.array([1, 2])), random_split=True)


# ---- PyG -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def random_link_split():
    """A ring with chords, split by PyG."""
    torch = pytest.importorskip("torch")
    transforms = pytest.importorskip("torch_geometric.transforms")
    data = pytest.importorskip("torch_geometric.data")
    torch.manual_seed(0)
    ring = torch.tensor([[i, (i + step) % 30] for i in range(30) for step in (1, 3)]).T
    graph = data.Data(
        x=torch.rand(30, 4), edge_index=torch.cat([ring, ring.flip(0)], dim=1), y=torch.zeros(30), num_nodes=30
    )
    return {
        "joint": transforms.RandomLinkSplit(0.1, 0.2, is_undirected=True)(graph),
        "separate": transforms.RandomLinkSplit(0.1, 0.2, split_labels=True, add_negative_train_samples=False)(graph),
        "disjoint": transforms.RandomLinkSplit(0.1, 0.2, is_undirected=True, disjoint_train_ratio=0.3)(graph),
    }


def saved(tmp_path, parts):
    import torch

    folder = tmp_path / "saved"
    folder.mkdir()
    for name, part in zip(("train", "val", "test"), parts, strict=True):
        torch.save(part, folder / f"{name}.pt")
    return folder


@pytest.mark.parametrize("kind", ["joint", "disjoint"])
def test_random_link_split_of_pyg(tmp_path, random_link_split, kind, caplog):
    caplog.set_level(logging.INFO)
    parts = random_link_split[kind]
    store = prepared(tmp_path, saved(tmp_path, parts))
    assert not store.metadata.links_have_direction
    assert store.metadata.candidates == "shared"
    assert store.metadata.num_edges == parts[0].edge_index.shape[1]
    for split, part in zip(SPLITS, parts, strict=True):
        assert ends(store.links(split)) == part.edge_label_index[:, part.edge_label == 1].T.tolist()
    assert store.candidates("test").pairs.tolist() == parts[2].edge_label_index[:, parts[2].edge_label == 0].tolist()
    assert np.array_equal(store.features.x, parts[0].x.numpy())
    assert "not used: y of train.pt" in caplog.text
    assert "pairs of train that are no links" in caplog.text


def test_random_link_split_with_separate_labels(tmp_path, random_link_split):
    parts = random_link_split["separate"]
    store = prepared(tmp_path, saved(tmp_path, parts), undirected=False)
    assert ends(store.links("val")) == parts[1].pos_edge_label_index.T.tolist()
    assert store.candidates("val").pairs.tolist() == parts[1].neg_edge_label_index.tolist()


def test_random_link_split_as_arrays(tmp_path, random_link_split):
    arrays = {
        f"{split}_{key}": part[key].numpy()
        for split, part in zip(SPLITS, random_link_split["joint"], strict=True)
        for key in ("edge_index", "edge_label_index", "edge_label")
    }
    from_npz = prepared(tmp_path, npz(tmp_path, **arrays, x=random_link_split["joint"][0].x.numpy()))
    from_files = prepared(tmp_path, saved(tmp_path, random_link_split["joint"]))
    for name in ("train_links", "val_links", "test_links", "val_pool", "test_pool", "indices", "x"):
        assert np.array_equal(from_npz.array(name), from_files.array(name))


def test_a_saved_object_is_not_executed(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    folder = tmp_path / "saved"
    folder.mkdir()
    for name in ("train", "val", "test"):
        torch.save({"x": Exploit(tmp_path / "ran")}, folder / f"{name}.pt")
    with pytest.raises(UserError, match="could run code"):
        prepared(tmp_path, folder)
    assert not (tmp_path / "ran").exists()


class Exploit:
    """Whoever unpickles it writes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


# ---- text and tables -------------------------------------------------------------------------------------------------

TRIPLES = {
    "train": [("/m/a", "likes", "/m/b"), ("/m/b", "knows", 'c "d'), ("ü", "likes", "/m/a")],
    "valid": [("ü", "knows", "/m/b")],
    "test": [("/m/b", "likes", "new one")],
}


def triples(tmp_path, **changes):
    folder = tmp_path / "FB"
    folder.mkdir()
    for name, rows in {**TRIPLES, **changes}.items():
        (folder / f"{name}.txt").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_triples(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    folder = triples(tmp_path)
    (folder / "entity2id.txt").write_text("1\n")
    store = prepared(tmp_path, folder)
    names = store.names_of(range(store.metadata.num_nodes))
    for split, rows in zip(SPLITS, TRIPLES.values(), strict=True):
        links = store.links(split)
        found = [
            (names[source], store.relation_names[relation], names[target])
            for source, target, relation in links.columns.T.tolist()
        ]
        assert found == rows
    assert "not used: entity2id.txt of FB" in caplog.text
    assert "nodes without message edges: 1 of 5; 1 links" in caplog.text


def test_pairs_as_text(tmp_path):
    pairs = {name: [row[::2] for row in rows] for name, rows in TRIPLES.items()}
    assert prepared(tmp_path, triples(tmp_path, **pairs)).metadata.num_relations == 0


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([("a", "b")], "2 and 3 fields"),
        ([("a", "likes", "")], "line 1: the tail is empty"),
        ([("a", "likes", "b"), ("a", "likes", "b", "c")], "valid.txt"),
        ([("a", "likes", "b"), ("a", "likes")], "line 2"),
        ([], "valid.txt"),
    ],
)
def test_malformed_triples(tmp_path, rows, found):
    with pytest.raises(UserError, match=found):
        prepared(tmp_path, triples(tmp_path, valid=rows))


def test_table_with_times(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("head,tail,time,note\n" + "".join(f"{u},{v},{u * 10},x\n" for u, v in RING))
    store = prepared(tmp_path, path, time_split=True, val_fraction=0.1, test_fraction=0.2)
    assert store.names_of(range(12)) == [str(i) for i in range(12)], "whole numbers ascend"
    assert ends(store.links("test")) == [[10, 11], [11, 0]]


def test_tables_of_links_and_nodes(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "nodes.tsv").write_text(
        "id\ttype\ta\tb\n" + "".join(f"n{i}\t{'user' if i % 2 else 'item'}\t{i}\t{i / 2}\n" for i in range(12))
    )
    rows = [
        f"n{u},n{v},{'up' if u % 2 else 'down'},{'train' if u < 8 else 'val' if u < 10 else 'test'}" for u, v in RING
    ]
    (folder / "links.csv").write_text("source,target,relation,split\n" + "\n".join(rows) + "\n")
    store = prepared(tmp_path, folder)
    assert [each.name for each in store.metadata.node_types] == ["item", "user"]
    assert [str(each.relation) for each in store.metadata.edge_types] == ["item:down:user", "user:up:item"]
    assert store.features.x[3].tolist() == [3, 1.5]
    assert store.names_of([11]) == ["n11"]
    assert store.metadata.links == {"train": 8, "val": 2, "test": 2}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("source,to\na,b\n", "lacks the column target"),
        ("source,target\n", "no row"),
        ("source,target,split\na,b,perhaps\n", "'perhaps' is not a split"),
        ("source,target,time\na,b,soon\n", "line 2, column time"),
        ("source,target\na,\n", "line 2: the target is empty"),
        ("source,target,relation\na,b,\n", "line 2: the relation is empty"),
    ],
)
def test_malformed_table(tmp_path, text, found):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=found):
        prepared(tmp_path, path)


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("id,a\na,1\n", "node 'b' is not in nodes.csv"),
        ("name\na\n", "lacks the column id"),
        ("id\na\na\n", "was there before"),
        ("id,a\na,1\nb,x\n", "column a"),
        ("id\n", "no row"),
    ],
)
def test_malformed_nodes(tmp_path, nodes, found):
    (tmp_path / "links.csv").write_text("source,target,split\na,b,train\n")
    (tmp_path / "nodes.csv").write_text(nodes)
    with pytest.raises(UserError, match=found):
        prepared(tmp_path, tmp_path)


# ---- the rest --------------------------------------------------------------------------------------------------------


def test_dependencies_of_debian(tmp_path):
    store = prepared(tmp_path, None, "debian-dependencies")
    assert store.metadata.links == {"train": 324_986, "val": 80_054, "test": 185_938}
    assert store.metadata.links_have_direction
    assert not store.metadata.synthetic
    source, target = store.links("train").ends[:, 0]
    assert store.names_of([source, target]) == ["0ad", "0ad-data"]


def test_generated_links(tmp_path):
    one = prepared(tmp_path, None, "synthetic/nearest", num_nodes=200, seed=1)
    assert one.metadata.synthetic
    assert one.metadata.num_features == 32
    again = prepared(tmp_path, None, "synthetic/nearest", num_nodes=200, seed=1)
    assert one.metadata.checksum == again.metadata.checksum
    other = prepared(tmp_path, None, "synthetic/nearest", num_nodes=200, seed=2)
    assert one.metadata.checksum != other.metadata.checksum


@pytest.mark.parametrize(
    ("name", "path", "options", "found"),
    [
        ("mine", None, {}, "needs --from"),
        ("ogbl-ppa", None, {}, "needs --from"),
        ("mine", "absent.npz", {}, "does not exist"),
        ("mine", ".", {}, "in no layout"),
        ("debian-dependencies", None, {"num_nodes": 5}, "not generated"),
        ("synthetic/nearest", ".", {}, "reads nothing"),
        ("synthetic/nearest", None, {"num_nodes": 3}, "num_nodes"),
        ("synthetic/nearest", None, {"num_nodes": 10, "neighbours": 10}, "10 neighbours"),
        ("synthetic/nearest", None, {"random_split": True, "time_split": True}, "both set"),
    ],
)
def test_what_is_asked_for_amiss(tmp_path, name, path, options, found):
    with pytest.raises(UserError, match=found):
        prepared(tmp_path, path and tmp_path / path, name, **options)


def test_a_store_that_is_there_is_kept(tmp_path):
    root = tmp_path / "root"
    asked = Preparation("synthetic/nearest", root, LinkPrepareOptions(num_nodes=50))
    first = prepare_requested(asked)
    plain = Preparation("synthetic/nearest", root, LinkPrepareOptions())
    assert prepare_requested(plain).metadata == first.metadata
    with pytest.raises(UserError, match="holds a prepared dataset"):
        prepare_requested(asked)


def test_sparse_features_have_one_dtype(tmp_path):
    with pytest.raises(UserError, match="sparse"):
        prepared(tmp_path, None, "debian-dependencies", feature_dtype="float16")


def test_each_layout_is_recognised(tmp_path, random_link_split):
    (tmp_path / "t.csv").write_text("source,target\na,b\n")
    (tmp_path / "other.csv").write_text("when,what\n1,2\n")
    np.savez(tmp_path / "graph.npz", edge_index=RING.T, y=np.zeros(12, int), x=np.ones((12, 1)))
    named = [
        npz(tmp_path, **given_links()),
        triples(tmp_path),
        saved(tmp_path, random_link_split["joint"]),
    ]
    for path in named:
        look = holds_links(path)
        assert look is not None
        assert look.certainty == Certainty.NAMED
        other = holds_graph(path)
        assert other is None or other.certainty < Certainty.NAMED
    assert holds_links(tmp_path / "t.csv").certainty == Certainty.SHAPED
    for path in (tmp_path / "graph.npz", tmp_path / "other.csv", tmp_path, tmp_path / "absent.npz"):
        assert holds_links(path) is None


@pytest.mark.parametrize(
    ("file", "options", "links", "direction"),
    [
        ("wordnet31", {}, (310_374, 18_236, 36_509), True),
        ("cora", {}, (4_486, 264, 528), False),
        ("pubmed", {}, (37_676, 2_216, 4_432), False),
    ],
)
def test_real_graphs(tmp_path, shared_data, file, options, links, direction):
    store = prepared(tmp_path, shared_data(f"nodes/{file}.npz"), random_split=True, **options)
    assert tuple(store.metadata.links.values()) == links
    assert store.metadata.links_have_direction is direction
    assert store.metadata.num_relations == (26 if file == "wordnet31" else 0)


def test_a_request_says_what_it_reads(tmp_path):
    raw = read_links(LinkRequest("synthetic/nearest", "mine", None, LinkPrepareOptions(num_nodes=30), tmp_path))
    assert raw.name == "mine"
    assert raw.synthetic
