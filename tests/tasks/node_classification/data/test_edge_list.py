"""Graphs from two tables, CSV or Parquet."""

import gzip

import numpy as np
import polars as pl
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.data.prepare import prepare

EDGES = "src,dst\n10,20\n20,30\n30,10\n10,20\n"
NODES = "id,label,split,f0,f1\n10,0,train,1.5,2\n30,1,val,0,-1\n20,0,test,1e3,0\n7,,,0,0\n"


def load(tmp_path, edges=EDGES, nodes=NODES, **options):
    folder = tmp_path / "tables"
    folder.mkdir(exist_ok=True)
    (folder / "edges.csv").write_text(edges)
    (folder / "nodes.csv").write_text(nodes)
    store = prepare("mine", root=tmp_path / "root", from_path=folder, **options)
    store.verify()
    return store


def test_ids_are_numbered_in_the_order_of_the_nodes(tmp_path):
    store = load(tmp_path)
    topology = store.topology(undirected=False)
    assert topology.indptr.tolist() == [0, 1, 2, 3, 3]
    assert topology.indices.tolist() == [1, 2, 0]  # 30→10, 20→30, 10→20
    assert store.metadata.num_duplicate_edges == 1
    assert store.labels.tolist() == [0, 1, 0, -1]
    assert store.features.x.tolist() == [[1.5, 2], [0, -1], [1000, 0], [0, 0]]
    assert [store.nodes_in(split).tolist() for split in ("train", "val", "test")] == [[0], [1], [2]]


def test_ids_and_labels_may_be_text(tmp_path):
    store = load(
        tmp_path,
        edges="dst,weight,src\nbob,1,ann\n",
        nodes="id,split,age,label\nann,train,3,red\nbob,val,4,blue\n007,test,5,red\n",
    )
    assert store.topology(undirected=False).indices.tolist() == [0]
    assert store.labels.tolist() == [1, 0, 1]
    assert store.metadata.class_names == ("blue", "red")


def test_other_columns_of_edges_are_features_if_they_are_numbers(tmp_path, caplog):
    with caplog.at_level("INFO"):
        store = load(tmp_path, edges="src,weight,kind,dst,length\n10,1,a,20,5\n20,2,b,30,6\n30,3,c,10,7\n10,4,d,20,8\n")
    assert store.metadata.edge_features == ("weight", "length")
    assert store.edge_features(undirected=False).values.tolist() == [[3, 7], [2, 6], [1, 5]]  # 30→10, 20→30, 10→20
    assert "not used: kind of edges.csv" in caplog.text
    assert "of 1 edges that were given again, those of the first are kept" in caplog.text


@pytest.mark.parametrize(("cell", "said"), [("", "it is empty"), ("x", "'x' is not a number")])
def test_a_cell_that_is_no_number(tmp_path, cell, said):
    with pytest.raises(UserError, match=rf"line 3, column weight: {said}"):
        load(tmp_path, edges=f"src,dst,weight\n10,20,1\n20,30,{cell}\n")


@pytest.mark.parametrize("word", ["NA", "nan", "NULL"])
@pytest.mark.parametrize(("one", "other", "names"), [("0", "1", None), ("blue", "red", ("blue", "red"))])
def test_a_missing_label_is_no_class(tmp_path, caplog, word, one, other, names):
    rows = f"1,{one},train,0\n2,{other},val,0\n3,{word},,0\n4,{one},test,0\n"
    with caplog.at_level("INFO"):
        store = load(tmp_path, edges="src,dst\n1,2\n", nodes=f"id,label,split,f\n{rows}")
    assert store.labels.tolist() == [0, 1, -1, 0]
    assert (store.metadata.class_names or None) == names
    assert f"column label: {word} means unlabelled" in caplog.text


def test_gzipped_and_tab_separated(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "edges.csv.gz").write_bytes(gzip.compress(EDGES.encode()))
    (folder / "nodes.tsv").write_text(NODES.replace(",", "\t"))
    store = prepare("mine", root=tmp_path / "root", from_path=folder)
    assert store.metadata.num_edges == 3


def test_parquet_gives_the_same_graph(tmp_path):
    csv = load(tmp_path)
    folder = tmp_path / "parquet"
    folder.mkdir()
    pl.read_csv(tmp_path / "tables" / "edges.csv").write_parquet(folder / "edges.parquet")
    pl.read_csv(tmp_path / "tables" / "nodes.csv").write_parquet(folder / "nodes.parquet")
    parquet = prepare("parquet", root=tmp_path / "root", from_path=folder)
    parquet.verify()
    for name, record in csv.metadata.arrays.items():
        assert record.xxh3 == parquet.metadata.arrays[name].xxh3


def test_parquet_with_float_labels(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    pl.DataFrame({"src": [0], "dst": [1]}).write_parquet(folder / "edges.parquet")
    nodes = {"id": [0, 1, 2], "label": [1.0, 0.0, None], "split": ["train", "val", None], "x": [1, 2, 3]}
    pl.DataFrame(nodes).write_parquet(folder / "nodes.parquet")
    assert prepare("p", root=tmp_path, from_path=folder, save_as="q").labels.tolist() == [1, 0, -1]


def test_a_random_split_needs_no_column(tmp_path):
    store = load(tmp_path, nodes="id,label,f\n10,0,1\n20,1,1\n30,0,2\n", random_split=True)
    assert sum(store.metadata.splits.values()) == 3


@pytest.mark.parametrize("far", [40, 10**12, -(10**12), 2**63 - 1, -(2**63)])
def test_ids_may_lie_far_apart(tmp_path, far):
    nodes = f"id,label,split,f\n10,0,train,1\n{far},1,val,2\n20,0,test,3\n"
    store = load(tmp_path, edges=f"src,dst\n10,{far}\n{far},20\n", nodes=nodes)
    assert store.topology(undirected=False).indptr.tolist() == [0, 0, 1, 2]
    assert store.topology(undirected=False).indices.tolist() == [0, 1]
    with pytest.raises(UserError, match="line 2, column src: node '11' is not"):
        load(tmp_path, edges="src,dst\n11,10\n", nodes=nodes, save_as="again")
    with pytest.raises(UserError, match="line 2, column dst: node '9223372036854775806' is not"):
        load(tmp_path, edges="src,dst\n10,9223372036854775806\n", nodes=nodes, save_as="again")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            {"edges": "src,dst\n10,20\n10,99\n"},
            r"edges\.csv, line 3, column dst: node '99' is not in the table of nodes",
        ),
        ({"edges": "src,dst\n10,20\nx,10\n"}, r"edges\.csv, line 3, column src: 'x' is not an integer"),
        ({"edges": "src,dst\n10,20\n10,\n"}, r"edges\.csv, line 3, column dst: it is empty, and is not an integer"),
        ({"edges": "src,dst\n10,20,30\n"}, r"edges\.csv cannot be read: line 2 has 3 fields, and the first has 2"),
        ({"edges": "src,dst\n"}, "no edges"),
        ({"edges": ""}, r"edges\.csv cannot be read"),
        ({"edges": "from,to\n10,20\n"}, r"edges\.csv lacks the column src"),
        ({"edges": "source,dst\n10,20\n"}, r"lacks the column src \(known: dst, source\)"),
        ({"nodes": "id,label,f\n10,0,1\n"}, r"nodes\.csv lacks the column split"),
        ({"nodes": "id,label,split\n10,0,train\n20,1,val\n30,1,test\n"}, r"nodes\.csv has no feature column"),
        ({"nodes": NODES.replace("1e3", "many")}, r"nodes\.csv, line 4, column f0: 'many' is not a number"),
        (
            {"edges": "src,dst\na,b\nb,\n", "nodes": "id,label,split,f\na,0,train,1\nb,0,val,2\n"},
            r"edges\.csv, line 3, column dst: there is no node",
        ),
        ({"nodes": NODES.replace("1e3", "")}, r"nodes\.csv, line 4, column f0: it is empty, and is not a number"),
        ({"nodes": NODES.replace("1e3", "NaN")}, r"nodes\.csv, line 4, column f0: nan is not a finite"),
        ({"nodes": NODES.replace("1e3", "1e39")}, r"nodes\.csv, line 4, column f0: 1e\+39 is not a finite"),
        ({"nodes": NODES.replace("20,0,test", "10,0,test")}, r"nodes\.csv, line 4, column id: 10 was there before"),
        ({"nodes": NODES.replace("20,0,test", ",0,test")}, r"nodes\.csv, line 4, column id: the id is empty"),
        ({"nodes": NODES.replace("test", "tset")}, r"nodes\.csv, line 4, column split: 'tset' is not a split"),
        ({"nodes": NODES.replace("20,0,test", "20,-4,test")}, r"nodes\.csv, column label; .* node 2 has label -4"),
        ({"nodes": NODES.replace("20,0,test", "20,,test")}, "node 2 is in the test split and has no label"),
        ({"nodes": NODES.replace("train", "none")}, "no node is in the training split"),
    ],
)
def test_refusals_name_file_and_line(tmp_path, tables, said):
    with pytest.raises(UserError) as error:
        load(tmp_path, **tables)
    assert error.match(said)
    assert not (tmp_path / "root" / "mine").exists()


def test_two_tables_of_one_name(tmp_path):
    load(tmp_path)
    (tmp_path / "tables" / "nodes.tsv").write_text("")
    with pytest.raises(UserError, match=r"holds nodes\.csv, nodes\.tsv"):
        prepare("again", root=tmp_path, from_path=tmp_path / "tables")


def test_parquet_ids_are_not_rounded(tmp_path):
    load(tmp_path)
    pl.DataFrame({"src": [10.0, 20.5], "dst": [20, 30]}).write_parquet(tmp_path / "tables" / "edges.parquet")
    (tmp_path / "tables" / "edges.csv").unlink()
    with pytest.raises(UserError, match=r"edges\.parquet, row 1, column src: 20\.5 is not an integer"):
        prepare("again", root=tmp_path, from_path=tmp_path / "tables")


def test_a_column_of_dates_is_no_feature(tmp_path):
    load(tmp_path)
    nodes = pl.read_csv(tmp_path / "tables" / "nodes.csv").with_columns(pl.lit("2024-01-01").str.to_date().alias("day"))
    nodes.write_parquet(tmp_path / "tables" / "nodes.parquet")
    (tmp_path / "tables" / "nodes.csv").unlink()
    with pytest.raises(UserError, match="column day holds Date"):
        prepare("again", root=tmp_path, from_path=tmp_path / "tables")


def test_bytes_that_are_no_text(tmp_path):
    load(tmp_path)
    with (tmp_path / "tables" / "nodes.csv").open("ab") as file:
        file.write(b"9,0,test,\xff\xfe,1\n")
    with pytest.raises(UserError, match=r"nodes\.csv cannot be read: line 6 is not UTF-8: byte 0xff"):
        prepare("again", root=tmp_path, from_path=tmp_path / "tables")


@pytest.mark.slow
def test_twenty_million_edges(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "tables"
    folder.mkdir()
    pl.DataFrame({"src": rng.integers(0, 10**6, 20_000_000), "dst": rng.integers(0, 10**6, 20_000_000)}).write_parquet(
        folder / "edges.parquet"
    )
    nodes = {"id": np.arange(10**6), "label": np.arange(10**6) % 7, "x": rng.random(10**6)}
    pl.DataFrame(nodes).write_csv(folder / "nodes.csv")
    store = prepare("big", root=tmp_path, from_path=folder, random_split=True)
    store.verify()
    assert store.metadata.num_edges + store.metadata.num_duplicate_edges == 20_000_000
