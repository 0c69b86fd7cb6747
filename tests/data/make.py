"""Write the small files of this folder: synthetic, in the layouts that data sets are published in."""

import gzip
import json
import pickle
from pathlib import Path

import h5py
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_matrix, csr_matrix, save_npz

from graphmill.assignment import solve

HERE = Path(__file__).parent
NODES, CLASSES = 30, 3


def main() -> None:
    """All of them."""
    rng = np.random.default_rng(0)
    graphs(rng)
    ogb(rng)
    graph_sets(rng)
    series(rng)
    captures(rng)
    problems(rng)
    named_graphs(np.random.default_rng(1))
    ogb_hetero(np.random.default_rng(2))
    links(np.random.default_rng(3))
    several_labels(np.random.default_rng(4))
    values(np.random.default_rng(5))


def links(rng):
    folder = made("link_prediction")
    pairs = np.unique(rng.integers(0, NODES, (2, 120)), axis=1)
    pairs = pairs[:, rng.permutation(pairs.shape[1])].T
    parts = {"train": pairs[20:], "val": pairs[:10], "test": pairs[10:20]}
    x = rng.normal(size=(NODES, 4)).astype(np.float32).round(3)
    np.savez(
        folder / "links.npz", edge_index=parts["train"].T, x=x, **{f"{name}_links": its for name, its in parts.items()}
    )
    triples = made("link_prediction/triples")
    for name, its in zip(("train", "valid", "test"), parts.values(), strict=True):
        text(triples / f"{name}.txt", [f"node{a}\t{('knows', 'likes')[(a + b) % 2]}\tnode{b}" for a, b in its])


def graphs(rng):
    folder = made("node_classification")
    y = np.arange(NODES) % CLASSES
    x = rng.normal(size=(NODES, 4)).astype(np.float32).round(3)
    edges = rng.integers(0, NODES, (2, 90))
    split = np.arange(NODES) // 3 % 3
    np.savez(folder / "archive.npz", edge_index=edges, y=y, x=x, split=split)
    np.savez(
        folder / "masks.npz",
        edge_index=edges,
        y=y,
        x=x,
        **{f"{name}_mask": split == code for code, name in enumerate(("train", "val", "test"))},
    )
    np.savez(folder / "unlabelled.npz", edge_index=edges, x=x)
    tables = made("node_classification/tables")
    rows = [
        f"{node},{y[node]},{('train', 'val', 'test')[split[node]]},{','.join(map(str, x[node]))}"
        for node in range(NODES)
    ]
    text(tables / "nodes.csv", ["id,label,split,f0,f1,f2,f3", *rows])
    text(tables / "edges.csv", ["src,dst", *(f"{a},{b}" for a, b in edges.T)])


def ogb(rng):
    folder = made("named/ogbn-arxiv")
    x = rng.normal(size=(NODES, 4)).round(3)
    raw(folder / "raw/edge.csv.gz", rng.integers(0, NODES, (60, 2)))
    raw(folder / "raw/node-feat.csv.gz", x)
    raw(folder / "raw/node-label.csv.gz", (np.arange(NODES) % CLASSES)[:, None])
    raw(folder / "raw/num-node-list.csv.gz", [[NODES]])
    raw(folder / "raw/num-edge-list.csv.gz", [[60]])
    for code, name in enumerate(("train", "valid", "test")):
        raw(folder / f"split/time/{name}.csv.gz", np.flatnonzero(np.arange(NODES) // 3 % 3 == code)[:, None])


def values(rng):
    y = rng.normal(size=(NODES, 2)).astype(np.float32).round(3)
    y[4, 1] = np.nan
    arrays = {
        "edge_index": rng.integers(0, NODES, (2, 90)),
        "x": rng.normal(size=(NODES, 4)).astype(np.float32).round(3),
    }
    np.savez(made("node_regression") / "values.npz", **arrays, y=y, split=np.arange(NODES) // 3 % 3)


def several_labels(rng):
    """As ogbn-proteins comes: several labels for each node, features of edges and none of nodes."""
    folder = made("named/ogbn-proteins")
    raw(folder / "raw/edge.csv.gz", rng.integers(0, NODES, (60, 2)))
    raw(folder / "raw/edge-feat.csv.gz", rng.random((60, 8)).round(3))
    raw(folder / "raw/node-label.csv.gz", rng.integers(0, 2, (NODES, 5)))
    raw(folder / "raw/num-node-list.csv.gz", [[NODES]])
    raw(folder / "raw/num-edge-list.csv.gz", [[60]])
    for code, name in enumerate(("train", "valid", "test")):
        raw(folder / f"split/species/{name}.csv.gz", np.flatnonzero(np.arange(NODES) // 3 % 3 == code)[:, None])


def named_graphs(rng):
    """The files of Planetoid, Amazon and Coauthor, Reddit and ogbn-papers100M, with numbers of our own."""
    y, edges = np.arange(NODES) % CLASSES, rng.integers(0, NODES, (2, 90))
    x = csr_matrix((rng.random((NODES, 6)) < 0.3).astype(np.float32))
    adjacency = csr_matrix((np.ones(90, np.float32), tuple(edges)), shape=(NODES, NODES))
    parts = {f"{name}_{part}": getattr(matrix, part) for name, matrix in (("adj", adjacency), ("attr", x))
             for part in ("data", "indices", "indptr", "shape")}  # fmt: skip
    np.savez(made("named/amazon/photo") / "amazon_electronics_photo.npz", **parts, labels=y)
    reddit = made("named/reddit")
    types = np.arange(NODES) // 3 % 3 + 1
    np.savez(reddit / "reddit_data.npz", feature=rng.random((NODES, 4)), label=y, node_types=types)
    save_npz(reddit / "reddit_graph.npz", coo_matrix(adjacency))
    papers = made("named/ogbn-papers100M/raw")
    counts = {"num_nodes_list": np.array([NODES]), "num_edges_list": np.array([90])}
    features = rng.random((NODES, 4), dtype=np.float32)
    np.savez(papers / "data.npz", edge_index=edges, node_feat=features, **counts)
    np.savez(papers / "node-label.npz", node_label=y[:, None].astype(np.float32))
    for code, name in enumerate(("train", "valid", "test")):
        raw(papers.parent / f"split/time/{name}.csv.gz", np.flatnonzero(types == code + 1)[:, None])
    planetoid(rng)


def planetoid(rng):
    folder, num_test = made("named/planetoid/cora"), 10
    count = CLASSES + 500 + num_test  # training nodes, the 500 of validation, and test
    x = csr_matrix((rng.random((count, 4)) < 0.3).astype(np.float32))
    y = np.eye(CLASSES, dtype=np.int32)[np.arange(count) % CLASSES]
    before, after = slice(0, count - num_test), slice(count - num_test, count)
    graph = {node: [(node + 1) % count, (node - 1) % count] for node in range(count)}
    files = {"x": x[:CLASSES], "tx": x[after], "allx": x[before], "y": y[:CLASSES], "ty": y[after], "ally": y[before]}
    for name, value in {**files, "graph": graph}.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value, 2))
    text(folder / "ind.cora.test.index", range(count - num_test, count))


def ogb_hetero(rng):
    """As ogbn-mag comes: types of nodes, of which one has features, labels and splits."""
    folder, counts = made("named/ogbn-mag"), {"author": 12, "institution": 4, "paper": NODES}
    relations = [
        ("author", "affiliated_with", "institution"),
        ("author", "writes", "paper"),
        ("paper", "cites", "paper"),
    ]
    raw(folder / "raw/num-node-dict.csv.gz", [counts, counts.values()])
    raw(folder / "raw/triplet-type-list.csv.gz", relations)
    for kind in ("feat", "label"):
        raw(folder / f"raw/nodetype-has-{kind}.csv.gz", [counts, [name == "paper" for name in counts]])
    for relation in relations:
        ends = [rng.integers(0, counts[relation[place]], 40) for place in (0, 2)]
        of_relation = folder / "raw/relations" / "___".join(relation)
        raw(of_relation / "edge.csv.gz", np.stack(ends, axis=1))
        raw(of_relation / "num-edge-list.csv.gz", [[40]])
        raw(of_relation / "edge_reltype.csv.gz", np.zeros((40, 1), int))
    raw(folder / "raw/node-feat/paper/node-feat.csv.gz", rng.normal(size=(NODES, 4)).round(3))
    raw(folder / "raw/node-label/paper/node-label.csv.gz", (np.arange(NODES) % CLASSES)[:, None])
    raw(folder / "split/time/nodetype-has-split.csv.gz", [counts, [name == "paper" for name in counts]])
    for code, name in enumerate(("train", "valid", "test")):
        raw(folder / f"split/time/paper/{name}.csv.gz", np.flatnonzero(np.arange(NODES) // 3 % 3 == code)[:, None])


def graph_sets(rng):
    folder = made("graph_classification/tu")
    sizes = rng.integers(3, 7, 20)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    pairs = [(int(b + i), int(b + (i + 1) % n)) for b, n in zip(begins, sizes, strict=False) for i in range(n)]
    both = [*pairs, *((b, a) for a, b in pairs)]
    text(folder / "MADE_A.txt", [f"{a + 1}, {b + 1}" for a, b in both])
    text(folder / "MADE_graph_indicator.txt", np.repeat(np.arange(1, 21), sizes))
    text(folder / "MADE_graph_labels.txt", np.arange(20) % 2)
    counts = np.array([2 * n for n in sizes])
    local = np.concatenate(
        [[[i, (i + 1) % n] for i in range(n)] + [[(i + 1) % n, i] for i in range(n)] for n in sizes]
    ).T
    x = np.ones((int(sizes.sum()), 2), np.float32)
    np.savez(
        HERE / "graph_classification/archive.npz",
        num_nodes=sizes,
        num_edges=counts,
        edge_index=local,
        x=x,
        y=np.arange(20) % 2,
    )


def series(rng):
    folder = made("traffic")
    seconds = np.datetime64("2024-03-04", "s").astype(np.int64) + 300 * np.arange(400)
    values = rng.uniform(20, 70, (400, 3)).round(1)
    ids = np.array(["400001", "400017", "400030"])
    times = [str(np.datetime64(int(second), "s")).replace("T", " ") for second in seconds]
    rows = (f"{time},{','.join(map(str, row))}" for time, row in zip(times, values, strict=True))
    text(folder / "table.csv", [f"time,{','.join(ids)}", *rows])
    np.savez(folder / "archive.npz", values=values.astype(np.float32), timestamps=seconds, sensor_ids=ids)
    with h5py.File(folder / "frame.h5", "w") as file:  # as pandas' to_hdf writes it, which needs PyTables
        group = file.create_group("df")
        group["block0_values"], group["block0_items"] = values, np.char.encode(ids)
        group["axis0"], group["axis1"] = np.char.encode(ids), seconds * 10**9
        group["axis1"].attrs["kind"] = b"datetime64"
    basicts = made("traffic/basicts")
    channels = ["traffic speed", "time of day", "day of week"]
    said = {"name": "MADE", "shape": [400, 3, 3], "frequency (minutes)": 5, "feature_description": channels}
    (basicts / "desc.json").write_text(json.dumps(said) + "\n")
    clock = np.stack([seconds % 86400 / 86400, (seconds // 86400 + 3) % 7 / 7], axis=1)
    whole = np.concatenate([values[:, :, None], np.repeat(clock[:, None], 3, axis=1)], axis=2)
    whole.astype("<f4").tofile(basicts / "data.dat")


def captures(rng):
    folder = made("intrusion")
    count = 600
    times = 1700000000 + np.cumsum(rng.uniform(0.0005, 0.0015, count))
    ids, is_attack = rng.choice([0x0F1, 0x316, 0x2A0], count), np.arange(count) % 200 > 120
    data = rng.integers(0, 256, (count, 8))
    hexes = ["".join(f"{byte:02x}" for byte in row) for row in data]
    text(
        folder / "can-train-and-test.csv",
        [
            "timestamp,arbitration_id,data_field,attack",
            *(f"{t:.6f},{i:03x},{h},{int(a)}" for t, i, h, a in zip(times, ids, hexes, is_attack, strict=True)),
        ],
    )
    text(
        folder / "car-hacking.csv",
        [
            f"{t:.6f},{i:04x},8,{','.join(h[k : k + 2] for k in range(0, 16, 2))},{'RT'[int(a)]}"
            for t, i, h, a in zip(times, ids, hexes, is_attack, strict=True)
        ],
    )
    text(
        folder / "candump.log",
        [
            f"({t:.6f}) can0 {i:03X}#{h.upper()} {int(a)}"
            for t, i, h, a in zip(times, ids, hexes, is_attack, strict=True)
        ],
    )
    text(
        folder / "crysys.txt",
        [
            f"{t:.6f} {i:03x} 000 8 {' '.join(h[k : k + 2] for k in range(0, 16, 2))}"
            for t, i, h in zip(times, ids, hexes, strict=True)
        ],
    )
    np.savez(folder / "road.npz", can_id=ids, data=data.astype(np.uint8), label=is_attack.astype(np.int8), time=times)


def problems(rng):
    folder = made("assignment")
    costs = rng.integers(1, 100, (12, 5, 5))
    text(folder / "assign5.txt", [" 5", *(" " + " ".join(map(str, row)) for row in costs[0])])
    best = [float(one[linear_sum_assignment(one)].sum()) for one in costs]
    np.savez(folder / "archive.npz", names=np.array(["a", "b"]), optimum=np.array(best[:2]), a=costs[0], b=costs[1])
    text(folder / "matrix.mtx", ["%%MatrixMarket matrix array integer general", "5 5", *costs[0].T.ravel()])
    solved = [linear_sum_assignment(one) for one in costs]
    with h5py.File(folder / "records.h5", "w") as file:
        ragged(file, "C", "<f8", [one.ravel() for one in costs])
        ragged(file, "rows", "<i4", [rows for rows, _ in solved])
        ragged(file, "cols", "<i4", [cols for _, cols in solved])
        duals = [solve(one.astype(np.float64)) for one in costs]
        ragged(file, "u", "<f8", [one.u for one in duals])
        ragged(file, "v", "<f8", [one.v for one in duals])
        file["n"], file["cost"] = np.full(12, 5, "<i4"), np.array(best)


def ragged(file, name, dtype, rows):
    data = file.create_dataset(name, (len(rows),), dtype=h5py.vlen_dtype(np.dtype(dtype)))
    for number, row in enumerate(rows):
        data[number] = row.astype(dtype)


def made(name):
    (HERE / name).mkdir(parents=True, exist_ok=True)
    return HERE / name


def text(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def raw(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(",".join(map(str, row)) + "\n" for row in rows)
    path.write_bytes(gzip.compress(content.encode(), mtime=0))


if __name__ == "__main__":
    main()
