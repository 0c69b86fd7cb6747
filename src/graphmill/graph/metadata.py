"""metadata.json of a GraphStore: what the arrays are, how many of each thing, and the checksums that tie them."""

import json
from pathlib import Path
from typing import Any, Literal, cast

import xxhash
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.graph.arrays import UNREADABLE, ArrayRecord, damaged
from graphmill.graph.features import STORED_AS, FeatureDtype
from graphmill.graph.topology import MAX_NODES, index_dtype

SplitName = Literal["train", "val", "test", "none"]

FORMAT_VERSION = 1
FILE_NAME = "metadata.json"
SPLIT_CODES: dict[SplitName, int] = {"train": 0, "val": 1, "test": 2, "none": -1}

_MAX_BYTES = 2**24


class StoreMetadata(BaseModel):
    """What a GraphStore says about itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    name: str
    source: str = Field(description="where the graph came from, and what was done to it on the way")
    synthetic: bool
    split: str = Field(description="who drew the split")
    num_nodes: PositiveInt = Field(le=MAX_NODES)
    num_edges: PositiveInt = Field(description="directed edges as given, duplicates merged")
    num_undirected_edges: PositiveInt = Field(
        description="entries of the union of both directions: two per edge, one per self-loop"
    )
    num_features: PositiveInt
    num_classes: PositiveInt
    class_names: tuple[str, ...] = Field(description="one per class, or none at all")
    feature_dtype: FeatureDtype
    is_symmetric: bool
    num_duplicate_edges: NonNegativeInt = Field(description="edges that were given again, and merged")
    num_isolated_nodes: NonNegativeInt = Field(description="nodes without an edge from or to another node")
    num_self_loops: NonNegativeInt
    splits: dict[SplitName, NonNegativeInt]
    arrays: dict[str, ArrayRecord] = Field(description="by name; the file is <name>.npy")
    created_by: str
    checksum: str = Field("", description="xxh3-128 of everything above except created_by, file checksums included")

    @property
    def has_sparse_features(self) -> bool:
        """Whether features are compressed sparse rows."""
        return "x_indptr" in self.arrays

    def content_checksum(self) -> str:
        """What `checksum` must be."""
        content = self.model_dump(mode="json", exclude={"created_by", "checksum"})
        return xxhash.xxh3_128(json.dumps(content, sort_keys=True).encode()).hexdigest()


def seal(metadata: StoreMetadata) -> StoreMetadata:
    """The same metadata with its checksum filled in."""
    return metadata.model_copy(update={"checksum": metadata.content_checksum()})


def write_metadata(folder: Path, metadata: StoreMetadata) -> None:
    """Write metadata.json."""
    text = json.dumps(metadata.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
    write_text(folder / FILE_NAME, text + "\n")


def read_metadata(folder: Path) -> StoreMetadata:
    """Read metadata.json and check it against its own checksum and counts."""
    path = folder / FILE_NAME
    raw = _read_json(path)
    version = raw.get("format_version")
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path}: format version {version!r}, and this graphmill reads version {FORMAT_VERSION}",
            fix="install the graphmill that wrote it, or prepare the dataset again: graphmill prepare NAME --force",
        )
    try:
        metadata = StoreMetadata.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise damaged(path, problems) from None
    if metadata.checksum != metadata.content_checksum():
        raise damaged(path, f"its checksum is {metadata.content_checksum()}, and it says {metadata.checksum!r}")
    problem = _disagreement(metadata)
    if problem:
        raise damaged(path, problem)
    return metadata


def _read_json(path: Path) -> dict[str, Any]:
    try:
        num_bytes = path.stat().st_size
        if num_bytes > _MAX_BYTES:
            raise damaged(path, f"{num_bytes} bytes are too many for metadata (at most {_MAX_BYTES})")
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{path.parent} is no GraphStore: it has no {FILE_NAME}",
            fix="prepare the dataset: graphmill prepare NAME (graphmill datasets lists the names)",
        ) from None
    except UNREADABLE as error:
        raise damaged(path, f"it cannot be read as JSON: {error}") from error
    if not isinstance(raw, dict):
        raise damaged(path, f"it holds a {type(raw).__name__}, not an object")
    return cast("dict[str, Any]", raw)


def _disagreement(metadata: StoreMetadata) -> str | None:
    """How the counts, dtypes and shapes contradict each other, or None."""
    expected = _expected_arrays(metadata)
    if set(metadata.arrays) != set(expected):
        return f"arrays are {sorted(metadata.arrays)}, and should be {sorted(expected)}"
    for name, (dtype, shape) in expected.items():
        record = metadata.arrays[name]
        if record.dtype != dtype or record.shape != shape:
            return f"arrays.{name} is {record.dtype} {list(record.shape)}, and should be {dtype} {list(shape)}"
    if set(metadata.splits) != set(SPLIT_CODES) or sum(metadata.splits.values()) != metadata.num_nodes:
        return f"splits {metadata.splits} do not add up to {metadata.num_nodes} nodes"
    if metadata.splits["train"] == 0:
        return "the training split is empty"
    if metadata.class_names and len(metadata.class_names) != metadata.num_classes:
        return f"{len(metadata.class_names)} class names for {metadata.num_classes} classes"
    return None


def _expected_arrays(metadata: StoreMetadata) -> dict[str, tuple[str, tuple[int, ...]]]:
    num_nodes = metadata.num_nodes
    ids = index_dtype(num_nodes).name
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "indptr": ("int64", (num_nodes + 1,)),
        "indices": (ids, (metadata.num_edges,)),
        "y": ("int64", (num_nodes,)),
        "split": ("int8", (num_nodes,)),
    }
    if not metadata.is_symmetric:
        expected["undirected_indptr"] = ("int64", (num_nodes + 1,))
        expected["undirected_indices"] = (ids, (metadata.num_undirected_edges,))
    if metadata.has_sparse_features:
        values = metadata.arrays.get("x_values")
        shape = values.shape[:1] if values else (0,)
        expected["x_indptr"] = ("int64", (num_nodes + 1,))
        expected["x_indices"] = ("int32", shape)
        expected["x_values"] = ("float32", shape)
    else:
        expected["x"] = (STORED_AS[metadata.feature_dtype], (num_nodes, metadata.num_features))
    return expected
