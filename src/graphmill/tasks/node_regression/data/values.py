"""What every source of node regression yields: a graph with values and a split for each node; and its checks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.raw import RawGraph, check_raw_graph, refusal, refuse_no_features
from graphmill.graph.splits import SPLIT_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuedGraph(RawGraph):
    """A graph in memory whose nodes have values, not yet checked. `origin` may also have "values" and "split"."""

    values: NDArray[np.float32]  # [num_nodes, num_targets]; NaN: not known
    split: NDArray[np.int8]  # [num_nodes]: SPLIT_CODES
    target_names: tuple[str, ...] = ()
    split_note: str = "as given"


def values_of(y: NDArray[Any], *, place: str) -> NDArray[np.float32]:
    """Values [num_nodes, num_targets] in float32, of numbers [num_nodes] or of that shape; NaN: not known."""
    if y.dtype.kind not in "iuf" or y.ndim not in (1, 2) or 0 in y.shape[1:]:
        raise UserError(
            f"{place}: values are {y.dtype} {list(y.shape)}",
            fix="give numbers, one per node or a column for each of several; NaN: not known",
        )
    with np.errstate(over="ignore"):  # infinities are refused with the graph, by node
        return y.reshape(len(y), -1).astype(np.float32)


def check_valued(raw: ValuedGraph) -> None:
    """Refuse what cannot be trained on, with a `UserError` that says where it is and what to do."""
    check_raw_graph(raw)
    refuse_no_features(raw)
    values, split, num_nodes = raw.values, raw.split, raw.num_nodes
    if values.shape[:1] != (num_nodes,) or split.shape != (num_nodes,):
        problem = f"{len(values)} nodes have values, {len(split)} a split, and there are {num_nodes} nodes"
        raise refusal(raw, "values", problem, fix="give one row of values and one split per node")
    infinite = np.argwhere(np.isinf(values))
    if len(infinite):
        node, target = infinite[0]
        raise refusal(
            raw,
            "values",
            f"node {node}, column {target} has {values[node, target]}, which is no finite float32",
            fix="correct it, or give NaN where a value is not known",
        )
    bare = np.flatnonzero(np.isnan(values).all(axis=1) & (split != SPLIT_CODES["none"]))
    if len(bare):
        name = next(key for key, code in SPLIT_CODES.items() if code == split[bare[0]])
        raise refusal(
            raw,
            "values",
            f"node {bare[0]} is in the {name} split and has no value ({len(bare)} such nodes)",
            fix="give it a value, or take it out of the split",
        )
    _check_training(raw)


def _check_training(raw: ValuedGraph) -> None:
    """Refuse a column without a training node: mean and deviation are those of the training nodes."""
    known = (~np.isnan(raw.values[raw.split == SPLIT_CODES["train"]])).sum(axis=0)
    if not known.all():
        raise refusal(
            raw,
            "values",
            f"no training node has a value in column {int(known.argmin())}",
            fix="mark training nodes that have, or split at random: -o random_split=true; or leave the column out",
        )
    if raw.target_names and len(raw.target_names) != raw.values.shape[1]:
        raise refusal(
            raw,
            "values",
            f"{len(raw.target_names)} names for {raw.values.shape[1]} columns",
            fix="give one name per column in target_names, or leave them out",
        )
