"""Which reader reads what: a .npz file, a PyG `Data` object, or the generator, whose records say `synthetic`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import MAPPED, npz_keys, read_npz
from graphmill.graph.edge_features import edge_columns
from graphmill.graph.features import DenseFeatures
from graphmill.graph.npz import FEATURE_KEYS, TYPE_KEYS, npz_features, types_in
from graphmill.graph.splits import MASK_KEYS, SplitName, first_columns, random_codes, split_from_masks, split_of_archive
from graphmill.graph.tensors import as_numpy, edge_index_of, features_of, required
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_regression.data.values import ValuedGraph, values_of
from graphmill.tasks.node_regression.page.data import DATASETS, ValuesPrepareOptions
from graphmill.tasks.recognise import Look, named

_NODES, _DEGREE, _FEATURES, _NOISE = 2000, 6, 8, 0.1
_EDGES = ("edge_weight", "edge_attr")
_OPTIONAL = (*FEATURE_KEYS, *_EDGES, *MASK_KEYS, "split", "target_names")
_LAYOUT = "a .npz file with edge_index, y, x (or x_data x_indices x_indptr x_shape), and train_mask … or split"


def generate(name: str, options: ValuesPrepareOptions) -> ValuedGraph:
    """Values of a node: a linear map of its features, one of the mean of its neighbours', and noise.

    They are far from 0 and of unlike scale, so that a model which does not standardise them learns little.
    """
    count, targets = options.num_nodes or _NODES, options.targets or 1
    rng = np.random.default_rng(options.seed or 0)
    x = rng.normal(size=(count, _FEATURES)).astype(np.float32)
    ends = rng.integers(0, count, (2, count * _DEGREE // 2))
    ends = ends[:, ends[0] != ends[1]]
    edges = np.unique(np.concatenate([ends, ends[::-1]], axis=1), axis=1)
    total = np.zeros((count, _FEATURES))
    np.add.at(total, edges[1], x[edges[0]])
    mean = total / np.bincount(edges[1], minlength=count).clip(min=1)[:, None]
    own, of_neighbours = rng.normal(size=(2, _FEATURES, targets))
    scale, offset = 10.0 ** np.arange(1, targets + 1), 100.0 * np.arange(1, targets + 1)
    y = x @ own + 2 * mean @ of_neighbours + _NOISE * rng.normal(size=(count, targets))
    split, note = random_codes(np.ones(count, dtype=np.bool_), options.split_seed)
    return ValuedGraph(
        edge_index=edges,
        features=DenseFeatures(x, "float32"),
        values=(offset + scale * y).astype(np.float32),
        split=split,
        name=name,
        source=f"generated: values num_nodes={count} targets={targets} seed={options.seed or 0}",
        synthetic=True,
        split_note=note,
    )


def holds_values(path: Path) -> Look | None:
    """Look whether a file is a graph whose nodes have values: numbers in `y` that are not classes."""
    if path.suffix != ".npz" or not path.is_file() or not {"edge_index", "y"} <= set(npz_keys(path)):
        return None
    y = read_npz(path, required=("y",))["y"]
    if y.dtype.kind != "f" or not (y[np.isfinite(y)] % 1).any():
        return None
    return named("its y holds numbers that are not whole, and so no classes")


def read_values(
    name: str, stored_name: str, from_path: Path | None, options: ValuesPrepareOptions, scratch: Path
) -> ValuedGraph:
    """The dataset `name`, from a file, of which large arrays are unpacked into `scratch`, or generated."""
    split_seed = options.split_seed if options.random_split else None
    if from_path is None and name == DATASETS[0].name:
        return generate(stored_name, options)
    if from_path is None:
        raise UserError(f"{name} needs --from", fix=f"give --from PATH, where PATH is {_LAYOUT}")
    if not from_path.exists():
        raise UserError(f"{from_path} does not exist", fix="give a path that does with --from")
    if from_path.suffix != ".npz":
        raise UserError(f"{from_path} is in no layout that graphmill reads for {name!r}", fix=f"give {_LAYOUT}")
    return read_archive(from_path, stored_name, scratch=scratch, split_seed=split_seed)


def read_archive(path: Path, name: str, *, scratch: Path, split_seed: int | None = None) -> ValuedGraph:
    """Read a .npz file; large edges and features are mapped, unpacked into `scratch` where they are compressed.

    With `split_seed` the split is drawn at random, whatever the file says.
    """
    optional = (*_OPTIONAL, *TYPE_KEYS)
    arrays = read_npz(path, required=("edge_index", "y"), optional=optional, mapped=MAPPED, scratch=scratch)
    features, values = npz_features(arrays, path), values_of(arrays["y"], place=f"{path}, key y")
    if len(values) != features.num_nodes:  # before a mask is compared with either
        raise UserError(
            f"{path}: key y has {len(values)} rows, and the features have {features.num_nodes}",
            fix="give one of each per node; NaN: not known",
        )
    types, read = types_in(arrays, len(values), place=str(path))
    tell_unused(path.name, set(npz_keys(path)) - {"edge_index", "y", *_OPTIONAL, *read})
    of_edges, names = edge_columns({key: arrays[key] for key in _EDGES if key in arrays}, place=f"{path}, key")
    split, note = _random(values, split_seed) or split_of_archive(arrays, len(values), path)
    return ValuedGraph(
        edge_index=arrays["edge_index"],
        features=features,
        edge_features=of_edges,
        edge_feature_names=names,
        types=types,
        values=values,
        split=split,
        target_names=tuple(map(str, arrays["target_names"])) if "target_names" in arrays else (),
        name=name,
        source=f"npz file {path.name}",
        synthetic=False,
        split_note=note,
        origin={
            "edge_index": f"{path}, key edge_index",
            "features": f"{path}, key {'x' if 'x' in arrays else 'x_indptr, x_indices, x_data'}",
            "values": f"{path}, key y",
            "split": f"{path}, key {'split' if 'split' in arrays else '*_mask'}",
        },
    )


def from_data(
    data: Any,  # noqa: ANN401  # a torch_geometric.data.Data, or anything with the same attributes
    *,
    name: str,
    target_names: Sequence[str] = (),
    synthetic: bool = False,
    split_seed: int | None = None,
) -> ValuedGraph:
    """A graph from `data.x`, `data.edge_index` (or `adj_t`), `data.y` and `train_mask, val_mask, test_mask`.

    Args:
        data: a PyG `Data` object. `y` is [num_nodes] or [num_nodes, num_targets]; NaN: not known.
        name: of the store.
        target_names: one per column of `y`, or none.
        synthetic: whether the data were made up.
        split_seed: draw the split at random, whatever the masks say; None: take the masks.
    """
    values = values_of(as_numpy(required(data, "y")), place="data.y")
    given = {key: edges for key in _EDGES if (edges := getattr(data, key, None)) is not None}
    of_edges, names = edge_columns({key: as_numpy(edges) for key, edges in given.items()}, place="data:")
    split, note = _random(values, split_seed) or _split_of(data, len(values))
    return ValuedGraph(
        edge_index=edge_index_of(data),
        features=features_of(required(data, "x")),
        edge_features=of_edges,
        edge_feature_names=names,
        values=values,
        split=split,
        target_names=tuple(target_names),
        name=name,
        source="a PyG Data object",
        synthetic=synthetic,
        split_note=note,
        origin={"edge_index": "data.edge_index", "features": "data.x", "values": "data.y", "split": "data.*_mask"},
    )


def _random(values: NDArray[np.float32], seed: int | None) -> tuple[NDArray[np.int8], str] | None:
    is_known = np.asarray(~np.isnan(values).all(axis=1))
    return None if seed is None else random_codes(is_known, seed)


def _split_of(data: Any, num_nodes: int) -> tuple[NDArray[np.int8], str]:  # noqa: ANN401
    given: dict[SplitName, NDArray[Any]] = {
        name: as_numpy(mask) for key, name in MASK_KEYS.items() if (mask := getattr(data, key, None)) is not None
    }
    masks, note = first_columns(given)
    if "train" not in masks:
        raise UserError("the Data object has no train_mask", fix="set it (and val_mask, test_mask), or give split_seed")
    return split_from_masks(masks, num_nodes, place="data.*_mask"), f"as given by the masks{note}"
