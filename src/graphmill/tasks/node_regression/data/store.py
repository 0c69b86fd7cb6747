"""A prepared graph whose nodes have values and splits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from graphmill.base.errors import UserError
from graphmill.graph.header import Expected, damaged, seal, write_metadata
from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.splits import SPLIT_CODES, Split, SplitName
from graphmill.graph.store import GraphStore
from graphmill.graph.typed import describe_types
from graphmill.graph.verify import verify_graph
from graphmill.graph.write import new_store, write_all, write_graph
from graphmill.spec.experiment import DatasetSpec
from graphmill.spec.typed_graph import plain_features
from graphmill.tasks.node_regression.data.values import ValuedGraph, check_valued
from graphmill.tasks.node_regression.page import ValuesInfo
from graphmill.tasks.node_regression.page.data import NAME


class ValuesMetadata(GraphMetadata):
    """What a prepared graph with values says about itself."""

    format_version: Literal[1] = 1
    num_features: PositiveInt  # models of this task read nothing else of a node
    split: str = Field(description="who drew the split")
    num_targets: PositiveInt = Field(description="values of a node")
    target_names: tuple[str, ...] = Field(description="one per value, or none at all")
    splits: dict[SplitName, NonNegativeInt]

    def expected_arrays(self) -> Expected:
        """What the arrays of such a graph must be."""
        own: Expected = {"y": ("float32", (self.num_nodes, self.num_targets)), "split": ("int8", (self.num_nodes,))}
        return GraphMetadata.expected_arrays(self) | own

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        if problem := GraphMetadata.disagreement(self):
            return problem
        if set(self.splits) != set(SPLIT_CODES) or sum(self.splits.values()) != self.num_nodes:
            return f"splits {self.splits} do not add up to {self.num_nodes} nodes"
        if self.target_names and len(self.target_names) != self.num_targets:
            return f"{len(self.target_names)} names for {self.num_targets} values"
        return None


@dataclass(frozen=True, slots=True)
class ValuesStore(GraphStore):
    """A prepared graph with the values and the split of every node."""

    metadata: ValuesMetadata

    kind = NAME
    own_part = ValuesMetadata

    @property
    def values(self) -> NDArray[np.float32]:
        """Values of every node [num_nodes, num_targets]; NaN: not known."""
        return self.array("y")

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """Ascending ids of the nodes of a split."""
        found = np.flatnonzero(self.array("split") == SPLIT_CODES[split]).astype(np.int64, copy=False)
        if len(found) != self.metadata.splits[split]:
            raise damaged(
                self.path / "split.npy",
                f"{len(found)} nodes are {split}, and metadata.json says {self.metadata.splits[split]}",
            )
        return found

    def verify(self) -> None:
        """Read everything: checksums of all files, then what the arrays promise. `UserError` names the first breach."""
        arrays = verify_graph(self.path, self.metadata)
        values, split = arrays["y"], arrays["split"]
        if np.isinf(values).any():
            raise damaged(self.path / "y.npy", "it holds an infinite value")
        bare = np.flatnonzero(np.isnan(values).all(axis=1) & (split != SPLIT_CODES["none"]))
        if len(bare):
            raise damaged(self.path / "y.npy", f"node {bare[0]} is in a split and has no value")
        for name in ("train", "val", "test"):
            self.nodes_in(name)

    def info(self, spec: DatasetSpec) -> ValuesInfo:
        """What the planner must know. `UserError` if a split that training needs is empty."""
        del spec  # whatever is done to a graph when it is read, its counts stay
        known = self.metadata
        for split in ("train", "val", "test"):
            if not known.splits[split]:
                raise UserError(
                    f"{known.name} has no {split} nodes, and the best checkpoint is chosen by val, judged by test",
                    fix="prepare it with such nodes, or with -o random_split=true",
                )
        return ValuesInfo(
            name=known.name,
            path=str(self.path.resolve()),
            checksum=known.checksum,
            synthetic=known.synthetic,
            num_train=known.splits["train"],
            num_nodes=known.num_nodes,
            num_edges=known.num_edges,
            num_features=known.num_features,
            num_targets=known.num_targets,
            has_sparse_features=known.has_sparse_features,
            scales_differ=known.scales_differ,
            edge_features=known.edge_features,
            edge_types=known.relation_names,
            node_types=known.node_type_names,
            type_columns=known.type_columns,
        )

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
            *self._of_values(),
            ("split", f"{splits} ({known.split})"),
            ("symmetric", known.is_symmetric),
            ("isolated nodes", known.num_isolated_nodes),
            ("duplicate edges merged", known.num_duplicate_edges),
            ("self-loops", known.num_self_loops),
        ]

    def _of_values(self) -> list[tuple[str, str]]:
        """Rows for a table: how often each value is known, and its mean and deviation over the training nodes."""
        train, rows = self.values[self.nodes_in("train")].astype(np.float64), []
        names = self.metadata.target_names or tuple(map(str, range(self.metadata.num_targets)))
        for number, name in enumerate(names):
            known = int(np.count_nonzero(~np.isnan(self.values[:, number])))
            mean, sd = np.nanmean(train[:, number]), np.nanstd(train[:, number])
            rows.append((f"value {name}", f"of {known:,} nodes; in train {mean:.4g} on average, deviation {sd:.4g}"))
        return rows


def write_values(raw: ValuedGraph, path: Path) -> ValuesStore:
    """Check `raw`, build its topologies and write the folder `path`, whole or not at all; a store there is replaced."""
    check_valued(raw)
    with new_store(path) as folder:
        known = write_graph(raw, folder, NAME)
        own = write_all(folder, {"y": raw.values.astype(np.float32), "split": raw.split.astype(np.int8)})
        of_graph = {name: getattr(known, name) for name in GraphMetadata.model_fields}
        metadata = ValuesMetadata(
            **{**of_graph, "arrays": known.arrays | own},
            split=raw.split_note,
            num_targets=raw.values.shape[1],
            target_names=raw.target_names,
            splits={name: int(np.count_nonzero(raw.split == code)) for name, code in SPLIT_CODES.items()},
        )
        sealed = seal(metadata)
        write_metadata(folder, sealed)
    return ValuesStore(path, sealed)
