"""A PyG `Data` object, and PyG's own dataset classes by name. Only `graph/tensors.py` imports torch, once called."""

import importlib
import inspect
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.graph.edge_features import edge_columns
from graphmill.graph.splits import SplitName, first_columns, split_from_masks
from graphmill.graph.tensors import as_numpy, edge_index_of, features_of, required
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.hetero import from_hetero
from graphmill.tasks.node_classification.data.sources.labels import no_labels, random_split, targets_of

PREFIX = "pyg/"
_NOT_READ = ("edge_type", "pos")  # of what is usual in PyG
_SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


def from_data(
    data: Any,  # noqa: ANN401  # a torch_geometric.data.Data, or anything with the same attributes
    *,
    name: str,
    class_names: Sequence[str] = (),
    source: str = "a PyG Data object",
    synthetic: bool = False,
    split_seed: int | None = None,
) -> LabelledGraph:
    """A graph from `data.x`, `data.edge_index` (or `adj_t`), `data.y` and `train_mask, val_mask, test_mask`.

    `data.y` [num_nodes, num_labels] holds 0 or 1 for each of several labels. Without `data.y` it is a graph without
    labels.
    Features of edges are `data.edge_weight` and `data.edge_attr`, or the values of `adj_t`.
    Of masks with several columns (one per split) the first is taken, and metadata says so. With `split_seed` the split
    is drawn at random, whatever the masks say.
    """
    tell_unused("the Data object", {name for name in _NOT_READ if getattr(data, name, None) is not None})
    features = features_of(required(data, "x"))
    labels: NDArray[np.integer[Any]]
    labels, split, note = no_labels(features.num_nodes)
    if getattr(data, "y", None) is not None:
        labels = targets_of(as_numpy(data.y), place="data.y")
    if split_seed is not None:
        split, note = random_split(labels, split_seed)
    elif any(getattr(data, name, None) is not None for name in ("y", *(f"{each}_mask" for each in _SPLITS))):
        split, note = _split(data, len(labels))
    of_edges, names = edge_columns(_edge_arrays(data), place="data:")
    return LabelledGraph(
        edge_index=edge_index_of(data),
        edge_features=of_edges,
        edge_feature_names=names,
        features=features,
        labels=labels,
        split=split,
        class_names=tuple(class_names),
        name=name,
        source=source,
        synthetic=synthetic,
        split_note=note,
        origin={
            "edge_index": "data.edge_index",
            "features": "data.x",
            "edge_features": "data.edge_weight, data.edge_attr",
            "labels": "data.y",
            "split": "data.*_mask",
        },
    )


def read_pyg_dataset(name: str, stored_name: str, *, split_seed: int | None = None) -> LabelledGraph:
    """`pyg/WikiCS`, `pyg/CitationFull/Cora_ML`: download with PyG's own class and take the first graph.

    A heterogeneous one is read as a typed graph.

    PyG unpickles its raw and processed files, so the folder is a fresh one, never a path that the user gives.
    """
    class_name, _, dataset_name = name.removeprefix(PREFIX).partition("/")
    dataset_class = _dataset_class(class_name)
    parameters = inspect.signature(dataset_class).parameters
    with tempfile.TemporaryDirectory(prefix="graphmill-pyg-") as folder:
        arguments = {
            key: value for key, value in (("root", folder), ("name", dataset_name)) if key in parameters and value
        }
        try:
            dataset = dataset_class(**arguments)
            data = dataset[0]
        except Exception as error:  # PyG's loaders raise whatever their download and parser raise
            raise UserError(
                f"torch_geometric.datasets.{class_name} did not load: {type(error).__name__}: {error}",
                fix="check the network and the name, or load it where there is one and write a .npz for --from",
            ) from error
    source = f"torch_geometric.datasets.{class_name} {dataset_name}".strip()
    read = from_hetero if hasattr(data, "edge_types") else from_data
    generated = class_name.startswith("Fake")
    return read(data, name=stored_name, source=source, synthetic=generated, split_seed=split_seed)


def _dataset_class(class_name: str) -> Any:  # noqa: ANN401  # PyG is an optional install
    try:
        datasets = importlib.import_module("torch_geometric.datasets")
    except ImportError:
        raise UserError(
            "datasets of PyG by name need torch_geometric, which is not installed", fix="pip install 'graphmill[pyg]'"
        ) from None
    if class_name not in datasets.__all__:
        raise UserError(f"PyG has no dataset {class_name}", fix=did_you_mean(class_name, datasets.__all__))
    return getattr(datasets, class_name)


def _edge_arrays(data: Any) -> dict[str, NDArray[Any]]:  # noqa: ANN401
    given = {name: getattr(data, name, None) for name in ("edge_weight", "edge_attr")}
    if getattr(data, "edge_index", None) is None:
        adjacency = required(data, "adj_t")
        is_torch_sparse = hasattr(adjacency, "coo")
        weights = adjacency.coo()[2] if is_torch_sparse else adjacency.to_sparse_coo().coalesce().values()
        given["edge_weight"] = None if weights is None or (weights == 1).all() else weights  # 1: what PyG fills in
    return {name: as_numpy(values) for name, values in given.items() if values is not None}


def _split(data: Any, num_nodes: int) -> tuple[NDArray[np.int8], str]:  # noqa: ANN401
    given = {name: getattr(data, f"{name}_mask", None) for name in _SPLITS}
    masks, note = first_columns({name: as_numpy(mask) for name, mask in given.items() if mask is not None})
    if "train" not in masks:
        raise UserError(
            "the Data object has no train_mask",
            fix="set it (and val_mask, test_mask), or split at random: --random-split",
        )
    return split_from_masks(masks, num_nodes, place="data.*_mask"), f"as given by the masks{note}"
