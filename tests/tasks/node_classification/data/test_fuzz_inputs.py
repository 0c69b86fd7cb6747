"""Damaged inputs of every kind: a verified store or a `UserError`; no other exception, and nothing half-written."""

import gzip
import pickle
import warnings

import numpy as np
import polars as pl
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.node_classification.data.prepare import prepare

N = 30


def arrays(rng):
    masks = rng.integers(0, 3, N)
    masks[0] = 0
    return {
        "edge_index": rng.integers(0, N, (2, 90)),
        "x": rng.random((N, 5)).astype(np.float32),
        "y": rng.integers(0, 4, N),
        "train_mask": masks == 0,
        "val_mask": masks == 1,
        "test_mask": masks == 2,
        "class_names": np.array(["a", "b", "c", "d"]),
    }


def write_npz(folder, rng):
    content = arrays(rng)
    if rng.random() < 0.3:  # wrong before any byte is flipped
        key = str(rng.choice(sorted(content)))
        match rng.integers(6):
            case 0:
                del content[key]
            case 1:
                content[key] = content[key].astype(str)
            case 2:
                content[key] = content[key][..., :-1]
            case 3:
                content[key] = content[key][None]
            case 4:
                content[key] = np.array([None] * N, dtype=object)
            case 5 if content[key].dtype.kind in "if":
                content[key] = np.where(rng.random(content[key].shape) < 0.1, rng.choice([-7, np.inf]), content[key])
            case _:
                content[key] = np.empty((0, *content[key].shape[1:]), content[key].dtype)
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(folder / "g.npz", **content)
    return folder / "g.npz"


def write_tables(folder, rng):
    content = arrays(rng)
    edges = pl.DataFrame({"src": content["edge_index"][0], "dst": content["edge_index"][1]})
    split = np.where(content["train_mask"], "train", np.where(content["val_mask"], "val", "test"))
    columns = {
        "id": np.arange(N),
        "label": content["y"],
        "split": split,
        "f0": content["x"][:, 0],
        "f1": content["x"][:, 1],
    }
    for name, table in (("edges", edges), ("nodes", pl.DataFrame(columns))):
        match rng.integers(3):
            case 0:
                table.write_parquet(folder / f"{name}.parquet")
            case 1:
                table.write_csv(folder / f"{name}.csv")
            case 2:
                (folder / f"{name}.csv.gz").write_bytes(gzip.compress(table.write_csv().encode()))
    return folder


def write_ogb(folder, rng):
    content = arrays(rng)
    tables = {
        "raw/edge": content["edge_index"].T,
        "raw/node-feat": content["x"],
        "raw/node-label": content["y"][:, None],
        "raw/num-node-list": [[N]],
        "raw/num-edge-list": [[90]],
        **{
            f"split/time/{name}": np.flatnonzero(content[mask])[:, None]
            for name, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask"))
        },
    }
    for name, rows in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()))
    return folder


def write_planetoid(folder, rng):
    import scipy.sparse

    num_train, num_before, num_nodes = 5, 510, 530  # the public split has 500 validation nodes
    x = (rng.random((num_nodes, 6)) < 0.3).astype(np.float32)
    y = np.eye(3, dtype=np.int32)[rng.integers(0, 3, num_nodes)]
    test = rng.permutation(np.arange(num_before, num_nodes))
    parts = {
        "x": scipy.sparse.csr_matrix(x[:num_train]),
        "allx": scipy.sparse.csr_matrix(x[:num_before]),
        "tx": scipy.sparse.csr_matrix(x[test]),
        "y": y[:num_train],
        "ally": y[:num_before],
        "ty": y[test],
        "graph": {node: rng.integers(0, num_nodes, 3).tolist() for node in range(num_nodes)},
    }
    for part, value in parts.items():
        (folder / f"ind.cora.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in test))
    return folder


def write_reddit(folder, rng):
    import scipy.sparse

    content = arrays(rng)
    np.savez(folder / "reddit_data.npz", feature=content["x"], label=content["y"], node_types=rng.integers(1, 4, N))
    ones = np.ones(90, dtype=np.float32)
    scipy.sparse.save_npz(
        folder / "reddit_graph.npz", scipy.sparse.coo_matrix((ones, content["edge_index"]), shape=(N, N))
    )
    return folder


INPUTS = {
    "mine": (write_npz, write_tables),
    "ogbn-mine": (write_ogb,),
    "planetoid/cora": (write_planetoid,),
    "reddit": (write_reddit,),
}
TEXTS = [b"-1", b"nan", b"inf", b"1e400", b"999999999999999999999", b'"', b",", b"\n", b"\x00", b"\xff\xfe", b"", b"x"]


def corrupt(path, rng):
    """Damage the file's bytes; of a gzip file now and then what it packs."""
    content = path.read_bytes()
    unpacked = path.suffix == ".gz" and rng.random() < 0.7
    damaged = bytearray(gzip.decompress(content) if unpacked else content)
    for _ in range(int(rng.integers(1, 4))):
        damage(damaged, rng)
    path.write_bytes(gzip.compress(bytes(damaged)) if unpacked else bytes(damaged))


def damage(content, rng):
    if not content:
        return
    at, span = int(rng.integers(len(content))), int(rng.integers(1, 30))
    match rng.integers(7):
        case 0:
            del content[at:]
        case 1:
            content[at] ^= 1 << int(rng.integers(8))
        case 2:
            content[at : at + span] = bytes(len(content[at : at + span]))
        case 3:
            content[at:at] = rng.bytes(span)
        case 4:
            del content[at : at + span]
        case 5:
            content[int(rng.integers(min(120, len(content))))] = int(rng.integers(256))
        case 6:
            content[at : at + 1] = TEXTS[int(rng.integers(len(TEXTS)))]


def fuzz(folder, seed):
    rng = np.random.default_rng(seed)
    name = sorted(INPUTS)[seed % len(INPUTS)]
    writers = INPUTS[name]
    folder.mkdir()
    path = writers[int(rng.integers(len(writers)))](folder, rng)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    if rng.random() < 0.95:  # else what is right must be read
        corrupt(files[int(rng.integers(len(files)))], rng)
    root = folder.parent / f"root-{seed}"
    outcome = prepared(name, root, path)
    if isinstance(outcome, UserError):
        assert outcome.message
        assert outcome.fix
        assert not [entry for entry in root.rglob("*") if entry.is_file()], "something half-written stays"
        return name, False
    outcome.verify()
    return name, True


def prepared(name, root, path):
    """The store, or the error that a person would see; a warning would be an untidy one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return prepare(name, root=root, from_path=path)
    except UserError as error:
        return error


def run_seeds(tmp_path, seeds):
    pytest.importorskip("scipy")
    outcomes = {fuzz(tmp_path / str(seed), seed) for seed in seeds}
    assert outcomes == {(name, taken) for name in INPUTS for taken in (True, False)}, "inputs or damage are none"


def test_damaged_inputs(tmp_path):
    run_seeds(tmp_path, range(30))


@pytest.mark.slow
def test_damaged_inputs_at_length(tmp_path):
    run_seeds(tmp_path, range(1000, 1800))
