"""Graphs in two tables, edges and nodes, as spreadsheets and other programs leave them."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rows.mishap import Mishap

EDGES = "src,dst\n10,20\n20,30\n30,10\n"
NODES = "id,label,split,f0,f1\n10,0,train,1.5,2\n30,1,val,0,-1\n20,0,test,1e3,0\n7,,,0,0\n"
PREPARE = "prepare mine --from tables --dataset-root root"
MADE = ("root",)


def tables(edges: str | bytes | None = EDGES, nodes: str | bytes | None = NODES) -> Callable[[Path], object]:
    """Write edges.csv and nodes.csv, or leave one out."""

    def make(folder: Path) -> None:
        (folder / "tables").mkdir()
        for name, text in (("edges.csv", edges), ("nodes.csv", nodes)):
            if text is not None:
                (folder / "tables" / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return make


def files(**contents: bytes) -> Callable[[Path], object]:
    """Write files of any name: `edges_csv` is edges.csv."""

    def make(folder: Path) -> None:
        (folder / "tables").mkdir()
        for name, content in contents.items():
            (folder / "tables" / name.replace("_", ".")).write_bytes(content)

    return make


def row(number: int, text: str) -> str:
    """The table of nodes with one line replaced."""
    lines = NODES.splitlines()
    lines[number] = text
    return "\n".join([*lines, ""])


def csv(name: str, make: Callable[[Path], object], *says: str, **more: Any) -> Mishap:
    return Mishap(f"csv: {name}", PREPARE, says, make, **more)


def told(name: str, make: Callable[[Path], object], *says: str, **more: Any) -> Mishap:
    return csv(name, make, *says, status=0, leaves=MADE, **more)


ROWS = [
    csv("no folder", lambda folder: None, "tables", "does not exist"),
    csv("an empty folder", files(), "tables"),
    csv("only edges", tables(nodes=None), "nodes"),
    csv("only nodes", tables(edges=None), "edges"),
    csv("empty edges", tables(edges=""), "edges.csv"),
    csv("empty nodes", tables(nodes=""), "nodes.csv"),
    csv("edges of no row", tables(edges="src,dst\n"), "edges.csv"),
    csv("nodes of no row", tables(nodes="id,label,split,f0\n"), "nodes.csv"),
    csv("other names of the ends", tables(edges="a,b\n10,20\n"), "src", "dst"),
    csv("no header of edges", tables(edges="10,20\n20,30\n"), "src", "dst"),
    csv("no header of nodes", tables(nodes="10,0,train,1\n30,1,val,0\n20,0,test,1\n"), "id"),
    csv("no column of ids", tables(nodes="label,split,f0\n0,train,1\n"), "id"),
    csv("no labels", tables(nodes="id,split,f0\n10,train,1\n20,val,1\n30,test,1\n"), "label"),
    csv("no split", tables(nodes="id,label,f0\n10,0,1\n20,0,1\n30,1,1\n"), "split", "--random-split"),
    csv("no feature", tables(nodes="id,label,split\n10,0,train\n20,1,val\n30,1,test\n"), "feature"),
    csv("a column twice", tables(nodes=NODES.replace("f1", "f0")), "f0"),
    csv("an id twice", tables(nodes=NODES.replace("30,1,val", "10,1,val")), "10", "nodes.csv"),
    csv("an edge to a node that is not there", tables(edges="src,dst\n10,99\n"), "99", "edges.csv"),
    csv("an edge with an empty end", tables(edges="src,dst\n10,\n"), "dst", "edges.csv"),
    csv("an end that is a word", tables(edges="src,dst\n10,bob\n"), "bob", "edges.csv"),
    csv("an empty id", tables(nodes=row(2, ",1,val,0,-1")), "id", "nodes.csv"),
    csv("a feature that is a word", tables(nodes=row(2, "30,1,val,much,-1")), "f0", "much"),
    csv("an empty feature", tables(nodes=row(2, "30,1,val,,-1")), "f0"),
    csv("a feature of NaN", tables(nodes=row(2, "30,1,val,nan,-1")), "f0"),
    csv("a feature that is infinite", tables(nodes=row(2, "30,1,val,inf,-1")), "inf"),
    csv("a decimal comma", tables(nodes=row(2, '30,1,val,"0,5",-1')), "f0", "0,5"),
    csv("a number with thousands", tables(nodes=row(2, '30,1,val,"1,000",-1')), "f0", "1,000"),
    csv("a column of names", tables(nodes="id,label,split,name\n10,0,train,a\n20,1,val,b\n30,1,test,c\n"), "name"),
    csv("a split that is none", tables(nodes=row(2, "30,1,vla,0,-1")), "vla", "val"),
    csv("no training node", tables(nodes=NODES.replace("train", "")), "train"),
    csv(
        "a training node without a label",
        tables(nodes=row(1, "10,,train,1.5,2")),
        "label",
        "node 0",
        "rows are numbered from 0",
    ),
    csv("a training node labelled NA", tables(nodes=row(1, "10,NA,train,1.5,2")), "label", "NA"),
    csv("a label with a point", tables(nodes=row(2, "30,1.5,val,0,-1")), "1.5"),
    csv("too many fields in a row", tables(nodes=row(2, "30,1,val,0,-1,7")), "nodes.csv"),
    csv("too few fields in a row", tables(nodes=row(2, "30,1,val")), "nodes.csv"),
    csv("a quote that never ends", tables(nodes=row(2, '30,"1,val,0,-1')), "nodes.csv"),
    csv("Latin-1", tables(nodes=NODES.replace("f0", "größe").encode("latin-1")), "nodes.csv", "UTF-8"),
    csv("Latin-1 in a name", tables(nodes=row(2, "30,größe,val,0,-1").encode("latin-1")), "nodes.csv", "line 3"),
    csv("UTF-16", tables(nodes=NODES.encode("utf-16")), "nodes.csv", "UTF-8"),
    csv("zero bytes", tables(nodes=bytes(100)), "nodes.csv"),
    csv("a gzip cut short", files(edges_csv_gz=gzip.compress(EDGES.encode())[:-9], nodes_csv=NODES.encode()), "edges"),
    csv("a Parquet that is none", files(edges_parquet=EDGES.encode(), nodes_csv=NODES.encode()), "edges.parquet"),
    csv("two files of edges", files(edges_csv=b"src,dst\n", edges_tsv=b"src\tdst\n", nodes_csv=b"id\n"), "edges"),
    csv("semicolons", tables(EDGES.replace(",", ";"), NODES.replace(",", ";")), "nodes.csv", "separator is ';'", "','"),
    csv("tabs in a .csv", tables(EDGES.replace(",", "\t"), NODES), "edges.csv", "separator is '\\t'", "','"),
    csv("a sparse label beyond the nodes", tables(nodes=row(2, "30,900,val,0,-1")), "900"),
    told("a byte order mark", tables(b"\xef\xbb\xbf" + EDGES.encode(), b"\xef\xbb\xbf" + NODES.encode()), "prepared"),
    told("lines end as on Windows", tables(EDGES.replace("\n", "\r\n"), NODES.replace("\n", "\r\n")), "prepared"),
    told("labels NA", tables(nodes=row(4, "7,NA,,0,0")), "NA means unlabelled"),
    told("labels nan", tables(nodes=row(4, "7,nan,,0,0")), "nan means unlabelled"),
    told("a column of weights", tables(edges="src,dst,weight\n10,20,3\n"), "edge features weight"),
    told("labels with gaps", tables(nodes=row(2, "30,3,val,0,-1")), "gaps", "1, 2"),
    told("no test node", tables(nodes=row(3, "20,0,,1e3,0")), "no node is in the test split"),
    told("an edge twice", tables(edges=EDGES + "10,20\n"), "duplicate edges merged  1"),
]
