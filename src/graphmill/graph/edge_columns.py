"""Features of edges, column by column, as sources give them: weights [num_edges], attributes [num_edges, any]."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.edge_features import EdgeRows


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
