"""Lists of PyG's `Data`, one for each graph, and PyG's datasets of them, as flat arrays.

store = write_graphs(from_data_list(TUDataset(root, "ENZYMES"), name="mine"), Path("data/mine"))
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.graph_set import GraphSet
from graphmill.tasks.graph_classification.data.prepare import labelled
from graphmill.tasks.graph_classification.data.read import Read
from graphmill.tasks.graph_classification.data.store import RawGraphs

_SHAPES: Final = {"x": "[num_nodes, num_features]", "edge_index": "[2, num_edges]", "edge_attr": "[num_edges, …]"}


def from_data_list(
    graphs: Iterable[Any],
    *,
    name: str,
    split: Sequence[int] | None = None,
    split_seed: int = 0,
    source: str = "a list of PyG Data objects",
    synthetic: bool = False,
) -> RawGraphs:
    """Graphs from `data.x`, `data.edge_index`, `data.y` (one class) and, where all have it, `data.edge_attr`.

    `split` [num_graphs]: 0 train, 1 validation, 2 test; None: 80/10/10 of each class are drawn with `split_seed`.

    Raises:
        UserError: names the graph, counted from 0, that lacks something or is of another shape than the first.
    """
    parts: dict[str, list[NDArray[Any]]] = {"x": [], "edge_index": [], "edge_attr": []}
    labels: list[int] = []
    for number, data in enumerate(graphs):
        arrays = _arrays(data, number)
        for key, array in arrays.items():
            _refuse_other_width(key, array, parts[key], number)
            parts[key].append(array)
        labels.append(_label(data, number))
    if not labels:
        raise UserError(f"{name} has no graphs", fix="give a list of Data objects, or a dataset of PyG")
    if parts["edge_attr"] and len(parts["edge_attr"]) < len(labels):
        raise UserError(
            f"{len(parts['edge_attr']):,} of {len(labels):,} graphs have edge_attr", fix="give it to all, or to none"
        )
    of_graphs = GraphSet.of(
        np.array([len(x) for x in parts["x"]]),
        np.array([edge_index.shape[1] for edge_index in parts["edge_index"]]),
        np.concatenate(parts["edge_index"], axis=1),
        np.concatenate(parts["x"]).astype(np.float32),
        np.concatenate(parts["edge_attr"]).astype(np.float32) if parts["edge_attr"] else None,
    )
    given = None if split is None else np.asarray(split, np.int8)
    read = Read(source, of_graphs, np.array(labels, np.int64), given)
    return labelled(read, name, split_seed, synthetic=synthetic)


def _arrays(data: Any, number: int) -> dict[str, NDArray[Any]]:  # noqa: ANN401  # PyG is an optional install
    found = {key: _numpy(getattr(data, key)) for key in _SHAPES if getattr(data, key, None) is not None}
    if missing := [key for key in ("x", "edge_index") if key not in found]:
        raise UserError(f"graph {number} has no {' and no '.join(missing)}", fix=f"set data.{missing[0]}")
    if "edge_attr" in found and found["edge_attr"].ndim == 1:
        found["edge_attr"] = found["edge_attr"][:, None]
    edges = found["edge_index"]
    misfits = [key for key in found if found[key].ndim != 2]
    misfits += ["edge_index"] if edges.ndim == 2 and (len(edges) != 2 or edges.dtype.kind not in "iu") else []
    if edges.ndim == 2 and "edge_attr" in found and len(found["edge_attr"]) != edges.shape[1]:
        misfits.append("edge_attr")
    if misfits:
        key = misfits[0]
        raise UserError(
            f"graph {number}: data.{key} is {found[key].dtype} {list(found[key].shape)}",
            fix=f"give it as {_SHAPES[key]}{', of whole numbers' if key == 'edge_index' else ''}",
        )
    return found


def _refuse_other_width(key: str, array: NDArray[Any], before: list[NDArray[Any]], number: int) -> None:
    if key != "edge_index" and before and array.shape[1] != before[0].shape[1]:
        raise UserError(
            f"graph {number}: data.{key} has {array.shape[1]} columns, and the graphs before have {before[0].shape[1]}",
            fix="give all graphs the same features",
        )


def _label(data: Any, number: int) -> int:  # noqa: ANN401
    y = getattr(data, "y", None)
    array = None if y is None else _numpy(y).reshape(-1)
    if array is None or len(array) != 1 or array[0] != int(array[0]):
        told = "no y" if array is None else f"y = {array.tolist()[:4]}"
        raise UserError(f"graph {number} has {told}", fix="set data.y to its class, one whole number")
    return int(array[0])


def _numpy(tensor: Any) -> NDArray[Any]:  # noqa: ANN401  # a tensor or whatever numpy takes
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)
