"""Features of edges: one row per edge as it was given, found from the entries of either topology."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.topology import EdgeIds, Topology, topology_with_edge_ids

EdgeRows = NDArray[np.float32]  # [num_edges, num_edge_features], or [num_edges, 1] of weights


@dataclass(frozen=True, slots=True)
class EdgeFeatures:
    """What the entries of a topology carry. An edge that was given once has the same features in both directions."""

    values: EdgeRows  # of the edges as given, in the order of their topology
    rows: NDArray[np.int32] | NDArray[np.int64] | None  # [num_entries]: each entry's row; None: its own number

    @property
    def num_features(self) -> int:
        """Columns."""
        return int(self.values.shape[1])

    def with_columns(self, columns: Sequence[int]) -> "EdgeFeatures":
        """Choose columns: all of them stay mapped, others are copied."""
        if list(columns) == list(range(self.num_features)):
            return self
        return EdgeFeatures(np.ascontiguousarray(self.values[:, list(columns)]), self.rows)

    def rows_of(self, entries: EdgeIds) -> NDArray[np.int64]:
        """The rows of `values` that hold the features of these entries of the topology [n]."""
        return entries if self.rows is None else self.rows[entries].astype(np.int64, copy=False)


def edge_features_problem(values: NDArray[Any], num_edges: int) -> str | None:
    """Why an array cannot hold features of `num_edges` edges, or None."""
    if values.ndim != 2 or len(values) != num_edges or values.dtype != np.float32:
        return f"{values.dtype} {list(values.shape)}, and there are {num_edges} edges"
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(broken):
        return f"edge {broken[0]} has {values[broken[0]].tolist()}, which is not finite"
    return None


def refuse_negative_weights(weights: NDArray[np.float32], name: str) -> None:
    """Raise a `UserError` for a weight [num_edges] that no mean can divide by; `name`: of the graph."""
    if len(weights) and weights.min() < 0:
        raise UserError(
            f"dataset.edge_features is edge_weight, but {name} has the weight {weights.min():g}, and a mean by weights"
            " divides by their sum",
            fix="prepare the data with weights that are not negative, or set model.kind=custom",
        )


def in_both_directions(given: Topology) -> tuple[Topology, EdgeIds]:
    """The union of both directions of every edge, and of which entry of `given` each of its entries is.

    Where both directions were given, each is its own; else the other direction is that of the edge that was given.
    """
    targets = np.repeat(np.arange(given.num_nodes), np.diff(given.indptr))
    ends = np.stack([given.indices.astype(np.int64, copy=False), targets])
    return topology_with_edge_ids(ends, given.num_nodes, undirected=True)


def edge_columns(given: Mapping[str, NDArray[Any]], *, place: str) -> tuple[EdgeRows | None, tuple[str, ...]]:
    """All columns side by side as float32, and their names; None if nothing is given.

    A two-dimensional array gives a column for each of its own, numbered after its name. What the numbers must be
    besides numbers, and how many, is checked with the graph.
    """
    names: list[str] = []
    columns: list[NDArray[np.float32]] = []
    for name, values in given.items():
        if values.dtype.kind not in "iufb" or values.ndim not in (1, 2) or 0 in values.shape[1:]:
            raise UserError(
                f"{place} {name}: {values.dtype} {list(values.shape)}",
                fix="give numbers, [num_edges] or [num_edges, num_edge_features], or leave it out",
            )
        block = values.reshape(len(values), -1)
        names += [name] if block.shape[1] == 1 else [f"{name}_{number}" for number in range(block.shape[1])]
        with np.errstate(over="ignore"):  # infinities are refused with the graph, by edge
            columns.append(block.astype(np.float32))
    lengths = {name: len(values) for name, values in given.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(
            f"{place} " + ", ".join(f"{name}: {length} rows" for name, length in lengths.items()),
            fix="give one row per edge in each",
        )
    return (np.concatenate(columns, axis=1) if columns else None), tuple(names)
