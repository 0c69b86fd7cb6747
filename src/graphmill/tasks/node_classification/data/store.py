"""A prepared graph whose nodes have targets, classes or labels, and splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from graphmill.base.errors import UserError
from graphmill.graph.arrays import check_arrays, refuse_beyond
from graphmill.graph.header import Expected, damaged, read_metadata, seal, write_metadata
from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.splits import SPLIT_CODES, SplitName
from graphmill.graph.store import GraphStore
from graphmill.graph.typed import describe_types
from graphmill.graph.verify import verify_graph
from graphmill.graph.write import new_store, write_all, write_graph
from graphmill.partition.metadata import PartsMetadata
from graphmill.spec.experiment import DatasetSpec
from graphmill.spec.targets import TARGET, TargetKind, stored_target
from graphmill.spec.typed_graph import plain_features
from graphmill.tasks.node_classification.data import several
from graphmill.tasks.node_classification.data.classes import class_counts, class_facts, edge_homophily
from graphmill.tasks.node_classification.data.labelled import LabelledGraph, check_labelled, is_labelled
from graphmill.tasks.node_classification.page import KIND, GraphInfo

_MOST_EDGES = 200_000_000  # that `inspect` reads for the homophily: a few seconds


class StoreMetadata(GraphMetadata):
    """What a prepared graph with classes, or labels, says about itself."""

    came_later: ClassVar[tuple[str, ...]] = (*GraphMetadata.came_later, TARGET)

    format_version: Literal[1] = 1
    num_features: PositiveInt  # models of this task read nothing else of a node
    split: str = Field(description="who drew the split")
    target_kind: TargetKind = Field("class", description="of a node: its class, or which labels it has")
    num_classes: NonNegativeInt = Field(description="classes, or labels; 0: no node has a label")
    class_names: tuple[str, ...] = Field(description="one per class or label, or none at all")
    splits: dict[SplitName, NonNegativeInt]

    def expected_arrays(self) -> Expected:
        """What the arrays of such a graph must be."""
        y = stored_target(self.target_kind, self.num_nodes, self.num_classes)
        own: Expected = {"y": y, "split": ("int8", (self.num_nodes,))}
        return GraphMetadata.expected_arrays(self) | own

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        if problem := GraphMetadata.disagreement(self):
            return problem
        if set(self.splits) != set(SPLIT_CODES) or sum(self.splits.values()) != self.num_nodes:
            return f"splits {self.splits} do not add up to {self.num_nodes} nodes"
        if self.num_classes and self.splits["train"] == 0:
            return "the training split is empty"
        if self.class_names and len(self.class_names) != self.num_classes:
            return f"{len(self.class_names)} class names for {self.num_classes} classes"
        if self.target_kind == "labels" and self.num_classes < 2:
            return f"{self.num_classes} labels, and one alone would be a class"
        return None


@dataclass(frozen=True, slots=True)
class LabelledGraphStore(GraphStore):
    """A prepared graph with the class, or the labels, and the split of every node."""

    metadata: StoreMetadata

    kind = KIND.name
    own_part = StoreMetadata

    @classmethod
    def open_labels(cls, path: Path) -> "LabelledGraphStore":
        """Open a graph of which only classes and splits are read: the other files need not be here."""
        metadata = read_metadata(path, StoreMetadata, KIND.name)
        check_arrays(path, {name: metadata.arrays[name] for name in ("y", "split")}, notes=False)
        return cls(path, metadata)

    def verify(self) -> None:
        """Read everything: checksums of all files, then what the arrays promise. `UserError` names the first breach."""
        arrays = verify_graph(self.path, self.metadata)
        _verify_labels(self.path, self.metadata, arrays)

    @property
    def labels(self) -> NDArray[np.integer[Any]]:
        """Class of every node int64 [num_nodes], or its labels int8 [num_nodes, num_labels]; -1: unlabelled."""
        return self.array("y")

    def seeds_of_nodes(self) -> NDArray[np.bool_]:
        """Whether each node is a training node [num_nodes]."""
        is_train: NDArray[np.bool_] = self.array("split") == SPLIT_CODES["train"]
        return is_train

    def nodes_in(self, split: Literal["train", "val", "test"]) -> NDArray[np.int64]:
        """Ascending global ids of the nodes of a split."""
        found = np.flatnonzero(self.array("split") == SPLIT_CODES[split]).astype(np.int64, copy=False)
        if len(found) != self.metadata.splits[split]:
            raise damaged(
                self.path / "split.npy",
                f"{len(found)} nodes are {split}, and metadata.json says {self.metadata.splits[split]}",
            )
        return found

    def info(self, spec: DatasetSpec) -> GraphInfo:
        """What the planner must know. `UserError` if a split that training needs is empty."""
        del spec  # whatever is done to a graph when it is read, its counts stay
        refuse_unlabelled(self.metadata.name, self.metadata.num_classes)
        refuse_empty_splits(self.metadata.name, self.metadata.splits)
        return graph_info(self.path, self.metadata, num_classes=self.metadata.num_classes, num_parts=None)

    def described(self) -> Sequence[tuple[str, Any]]:
        """What `graphmill inspect` shows."""
        known = self.metadata
        features = plain_features(known.edge_features, known.relation_names)
        splits = ", ".join(f"{name} {known.splits[name]:,}" for name in SPLIT_CODES)
        return [
            ("nodes", known.num_nodes),
            ("edges", known.num_edges),
            ("features", f"{known.num_features:,} ({'sparse' if known.has_sparse_features else known.feature_dtype})"),
            *([("scales of features", "columns differ: standardised by default")] if known.scales_differ else []),
            *([("edge features", ", ".join(features))] if features else []),
            *describe_types(known.node_types, known.edge_types),
            *(self._of_classes(splits) if known.num_classes else [("labels", "none")]),
            ("symmetric", known.is_symmetric),
            ("isolated nodes", known.num_isolated_nodes),
            ("duplicate edges merged", known.num_duplicate_edges),
            ("self-loops", known.num_self_loops),
        ]

    def _of_classes(self, splits: str) -> list[tuple[str, Any]]:
        known = self.metadata
        if known.target_kind == "labels":
            refuse_beyond(self.path / "y.npy", self.labels, 2, least=-1)
            return [
                ("labels", f"{known.num_classes} for each node (multi-label)"),
                *several.label_facts(several.label_counts(self.labels, self.array("split"))),
                ("split", f"{splits} ({known.split})"),
            ]
        refuse_beyond(self.path / "y.npy", self.labels, known.num_classes, least=-1)
        return [
            ("classes", known.num_classes),
            *class_facts(class_counts(self.labels, self.array("split"), known.num_classes)),
            ("edge homophily", self._homophily()),
            ("split", f"{splits} ({known.split})"),
        ]

    def _homophily(self) -> str:
        """Homophily of the undirected graph, in words; of a huge graph it takes too long for a look."""
        if self.metadata.num_undirected_edges > _MOST_EDGES:
            return f"not counted: over {_MOST_EDGES:,} edges"
        found = edge_homophily(self.topology(undirected=True), self.labels)
        return "no edge between labelled nodes" if found is None else f"{found:.3f} of the edges join one class"


def refuse_unlabelled(name: str, num_classes: int) -> None:
    """Raise a `UserError` if no node has a label: there is nothing to learn here, and much else can be done."""
    if not num_classes:
        raise UserError(
            f"{name} has no labels, and node classification learns from those of its training nodes",
            fix="prepare it again with y (in tables: label), a class for each node, -1 where there is none; without"
            f" labels: `graphmill inspect {name}`, `graphmill partition {name} --num-parts 1`, and then"
            " graphmill.NeighborLoader(graphmill.open_partitioned(FOLDER), …) in a script with a loss of your own",
        )


def refuse_empty_splits(name: str, splits: Mapping[Any, int]) -> None:
    """Raise a `UserError` if a graph has no nodes to choose the best checkpoint by, or to judge it by."""
    for split in ("val", "test"):
        if not splits.get(split):
            raise UserError(
                f"{name} has no {split} nodes, and the best checkpoint is chosen by val, judged by test",
                fix="prepare it with such nodes, or with --random-split; if it is in parts, partition it again",
            )


def graph_info(
    path: Path, known: StoreMetadata | PartsMetadata, *, num_classes: int, num_parts: int | None
) -> GraphInfo:
    """What the planner must know of a prepared graph. `num_parts`: None if it is stored whole."""
    return GraphInfo(
        name=known.name,
        path=str(path.resolve()),
        checksum=known.checksum,
        synthetic=known.synthetic,
        num_nodes=known.num_nodes,
        num_edges=known.num_edges,
        num_features=known.num_features,
        target_kind=known.target_kind,
        num_classes=num_classes,
        num_train=known.splits["train"],
        has_sparse_features=known.has_sparse_features,
        scales_differ=known.scales_differ,
        edge_features=known.edge_features,
        edge_types=known.relation_names,
        node_types=known.node_type_names,
        type_columns=known.type_columns,
        num_parts=num_parts,
    )


def write_store(raw: LabelledGraph, path: Path) -> LabelledGraphStore:
    """Check `raw`, build its topologies and write the folder `path`, whole or not at all.

    A store that is there is replaced. Leftovers of writers that were killed are removed.
    """
    check_labelled(raw)
    with new_store(path) as folder:
        known = write_graph(raw, folder, KIND.name)
        y = raw.labels.astype(stored_target(raw.target_kind, 0, 0)[0])
        own = write_all(folder, {"y": y, "split": raw.split.astype(np.int8)})
        of_graph = {name: getattr(known, name) for name in GraphMetadata.model_fields}
        metadata = StoreMetadata(
            **{**of_graph, "arrays": known.arrays | own},
            split=raw.split_note,
            target_kind=raw.target_kind,
            num_classes=len(raw.class_names)
            or (raw.labels.shape[1] if raw.target_kind == "labels" else int(y.max()) + 1),
            class_names=raw.class_names,
            splits={name: int(np.count_nonzero(raw.split == code)) for name, code in SPLIT_CODES.items()},
        )
        sealed = seal(metadata)
        write_metadata(folder, sealed)
    return LabelledGraphStore(path, sealed)


def _verify_labels(folder: Path, metadata: StoreMetadata, arrays: dict[str, NDArray[Any]]) -> None:
    labels, split = arrays["y"], arrays["split"]
    if metadata.target_kind == "labels":
        wrong = np.argwhere((labels < -1) | (labels > 1) | ((labels < 0) != (labels[:, :1] < 0)))
        if len(wrong):
            node, label = wrong[0]
            raise damaged(folder / "y.npy", f"node {node} has {labels[node, label]} for label {label}")
    else:
        outside = np.flatnonzero((labels < -1) | (labels >= metadata.num_classes))
        if len(outside):
            raise damaged(
                folder / "y.npy", f"node {outside[0]} has label {labels[outside[0]]} of {metadata.num_classes} classes"
            )
    bare = np.flatnonzero(~is_labelled(labels) & (split != SPLIT_CODES["none"]))
    if len(bare):
        raise damaged(folder / "y.npy", f"node {bare[0]} is in a split and has no label")
    for name, code in SPLIT_CODES.items():
        num_nodes = int(np.count_nonzero(split == code))
        if num_nodes != metadata.splits[name]:
            raise damaged(
                folder / "split.npy", f"{num_nodes} nodes are {name}, and metadata.json says {metadata.splits}"
            )
