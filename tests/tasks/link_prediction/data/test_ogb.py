"""OGB's link sets from small folders in their layouts, and what is said of damaged ones."""

import gzip
import io
import logging
import pickle
import zipfile

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.link_prediction.data.links import GivenCandidates, SharedCandidates
from graphmill.tasks.link_prediction.data.prepare import prepare_requested
from graphmill.tasks.link_prediction.data.read import holds_links
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


class Exploit:
    """Whoever unpickles it writes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def as_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()))


def save_arrays(path, arrays, *, legacy=False):
    """As torch.save writes a dict of numpy arrays, which needs no torch to be imitated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if legacy:
        buffer = io.BytesIO()
        for each in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, arrays, []):
            pickle.dump(each, buffer, protocol=2)
        path.write_bytes(buffer.getvalue())
        return
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train/data.pkl", pickle.dumps(arrays, protocol=2))
        archive.writestr("train/version", "3\n")


def ogb_folder(tmp_path, name, splits, *, kind="time", legacy=False, num_nodes=12, **more):
    folder = tmp_path / name
    as_csv(folder / "raw/edge.csv.gz", RING[:8])
    as_csv(folder / "raw/num-node-list.csv.gz", [num_nodes])
    as_csv(folder / "raw/num-edge-list.csv.gz", [8])
    for stem, rows in more.items():
        as_csv(folder / f"raw/{stem.replace('__', '-')}.csv.gz", rows)
    for file, arrays in splits.items():
        save_arrays(folder / f"split/{kind}/{file}.pt", arrays, legacy=legacy)
    return folder


def pooled():
    return {
        "train": {"edge": RING[:8], "weight": np.ones(8), "year": np.full(8, 2000)},
        "valid": {"edge": RING[8:10], "edge_neg": np.array([[0, 5], [1, 6], [2, 7]])},
        "test": {"edge": RING[10:], "edge_neg": np.array([[0, 6]])},
    }


@pytest.mark.parametrize("legacy", [False, True])
def test_ogbl_collab(tmp_path, legacy, caplog):
    caplog.set_level(logging.INFO)
    x = np.round(np.random.default_rng(0).random((12, 3)), 3)
    weights, years = np.arange(1, 9), np.full(8, 2000)
    more = {"node__feat": x, "edge_weight": weights, "edge_year": years}
    ogb_folder(tmp_path, "ogbl_collab", pooled(), legacy=legacy, **more)
    store = prepared(tmp_path, tmp_path, "ogbl-collab")
    assert not store.metadata.links_have_direction
    assert store.metadata.is_symmetric
    assert store.metadata.num_edges == 16
    assert store.metadata.edge_features == ("edge_weight",)
    assert store.metadata.split == "public: time"
    assert isinstance(store.candidates("val"), SharedCandidates)
    assert store.candidates("val").pairs.T.tolist() == [[0, 5], [1, 6], [2, 7]]
    assert np.allclose(store.features.x, x)
    assert "not used: raw/edge_year.csv.gz of ogbl_collab" in caplog.text
    assert "year of train.pt" in caplog.text


def test_ogbl_ppa(tmp_path):
    splits = {file: {k: v for k, v in each.items() if k[:4] == "edge"} for file, each in pooled().items()}
    ogb_folder(tmp_path, "ogbl_ppa", splits, kind="throughput", node__feat=np.eye(12, dtype=int))
    store = prepared(tmp_path, tmp_path / "ogbl_ppa", "ogbl-ppa")
    assert store.metadata.num_features == 12
    assert not store.metadata.links_have_direction
    assert prepared(tmp_path, tmp_path / "ogbl_ppa").metadata.split == "public: throughput"


def test_ogbl_citation2(tmp_path):
    def ranked(rows, k):
        negatives = np.random.default_rng(1).integers(0, 12, (len(rows), k))
        return {"source_node": rows[:, 0], "target_node": rows[:, 1], "target_node_neg": negatives}

    train = {"source_node": RING[:8, 0], "target_node": RING[:8, 1]}
    splits = {"train": train, "valid": ranked(RING[8:10], 5), "test": ranked(RING[10:], 5)}
    ogb_folder(tmp_path, "ogbl_citation2", splits, node__feat=np.ones((12, 2)), node_year=np.ones(12))
    store = prepared(tmp_path, tmp_path, "ogbl-citation2")
    assert store.metadata.links_have_direction
    assert isinstance(store.candidates("test"), GivenCandidates)
    assert store.candidates("test").targets.tolist() == splits["test"]["target_node_neg"].tolist()
    assert store.candidates("test").sources is None


def wikikg(rows, relation, k=0):
    found = {"head": rows[:, 0], "relation": relation, "tail": rows[:, 1]}
    if k:
        rng = np.random.default_rng(2)
        found |= {f"{end}_neg": rng.integers(0, 12, (len(rows), k)) for end in ("head", "tail")}
    return found


def test_ogbl_wikikg2(tmp_path):
    relation = np.arange(12) % 3
    splits = {
        "train": wikikg(RING[:8], relation[:8]),
        "valid": wikikg(RING[8:10], relation[8:10], 4),
        "test": wikikg(RING[10:], relation[10:], 4),
    }
    ogb_folder(tmp_path, "ogbl_wikikg2", splits, edge_reltype=relation[:8])
    store = prepared(tmp_path, tmp_path, "ogbl-wikikg2")
    assert store.metadata.num_features == 0
    assert store.metadata.num_relations == 3
    assert store.links("test").columns.tolist() == [[10, 11], [11, 0], [1, 2]]
    assert store.candidates("val").sources.tolist() == splits["valid"]["head_neg"].tolist()
    assert store.candidates("val").targets.tolist() == splits["valid"]["tail_neg"].tolist()


def test_ogb_splits_that_hold_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    folder = ogb_folder(tmp_path, "ogbl_collab", pooled())
    for file, arrays in pooled().items():
        torch.save({key: torch.from_numpy(value) for key, value in arrays.items()}, folder / f"split/time/{file}.pt")
    assert prepared(tmp_path, tmp_path, "ogbl-collab").links("val").ends.T.tolist() == RING[8:10].tolist()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda f: (f / "split/time/valid.pt").write_bytes(b"nothing"), "valid.pt"),
        (lambda f: (f / "split/time/valid.pt").unlink(), "valid.pt"),
        (lambda f: save_arrays(f / "split/time/valid.pt", {"edge": Exploit(f / "ran")}), "valid.pt"),
        (lambda f: save_arrays(f / "split/time/valid.pt", {"edge": np.zeros((2, 5), int)}), "not pairs of nodes"),
        (lambda f: save_arrays(f / "split/time/valid.pt", {"edges": np.zeros((2, 2), int)}), "lacks source_node"),
        (lambda f: save_arrays(f / "split/time/valid.pt", [1, 2]), "a list"),
        (lambda f: as_csv(f / "raw/num-edge-list.csv.gz", [9]), "num-edge-list"),
        (lambda f: as_csv(f / "raw/num-node-list.csv.gz", [3]), "nodes run from 0 to 2"),
        (lambda f: as_csv(f / "raw/node-feat.csv.gz", [[1.0]]), "1 rows"),
        (lambda f: as_csv(f / "raw/edge_weight.csv.gz", [1.0]), "1 rows"),
        (lambda f: save_arrays(f / "split/other/train.pt", {}), "one split folder"),
    ],
)
def test_damaged_ogb_folder(tmp_path, damage, found):
    folder = ogb_folder(tmp_path, "ogbl_collab", pooled())
    damage(folder)
    with pytest.raises(UserError, match=found):
        prepared(tmp_path, folder, "ogbl-collab")
    assert not (folder / "ran").exists()


def test_ogb_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="holds no ogbl-collab"):
        prepared(tmp_path, tmp_path, "ogbl-collab")
    folder = ogb_folder(tmp_path, "elsewhere", pooled())
    with pytest.raises(UserError, match="does not say which link set"):
        prepared(tmp_path, folder)


def test_recognised(tmp_path):
    folder = ogb_folder(tmp_path, "ogbl_collab", pooled())
    assert holds_links(folder).certainty == Certainty.NAMED
    assert holds_graph(folder) is None
