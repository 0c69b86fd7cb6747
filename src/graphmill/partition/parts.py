"""A partitioned graph at rest: one folder of parts, the book that finds nodes in them, and what all ranks read.

A host needs the folder's metadata, its book and splits, and the folders of its own parts; the whole topology only where
sampling is not partitioned.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.arrays import check_arrays, check_checksums, map_array, refuse_beyond
from graphmill.graph.edge_features import EdgeRows
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.header import ArrayRecord
from graphmill.graph.pages import evict
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.topology import EdgeIds, Topology
from graphmill.partition.book import PartitionBook
from graphmill.partition.metadata import (
    LISTS_FOLDER,
    TOPOLOGY_FOLDER,
    PartsMetadata,
    again,
    decides_where,
    files_of,
    is_parts,
    part_folder,
    read_parts_metadata,
)
from graphmill.record.staged import Share

__all__ = ["Part", "PartedGraph", "again", "files_of", "is_parts", "read_parts_metadata"]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of some nodes: their in-edges, features and labels. Neighbours are identities, ascending in a row."""

    path: Path
    metadata: PartsMetadata
    number: int

    @property
    def node_ids(self) -> NDArray[Any]:
        """The node of each row [num_rows], ascending."""
        return self.array("node_ids")

    def topology(self, *, undirected: bool) -> Topology:
        """In-neighbours of the part's rows, as given or in both directions."""
        prefix = self._prefix(undirected)
        return Topology(self.array(f"{prefix}indptr"), self.array(f"{prefix}indices"))

    def first_entries(self, *, undirected: bool) -> EdgeIds:
        """Place in the whole graph's topology where each row's in-edges begin [num_rows]: edge ids count from it."""
        return self.array(f"{self._prefix(undirected)}entries")

    @property
    def features(self) -> Features:
        """Features of the part's rows."""
        known = self.metadata
        if known.has_sparse_features:
            return SparseFeatures(
                self.array("x_indptr"), self.array("x_indices"), self.array("x_values"), known.num_features
            )
        return DenseFeatures(self.array("x"), known.feature_dtype)

    def edge_attr(self, *, undirected: bool) -> EdgeRows:
        """Features of the entries of that topology, in their order [num_entries, num_edge_features]."""
        return self.array(f"{self._prefix(undirected)}edge_attr")

    @property
    def node_type(self) -> NDArray[Any]:
        """Type of each row [num_rows], of a typed graph."""
        of_all: NDArray[Any] = _mapped(self.path, self.metadata.arrays, "node_book/node_type")
        own: NDArray[Any] = of_all[self.node_ids]
        return own

    def array(self, name: str) -> NDArray[Any]:
        """An array of the part, mapped."""
        return _mapped(self.path, self.metadata.arrays, f"{part_folder(self.number)}/{name}")

    def _prefix(self, undirected: bool) -> str:
        return "undirected_" if undirected and not self.metadata.is_symmetric else ""


@dataclass(frozen=True, slots=True)
class LabelsOfSplits:
    """Targets by node id, of the nodes in a split: searched for in what is mapped, so that no array is kept."""

    splits: tuple[tuple[NDArray[np.int64], NDArray[np.integer[Any]]], ...]
    """Nodes of each split, ascending, and their classes int64 [n], or labels int8 [n, num_labels]."""

    def __getitem__(self, ids: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
        """The class, or the labels, of each of `ids` [n], which are in a split."""
        like = self.splits[0][1]
        classes = np.empty((len(ids), *like.shape[1:]), dtype=like.dtype)
        for (_, its_classes), (here, places) in zip(self.splits, self._places_by_split(ids), strict=True):
            classes[here] = its_classes[places]
        return classes

    def has(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of `ids` [n] is in a split."""
        found = np.zeros(len(ids), dtype=np.bool_)
        for here, _ in self._places_by_split(ids):
            found[here] = True
        return found

    def evict(self) -> None:
        """Hand what was read back to the page cache, until it is read again."""
        for nodes, classes in self.splits:
            evict(nodes)
            evict(classes)

    def _places_by_split(self, ids: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Positions in `ids` of the nodes of each split, and their places in the split."""
        for nodes, _ in self.splits:
            places = np.searchsorted(nodes, ids).clip(max=max(0, len(nodes) - 1))
            here = np.flatnonzero(nodes[places] == ids) if len(nodes) else np.empty(0, dtype=np.int64)
            yield here, places[here]


@dataclass(frozen=True, slots=True)
class PartedGraph:
    """A graph in parts, of which this host has some."""

    path: Path
    metadata: PartsMetadata
    parts: tuple[int, ...]  # those that were asked for

    @classmethod
    def open_what_is_here(cls, path: Path) -> "PartedGraph":
        """Open all that this host has of the folder `path`, as `open` does."""
        here = parts_here(path, read_parts_metadata(path))
        return cls.open(path, parts=here.parts, whole_topology=here.whole_topology)

    @classmethod
    def open(
        cls, path: Path, *, parts: Sequence[int] | None = None, whole_topology: bool = True, reads_index: bool = True
    ) -> "PartedGraph":
        """Open the folder `path` after checking the files of `parts` (None: all) and what all ranks read.

        `UserError` if a file is missing, has another size or shape, or is younger than the metadata and was changed.
        What decides where everything is, is read whatever its time; not without `reads_index`, as planners are quick.
        """
        metadata = read_parts_metadata(path)
        wanted = tuple(range(metadata.num_parts)) if parts is None else tuple(parts)
        names = files_of(metadata, wanted, whole_topology=whole_topology)
        try:
            check_arrays(path, {name: metadata.arrays[name] for name in names})
            if reads_index:
                check_checksums(path, {name: metadata.arrays[name] for name in names if decides_where(name)})
                _refuse_strangers(path, metadata, names)
        except UserError as error:
            missing = [number for number in wanted if not (path / part_folder(number)).is_dir()]
            if missing:
                raise UserError(
                    f"{path} does not hold part {missing[0]}: {part_folder(missing[0])} is missing",
                    fix=f"graphmill stage {path} --part {missing[0]}, or partition the graph again",
                ) from error
            raise UserError(error.message, fix=again(metadata, path)) from error
        return cls(path, metadata, wanted)

    @property
    def has_topology(self) -> bool:
        """Whether the whole graph's topology is on this host."""
        return parts_here(self.path, self.metadata).whole_topology

    @property
    def book(self) -> PartitionBook:
        """Book of the part that each node is in."""
        offsets = np.asarray(self.metadata.offsets, dtype=np.int64)
        return PartitionBook(offsets, _mapped(self.path, self.metadata.arrays, "node_book/storage_of"))

    @property
    def node_type(self) -> NDArray[Any]:
        """Type of each node of the whole graph [num_nodes], if it is typed; it lies with the book, on every host."""
        return _mapped(self.path, self.metadata.arrays, "node_book/node_type")

    def part(self, number: int) -> Part:
        """Return one of the parts that were opened."""
        if number not in self.parts:
            raise ValueError(f"part {number} was not opened: {self.parts}")
        return Part(self.path, self.metadata, number)

    def topology(self, *, undirected: bool) -> Topology:
        """Topology of the whole graph, where every host has it."""
        prefix = "undirected_" if undirected and not self.metadata.is_symmetric else ""
        arrays = self.metadata.arrays
        return Topology(
            _mapped(self.path, arrays, f"topology/{prefix}indptr"),
            _mapped(self.path, arrays, f"topology/{prefix}indices"),
        )

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """Ascending ids of the nodes of a split, of all parts. `UserError` if its nodes are in none."""
        if not self.metadata.splits:
            raise UserError(
                f"the nodes of {self.path} are in no splits: it was made for the task {self.metadata.kind}",
                fix="name nodes yourself, such as torch.arange(num_nodes), or parts of a graph whose nodes are split",
            )
        return _mapped(self.path, self.metadata.arrays, f"splits/{split}")

    @property
    def labels(self) -> LabelsOfSplits:
        """Classes, or labels, of the nodes that are in a split, by id."""
        splits = SPLITS if self.metadata.splits else ()
        return LabelsOfSplits(tuple((self.nodes_in(split), self.labels_in(split)) for split in splits))

    def list_of(self, name: str) -> NDArray[Any]:
        """One of the metadata's `lists`, mapped."""
        return _mapped(self.path, self.metadata.arrays, f"{LISTS_FOLDER}/{name}")

    def labels_in(self, split: Split) -> NDArray[np.integer[Any]]:
        """Classes [n] of the nodes of a split, or labels [n, num_labels], in the order of `nodes_in`."""
        return _mapped(self.path, self.metadata.arrays, f"splits/{split}_y")


def parts_here(path: Path, metadata: PartsMetadata) -> Share:
    """What is on this host, by its folders: a staged copy has some parts, and may lack the whole topology."""
    here = tuple(number for number in range(metadata.num_parts) if (path / part_folder(number)).is_dir())
    return Share(here, (path / TOPOLOGY_FOLDER).is_dir())


def _refuse_strangers(path: Path, metadata: PartsMetadata, names: Sequence[str]) -> None:
    """`UserError` where nodes or places are none of the graph's."""
    for name in names:
        folder, _, array = name.partition("/")
        if array in ("storage_of", "node_ids") or (folder == "splits" and not array.endswith("_y")):
            found = _mapped(path, metadata.arrays, name)
            refuse_beyond(path / f"{name}.npy", found, metadata.num_nodes)
            evict(found)


def _mapped(folder: Path, arrays: dict[str, ArrayRecord], name: str) -> NDArray[Any]:
    return map_array(folder / f"{name}.npy", arrays[name])
