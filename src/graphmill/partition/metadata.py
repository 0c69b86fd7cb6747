"""metadata.json of a parts folder: a graph that was split into parts, which hosts can hold each on its own."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    StrictInt,
    field_validator,
    model_serializer,
)

from graphmill.base.errors import UserError
from graphmill.graph.features import STORED_AS, FeatureDtype
from graphmill.graph.header import ArrayRecord, Expected, Header, read_header, read_metadata
from graphmill.graph.topology import index_dtype
from graphmill.graph.typed import EdgeType, NamedTypes, NodeType, type_dtype
from graphmill.partition.problem import default_balance
from graphmill.partition.types import TypesInParts
from graphmill.spec.partition import DEFAULT_METHOD
from graphmill.spec.targets import TARGET, TargetKind, stored_target

Quantity = StrictInt | float | tuple[StrictInt, ...] | tuple[float, ...]
"""A measurement of all parts together, or of each."""

_COUNTS: Final = ("num_nodes", "num_edges", "num_undirected_edges", "num_features")
TOPOLOGY_FOLDER: Final = "topology"
"""Folder of the whole graph's topology, in the parts folder."""
LISTS_FOLDER: Final = "lists"
"""What is of no node and no edge: whole, in the parts folder. Which arrays these are, the task knows."""
_OF_ROWS: Final = frozenset({"node_ids", "split", "y", "indptr", "undirected_indptr", "x_indptr"})
_HOT: Final = re.compile(r"part_[0-9]{5}/hot/[a-z0-9_]+")


def part_folder(part: int) -> str:
    """The folder of a part, in the parts folder."""
    return f"part_{part:05d}"


class PartsMetadata(Header, NamedTypes):
    """What a parts folder says about itself. `kind`, `name` and `synthetic` are those of the store that was split."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    parts_version: Literal[1] = 1
    store: dict[str, Any] = Field(description="the own part of the store's metadata, as the store says it")
    store_checksum: str = Field(description="of the store that was split")
    num_parts: PositiveInt
    method: str = Field(description="which partitioner made it")
    balance: str = Field(description="what was balanced")
    rng_seed: NonNegativeInt
    offsets: tuple[int, ...] = Field(
        description="[num_parts + 1]: storage ids of part p are offsets[p]..offsets[p + 1]"
    )
    quality: dict[str, Quantity] = Field(description="measured when it was made: cut, balance, halos, remote rows")
    by_type: TypesInParts | None = Field(None, description="how types are spread; absent: the graph has none")
    fanouts: tuple[int, ...] = Field((), description="that hot nodes were ranked for; none if they were not ranked")

    @model_serializer(mode="wrap")
    def _without_absent_types(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise without `by_type` if there are none: checksums of earlier parts were computed without it."""
        known: dict[str, Any] = handler(self)
        if self.by_type is None:
            known.pop("by_type", None)
        return known

    @field_validator("store")
    @classmethod
    def _has_sizes(cls, store: dict[str, Any]) -> dict[str, Any]:
        kinds = {**dict.fromkeys(_COUNTS, int), "is_symmetric": bool, "feature_dtype": str}
        wrong = [key for key, kind in kinds.items() if type(store.get(key)) is not kind]
        if wrong or store["feature_dtype"] not in STORED_AS:
            key = wrong[0] if wrong else "feature_dtype"
            raise ValueError(f"store.{key} is {store.get(key)!r}")
        target = store.get(TARGET, "class")
        if target not in get_args(TargetKind) or (target == "labels" and type(store.get("num_classes")) is not int):
            raise ValueError(f"store.{TARGET} is {target!r}, store.num_classes {store.get('num_classes')!r}")
        return store

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return int(self.store["num_nodes"])

    @property
    def num_edges(self) -> int:
        """Number of edges of the whole graph, as given."""
        return int(self.store["num_edges"])

    @property
    def num_undirected_edges(self) -> int:
        """Entries of the union of both directions, of the whole graph."""
        return int(self.store["num_undirected_edges"])

    @property
    def num_features(self) -> int:
        """Columns."""
        return int(self.store["num_features"])

    @property
    def feature_dtype(self) -> FeatureDtype:
        """Data type of dense features."""
        found: FeatureDtype = self.store["feature_dtype"]
        return found

    @property
    def scales_differ(self) -> bool:
        """Whether dense features have columns of unlike scale."""
        return bool(self.store.get("scales_differ", False))

    @property
    def target_kind(self) -> TargetKind:
        """What is to be learnt of each node."""
        found: TargetKind = self.store.get(TARGET, "class")
        return found

    def stored_target(self, num_nodes: int) -> tuple[str, tuple[int, ...]]:
        """Dtype and shape of the targets of `num_nodes` nodes."""
        return stored_target(self.target_kind, num_nodes, int(self.store.get("num_classes", 0)))

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge was given in both directions."""
        return bool(self.store["is_symmetric"])

    @property
    def edge_features(self) -> tuple[str, ...]:
        """Names of the columns; none if edges have no features."""
        return tuple(self.store.get("edge_features", ()))

    @property
    def node_types(self) -> tuple[NodeType, ...]:
        """Types of nodes, in the order of their numbers; none for a graph without types."""
        return tuple(map(NodeType.model_validate, self.store.get("node_types", ())))

    @property
    def edge_types(self) -> tuple[EdgeType, ...]:
        """Types of edges, in the order of their numbers; none for a graph without types."""
        return tuple(map(EdgeType.model_validate, self.store.get("edge_types", ())))

    @property
    def splits(self) -> Mapping[str, int]:
        """Nodes in each split, "none" included; none of a graph whose links are split."""
        found: Mapping[str, int] = self.store.get("splits", {})
        return found

    @property
    def has_sparse_features(self) -> bool:
        """Whether features are compressed sparse rows."""
        return f"{part_folder(0)}/x_indptr" in self.arrays

    @property
    def lists(self) -> Mapping[str, ArrayRecord]:
        """Arrays that are of no node and no edge, by the name that the task gave them."""
        return {name.split("/", 1)[1]: record for name, record in self.arrays.items() if self._is_list(name)}

    @staticmethod
    def _is_list(name: str) -> bool:
        return name.startswith(f"{LISTS_FOLDER}/")

    def num_nodes_in(self, part: int) -> int:
        """Rows of a part."""
        return self.offsets[part + 1] - self.offsets[part]

    def arrays_of(self, part: int) -> tuple[str, ...]:
        """Names of the arrays that only this part has, in ascending order."""
        return tuple(sorted(name for name in self.arrays if name.startswith(f"{part_folder(part)}/")))

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        if problem := self._offsets_problem():
            return problem
        expected = self._expected_whole()
        for part in range(self.num_parts):
            expected |= self._expected_of(part)
        asked = {
            name for name in self.arrays if not (self.fanouts and _HOT.fullmatch(name)) and not self._is_list(name)
        }
        if asked != set(expected):
            return f"arrays that are too many or missing: {sorted(asked ^ set(expected))[:10]}"
        for name, (dtype, shape) in expected.items():
            record = self.arrays[name]
            if record.dtype != dtype or record.shape != shape:
                return f"arrays.{name} is {record.dtype} {list(record.shape)}, and should be {dtype} {list(shape)}"
        return self._sums_problem() or self._types_problem()

    def _offsets_problem(self) -> str | None:
        ascends = all(low <= high for low, high in zip(self.offsets, self.offsets[1:], strict=False))
        if len(self.offsets) != self.num_parts + 1 or not ascends or self.offsets[0] != 0:
            return f"offsets {list(self.offsets)} are no bounds of {self.num_parts} parts"
        if self.offsets[-1] != self.num_nodes:
            return f"the parts hold {self.offsets[-1]} nodes, and the graph has {self.num_nodes}"
        return None

    def _types_problem(self) -> str | None:
        if self.by_type is None:
            return "the graph has types, and nothing says how they are spread" if self.edge_types else None
        nodes = tuple(each.num_nodes for each in self.node_types)
        edges = tuple(each.num_edges for each in self.edge_types)
        return self.by_type.disagreement(nodes, edges, self.num_parts)

    def _directions(self) -> Iterable[tuple[str, int]]:
        """Prefix and number of entries of each topology that is stored."""
        yield "", self.num_edges
        if not self.is_symmetric:
            yield "undirected_", self.num_undirected_edges

    def _expected_whole(self) -> Expected:
        ids = index_dtype(self.num_nodes).name
        expected: Expected = {"node_book/storage_of": (ids, (self.num_nodes,))}
        if self.node_types:
            expected["node_book/node_type"] = (type_dtype(len(self.node_types)).name, (self.num_nodes,))
        for prefix, num_entries in self._directions():
            expected[f"topology/{prefix}indptr"] = ("int64", (self.num_nodes + 1,))
            expected[f"topology/{prefix}indices"] = (ids, (num_entries,))
        for split, count in self.splits.items():
            if split != "none":
                expected[f"splits/{split}"] = ("int64", (count,))
                expected[f"splits/{split}_y"] = self.stored_target(count)
        return expected

    def _expected_of(self, part: int) -> Expected:
        folder, rows, ids = part_folder(part), self.num_nodes_in(part), index_dtype(self.num_nodes).name
        expected: Expected = {f"{folder}/node_ids": (ids, (rows,))}
        if self.splits:
            expected |= {f"{folder}/y": self.stored_target(rows), f"{folder}/split": ("int8", (rows,))}
        for prefix, _ in self._directions():
            num_entries = self._entries(f"{folder}/{prefix}indices")
            expected[f"{folder}/{prefix}indptr"] = ("int64", (rows + 1,))
            expected[f"{folder}/{prefix}indices"] = (ids, (num_entries,))
            expected[f"{folder}/{prefix}entries"] = ("int64", (rows,))
            if self.edge_features and not (prefix and self.edge_types):  # an edge has its type in its own direction
                expected[f"{folder}/{prefix}edge_attr"] = ("float32", (num_entries, len(self.edge_features)))
        if self.has_sparse_features:
            num_values = self._entries(f"{folder}/x_values")
            expected[f"{folder}/x_indptr"] = ("int64", (rows + 1,))
            expected[f"{folder}/x_indices"] = ("int32", (num_values,))
            expected[f"{folder}/x_values"] = ("float32", (num_values,))
        else:
            expected[f"{folder}/x"] = (STORED_AS[self.feature_dtype], (rows, self.num_features))
        return expected

    def _sums_problem(self) -> str | None:
        """Name a direction in which not every edge is in exactly one part, or None."""
        for prefix, num_entries in self._directions():
            found = sum(self._entries(f"{part_folder(part)}/{prefix}indices") for part in range(self.num_parts))
            if found != num_entries:
                return f"the {prefix}indices of the parts have {found} entries, and the graph has {num_entries}"
        return None

    def _entries(self, name: str) -> int:
        """Length of an array whose length only its record knows."""
        record = self.arrays.get(name)
        return record.shape[0] if record and record.shape else 0


def is_parts(folder: Path) -> bool:
    """Whether prepared data are a partitioned graph. `UserError` if they are damaged."""
    return "parts_version" in read_header(folder).kind_fields


def read_parts_metadata(folder: Path, kind: str | None = None) -> PartsMetadata:
    """What a parts folder says about itself; `UserError` if it is none, damaged, or not of the task `kind`."""
    if not is_parts(folder):
        raise UserError(
            f"{folder} holds a graph that is not partitioned", fix=f"graphmill partition {folder} --num-parts P"
        )
    return read_metadata(folder, PartsMetadata, kind or read_header(folder).kind)


def again(metadata: PartsMetadata, path: Path) -> str:
    """What to type where the parts in the folder `path` are damaged: what makes the same parts again."""
    known, words = metadata, [f"--num-parts {metadata.num_parts}"]
    words += [] if known.method == DEFAULT_METHOD else [f"--method {known.method}"]
    words += [] if known.balance == default_balance(known.method) else [f"--balance {known.balance}"]
    words += [f"--seed {known.rng_seed}"] if known.rng_seed else []
    words += [f"--fanouts {' '.join(map(str, known.fanouts))}"] if known.fanouts else []
    is_copy = path.parent.name != known.name.rpartition("/")[2]  # which has a name of its own
    words += [] if is_copy or path.name == f"{known.num_parts}-{known.method}" else [f"--name {path.name}"]
    return f"partition the graph again: graphmill partition {known.name} {' '.join(words)} --force"


def decides_where(name: str) -> bool:
    """Whether an array says where nodes, rows and seeds are, or what is to be learnt: small, and fatal if wrong."""
    folder, _, array = name.partition("/")
    return folder in {"node_book", "splits"} or array in _OF_ROWS


def files_of(metadata: PartsMetadata, parts: Iterable[int], *, whole_topology: bool) -> list[str]:
    """The arrays that a host with these parts reads."""
    own = {part_folder(number) for number in parts}
    common = {"node_book", "splits", LISTS_FOLDER} | ({TOPOLOGY_FOLDER} if whole_topology else set())
    return [name for name in metadata.arrays if name.split("/")[0] in own | common]
