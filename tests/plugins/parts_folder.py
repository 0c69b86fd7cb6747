"""A small graph in parts on disk, in the real format: parts by node number, symmetric edges, dense features."""

from pathlib import Path

import numpy as np
import xxhash

from graphmill.graph.header import ArrayRecord, seal, write_metadata
from graphmill.partition.metadata import PartsMetadata, part_folder

SPLITS = ("train", "val", "test")


def write_parts(folder: Path, *, num_parts: int, num_nodes: int = 24, num_features: int = 3) -> PartsMetadata:
    """Node v is in part v % num_parts, and has an edge to and from the next node."""
    arrays, counts = _arrays(num_parts, num_nodes, num_features)
    records = {}
    for name, array in arrays.items():
        path = folder / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
        content = path.read_bytes()
        digest = xxhash.xxh3_128(content).hexdigest()
        records[name] = ArrayRecord(dtype=array.dtype.name, shape=array.shape, bytes=len(content), xxh3=digest)
    sizes = {"num_nodes": num_nodes, "num_edges": 2 * num_nodes, "num_undirected_edges": 2 * num_nodes}
    store = {**sizes, "num_features": num_features, "is_symmetric": True, "feature_dtype": "float32", "splits": counts}
    offsets = np.cumsum([0, *(len(range(part, num_nodes, num_parts)) for part in range(num_parts))])
    metadata = PartsMetadata(
        kind="node_classification", name="ring", synthetic=True, arrays=records, store=store, store_checksum="0" * 32,
        num_parts=num_parts, method="random", balance="nodes", rng_seed=0, offsets=tuple(map(int, offsets)),
        quality={"edge_cut": 1, "remote_rows_per_batch": (2.0,) * num_parts},
    )  # fmt: skip
    assert metadata.disagreement() is None, metadata.disagreement()
    write_metadata(folder, seal(metadata))
    return metadata


def _arrays(num_parts: int, num_nodes: int, num_features: int) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    nodes = np.arange(num_nodes, dtype=np.int32)
    neighbours = np.sort(np.stack([(nodes - 1) % num_nodes, (nodes + 1) % num_nodes], axis=1), axis=1).astype(np.int32)
    storage_of, first = np.empty(num_nodes, np.int32), 0
    arrays: dict[str, np.ndarray] = {
        "node_book/storage_of": storage_of,
        "topology/indptr": 2 * np.arange(num_nodes + 1, dtype=np.int64),
        "topology/indices": neighbours.reshape(-1),
    }
    for number, split in enumerate(SPLITS):
        arrays[f"splits/{split}"] = nodes[number::3].astype(np.int64)
        arrays[f"splits/{split}_y"] = nodes[number::3].astype(np.int64) % 2
    for part in range(num_parts):
        own = nodes[part::num_parts]
        storage_of[own] = np.arange(first, first + len(own))
        first += len(own)
        of_part = {
            "node_ids": own,
            "indptr": 2 * np.arange(len(own) + 1, dtype=np.int64),
            "indices": neighbours[own].reshape(-1),
            "entries": 2 * own.astype(np.int64),
            "x": np.outer(own, np.ones(num_features)).astype(np.float32),
            "y": own.astype(np.int64) % 2,
            "split": (own % 3).astype(np.int8),
        }
        arrays |= {f"{part_folder(part)}/{name}": array for name, array in of_part.items()}
    return arrays, {split: len(nodes[number::3]) for number, split in enumerate(SPLITS)}
