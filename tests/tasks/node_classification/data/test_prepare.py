"""`prepare`: names, places, what is there already, and what the network does not bring."""

import http.server
import io
import threading
import zipfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.graph.header import prepared_in
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.tasks.node_classification.data.sources import ogb, planetoid, raw_npz
from graphmill.tasks.node_classification.data.sources.download import fetch, unpack
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.page.data import DATASETS
from graphmill.tasks.stores import store_path

SBM = {"num_nodes": 100, "num_edges": 400, "features": 4}


def test_a_store_that_is_there_is_kept(tmp_path, caplog):
    first = prepare("synthetic/sbm", root=tmp_path, options=SBM)
    caplog.clear()
    again = prepare("synthetic/sbm", root=tmp_path)
    assert again == first
    assert caplog.messages == [f"synthetic/sbm is prepared already: {first.path}"]


def test_other_wishes_do_not_meet_an_old_store(tmp_path):
    prepare("synthetic/sbm", root=tmp_path, options=SBM)
    with pytest.raises(UserError, match="holds a prepared dataset") as error:
        prepare("synthetic/sbm", root=tmp_path, options=SBM | {"seed": 1})
    assert "--force" in error.value.fix
    rebuilt = prepare("synthetic/sbm", root=tmp_path, options=SBM | {"seed": 1}, force=True)
    assert "seed=1" in rebuilt.metadata.source
    assert (
        "seed=2" in prepare("synthetic/sbm", root=tmp_path, options=SBM | {"seed": 2}, save_as="other").metadata.source
    )


def test_a_damaged_store_is_built_again_and_that_is_said(tmp_path, caplog):
    store = prepare("synthetic/sbm", root=tmp_path, options=SBM)
    (store.path / "x.npy").write_bytes(b"")
    caplog.clear()
    prepare("synthetic/sbm", root=tmp_path, options=SBM).verify()
    assert "is damaged and is built again" in caplog.messages[0]
    assert caplog.records[0].levelname == "WARNING"


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_no_store_is_not_replaced(tmp_path, force):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="holds other files"):
        prepare("synthetic/sbm", root=tmp_path, options=SBM, save_as="mine", force=force)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_stores_do_not_nest(tmp_path):
    prepare("synthetic/sbm", root=tmp_path, options=SBM, save_as="a/b")
    with pytest.raises(UserError, match="holds other files"):
        prepare("synthetic/sbm", root=tmp_path, options=SBM, save_as="a", force=True)
    with pytest.raises(UserError, match="is a store"):
        prepare("synthetic/sbm", root=tmp_path, options=SBM, save_as="a/b/c")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/../b", "/etc", "a//b", "-x", "a b", "a\nb", ".hidden"])
def test_names_stay_under_the_root(tmp_path, name):
    with pytest.raises(UserError, match="cannot name a dataset"):
        store_path(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "meant"), [("planetoid/pubmedd", "planetoid/pubmed"), ("cora", "planetoid/cora"), ("cs", "coauthor/cs")]
)
def test_an_unknown_name_suggests_the_nearest(tmp_path, name, meant):
    with pytest.raises(UserError, match=f"did you mean '{meant}'"):
        prepare(name, root=tmp_path)


def test_an_unknown_layout_lists_the_known_ones(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="in no layout") as error:
        prepare("mine", root=tmp_path, from_path=tmp_path / "folder")
    assert "edges.csv" in error.value.fix


@pytest.mark.parametrize("name", ["reddit", "planetoid/cora", "amazon/photo", "ogbn-arxiv", "debian-packages", "mine"])
def test_an_empty_folder_and_a_missing_one(tmp_path, name):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(UserError, match=str(path)):
            prepare(name, root=tmp_path / "root", from_path=path)
    assert not list((tmp_path / "root").glob("*")) if (tmp_path / "root").exists() else True


def test_options_belong_to_generators(tmp_path):
    with pytest.raises(UserError, match="takes no options"):
        prepare("reddit", root=tmp_path, options={"seed": 1})
    with pytest.raises(UserError, match="is generated"):
        prepare("synthetic/sbm", root=tmp_path, from_path=tmp_path)


def test_features_may_be_rounded(tmp_path):
    store = prepare("synthetic/sbm", root=tmp_path, options=SBM, feature_dtype="bfloat16")
    store.verify()
    assert store.metadata.feature_dtype == "bfloat16"
    with pytest.raises(UserError, match="sparse values are always float32"):
        prepare("debian-packages", root=tmp_path, feature_dtype="float16")


def test_a_random_split_replaces_the_own(tmp_path):
    store = prepare("debian-packages", root=tmp_path, random_split=True, split_seed=5)
    assert store.metadata.split == "random 60/20/20 of the labelled nodes, seed 5, drawn by graphmill"


def test_prepared_datasets_are_listed_by_path(tmp_path):
    for name in ("b", "a/x"):
        prepare("synthetic/sbm", root=tmp_path, options=SBM, save_as=name)
    (tmp_path / ".b.host@1.new.tmp").mkdir()
    (tmp_path / ".b.host@1.new.tmp" / "metadata.json").write_text((tmp_path / "b" / "metadata.json").read_text())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "metadata.json").write_text("{}")
    assert [header.name for _, header in prepared_in(tmp_path)] == ["a/x", "b"]
    assert list(prepared_in(tmp_path / "nothing")) == []


def test_known_names_are_valid_and_unique():
    names = [dataset.name for dataset in DATASETS]
    assert len(set(names)) == len(names)
    for dataset in DATASETS:
        store_path(dataset.name, Path())
        assert dataset.origin in {"embedded", "download", "generated", "given"}


class Server(http.server.BaseHTTPRequestHandler):
    """A web server with a few faults."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self):
        content = self.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) + (9 if "short" in self.path else 0)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """The address of a real server; `Server.files` is what it has."""
    monkeypatch.setattr(Server, "files", {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize(
    ("name", "where", "layout"),
    [
        ("planetoid/cora", (planetoid, "URL"), "ind.cora.x"),
        ("amazon/photo", (raw_npz, "SHCHUR_URL"), "amazon_electronics_photo.npz"),
        ("reddit", (raw_npz, "REDDIT_URL"), "reddit_graph.npz"),
        ("ogbn-arxiv", (ogb, "URL"), "node-feat"),
    ],
)
def test_a_download_that_fails_names_from_and_the_layout(tmp_path, monkeypatch, server, name, where, layout):
    monkeypatch.setattr(*where, server)
    with pytest.raises(UserError, match=r"could not be downloaded: Not Found") as error:
        prepare(name, root=tmp_path)
    assert "--from PATH" in error.value.fix
    assert layout in error.value.fix
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_no_server(tmp_path, monkeypatch):
    monkeypatch.setattr(planetoid, "URL", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="could not be downloaded"):
        prepare("planetoid/cora", root=tmp_path)


def test_a_download_is_read_and_kept(tmp_path, monkeypatch, server, shared_data, caplog):
    for path in shared_data("raw_layouts/Cora/raw").iterdir():
        Server.files[f"/{path.name}"] = path.read_bytes()
    monkeypatch.setattr(planetoid, "URL", server)
    prepare("planetoid/cora", root=tmp_path).verify()
    assert len(caplog.messages) == 8
    Server.files.clear()
    prepare("planetoid/cora", root=tmp_path, force=True).verify()
    assert len(caplog.messages) == 8
    assert [header.name for _, header in prepared_in(tmp_path)] == ["planetoid/cora"]


def test_a_download_cut_short_is_refused(tmp_path, server):
    Server.files["/short"] = b"abc"
    with pytest.raises(UserError, match="could not be downloaded"):
        fetch(f"{server}/short", tmp_path / "f", layout="it")
    assert list(tmp_path.iterdir()) == []


def test_an_archive_without_the_file(tmp_path):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("../a", "outside")
    (tmp_path / "z.zip").write_bytes(content.getvalue())
    with pytest.raises(UserError, match="cannot be unpacked"):
        unpack(tmp_path / "z.zip", tmp_path / "out", ["a"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "z.zip"]


def test_open_after_prepare_is_the_same(tmp_path):
    store = prepare("synthetic/sbm", root=tmp_path, options=SBM)
    assert LabelledGraphStore.open(tmp_path / "synthetic" / "sbm") == store
    assert np.array_equal(store.nodes_in("train"), LabelledGraphStore.open(store.path).nodes_in("train"))


@pytest.mark.parametrize("typed", [False, True])
def test_many_self_loops_are_remarked_upon_and_left_out_as_the_remark_says(tmp_path, caplog, typed):
    rng = np.random.default_rng(0)
    pairs = np.array([(a, b) for a in range(20) for b in range(20) if a < b and (a + b) % 3])
    ends = np.concatenate([pairs, np.repeat(np.arange(20), 2).reshape(-1, 2)]).T
    features = np.arange(ends.shape[1], dtype=np.float32)[:, None]
    types = {"edge_type": np.arange(ends.shape[1]) % 2, "edge_type_names": ["a", "b"]} if typed else {}
    np.savez(tmp_path / "g.npz", edge_index=ends, x=rng.normal(size=(20, 3)), y=np.arange(20) % 2, edge_attr=features,
             split=np.arange(20) % 3, **types)  # fmt: skip
    with caplog.at_level("INFO"):
        store = prepare("g", root=tmp_path, from_path=tmp_path / "g.npz")
    assert store.metadata.num_self_loops == 20
    (remark,) = [text for text in caplog.messages if text.startswith("self-loops: 20 of")]
    assert "-o self_loops=false" in remark
    without = prepare("g", root=tmp_path, from_path=tmp_path / "g.npz", self_loops=False, save_as="without")
    without.verify()
    assert (without.metadata.num_self_loops, without.metadata.num_edges) == (0, len(pairs))
    assert without.metadata.edge_features == store.metadata.edge_features


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (["raw/amazon_electronics_photo.npz"], "amazon/photo"),
        (["ms_academic_cs.npz"], "coauthor/cs"),
        ([f"Cora/raw/{file}" for file in planetoid.file_names("cora")], "planetoid/cora"),
        (list(raw_npz.REDDIT_FILES), "reddit"),
    ],
)
def test_the_files_of_a_published_set_under_a_name_of_ones_own_say_whose_they_are(tmp_path, files, name):
    for file in files:
        (tmp_path / "raw data" / file).parent.mkdir(parents=True, exist_ok=True)
        np.savez(tmp_path / "raw data" / "empty.npz")
        (tmp_path / "raw data" / "empty.npz").rename(tmp_path / "raw data" / file)
    places = [tmp_path / "raw data", *([tmp_path / "raw data" / files[0]] if len(files) == 1 else [])]
    for place in places:
        with pytest.raises(UserError, match=name) as refused:
            prepare("mine", root=tmp_path, from_path=place)
        assert refused.value.fix == f"graphmill prepare {name} --from '{place}' --as mine"
