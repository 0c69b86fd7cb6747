"""Values of nodes: from each source to the store, what is said of them, and what is refused."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmill.base.errors import UserError
from graphmill.tasks.node_regression.data.prepare import prepare_requested
from graphmill.tasks.node_regression.data.read import from_data
from graphmill.tasks.node_regression.data.store import ValuesStore, write_values
from graphmill.tasks.node_regression.page.data import ValuesPrepareOptions
from graphmill.tasks.recognise import recognised
from graphmill.tasks.stores import Preparation

N = 8
EDGES = np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
X = np.arange(2.0 * N, dtype=np.float32).reshape(N, 2)
Y = np.array([1.5, 2, 3, 4, 5, 6.25, np.nan, np.nan])
SPLIT = np.array([0, 0, 0, 1, 1, 2, -1, -1])


def prepared(folder, y=Y, *, force=False, options=None, **arrays) -> ValuesStore:
    path = folder / "g.npz"
    np.savez(path, **{"edge_index": EDGES, "x": X, "y": y, "split": SPLIT, **arrays})
    asked = ValuesPrepareOptions(**(options or {}))
    store = prepare_requested(Preparation("v", folder, asked, from_path=path, force=force))
    store.verify()
    return ValuesStore.open(folder / "v")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_one_value_of_each_node(tmp_path, dtype, shape):
    store = prepared(tmp_path, Y.astype(dtype).reshape(shape))
    assert (store.values.dtype, store.values.shape) == (np.float32, (N, 1))
    np.testing.assert_array_equal(store.values[:, 0], Y.astype(np.float32))
    assert store.metadata.splits == {"train": 3, "val": 2, "test": 1, "none": 2}


def test_several_values_some_of_them_not_known(tmp_path):
    y = np.stack([Y, Y * 100], axis=1)
    y[1, 1] = y[3, 0] = np.nan
    store = prepared(tmp_path, y, target_names=np.array(["height", "weight"]))
    np.testing.assert_array_equal(store.values, y.astype(np.float32))
    shown = dict(store.described())
    assert shown["value height"] == "of 5 nodes; in train 2.167 on average, deviation 0.6236"
    assert shown["value weight"] == "of 5 nodes; in train 225 on average, deviation 75"


def test_a_data_object(tmp_path):
    masks = {f"{name}_mask": torch.from_numpy(code == SPLIT) for code, name in enumerate(("train", "val", "test"))}
    data = Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(EDGES), y=torch.from_numpy(Y), **masks)
    store = write_values(from_data(data, name="v", target_names=["age"]), tmp_path / "v")
    np.testing.assert_array_equal(store.values[:, 0], Y.astype(np.float32))
    assert store.nodes_in("val").tolist() == [3, 4]
    del data.train_mask
    with pytest.raises(UserError, match="no train_mask"):
        from_data(data, name="v")
    assert (from_data(data, name="v", split_seed=1).split[6:] == -1).all()


def test_whole_numbers_are_classes_unless_they_are_asked_for_as_values(tmp_path, graphmill):
    """y of floats that are whole is what it ever was; the task is asked for by name."""
    path = tmp_path / "w.npz"
    np.savez(path, edge_index=EDGES, x=X, y=np.arange(8.0) % 3, split=SPLIT)
    assert recognised(path)[0].name == "node_classification"
    result = graphmill("prepare", "w", "--from", path, "--task", "node_regression", "--json")
    assert result.code == 0, result.err
    assert ValuesStore.open(tmp_path / "data/w").values[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    np.savez(path, edge_index=EDGES, x=X, y=Y, split=SPLIT)
    kind, reason = recognised(path)
    assert kind.name == "node_regression"
    assert "not whole" in reason


def test_the_first_line_of_other_tasks_is_named(tmp_path, graphmill):
    path = tmp_path / "w.npz"
    np.savez(path, edge_index=EDGES, x=X, y=Y, split=SPLIT)
    result = graphmill("prepare", "w", "--from", path, "--task", "node_classification")
    assert result.code == 2
    assert "row 0 has label 1.5" in result.err
    assert "--task node_regression" in result.err


def test_a_random_split_is_of_nodes_with_values(tmp_path):
    store = prepared(tmp_path, options={"random_split": True})
    assert store.metadata.splits["none"] == 2
    assert (store.array("split")[6:] == -1).all()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": np.array(["a"] * N)}, r"values are <U1 \[8\]"),
        ({"y": np.zeros((N, 2, 1))}, r"values are float64 \[8, 2, 1\]"),
        ({"y": np.zeros((N, 0))}, r"values are float64 \[8, 0\]"),
        ({"y": Y[:5]}, "key y has 5 rows, and the features have 8"),
        ({"y": np.where(np.arange(N) == 3, np.inf, Y)}, "node 3, column 0 has inf"),
        ({"y": np.where(np.arange(N) == 3, 1e300, Y)}, "node 3, column 0 has inf"),
        ({"y": np.where(np.arange(N) == 1, np.nan, Y)}, r"node 1 is in the train split and has no value \(1 such"),
        ({"y": np.stack([Y, np.where(SPLIT == 0, np.nan, Y)], axis=1)}, "no training node has a value in column 1"),
        ({"split": np.where(SPLIT == 0, -1, SPLIT)}, "no training node has a value in column 0"),
        ({"target_names": np.array(["a", "b"])}, "2 names for 1 columns"),
        ({"split": np.full(N, 7)}, "node 0 has 7"),
    ],
)
def test_refusals_name_the_place_and_the_fix(tmp_path, arrays, said):
    with pytest.raises(UserError, match=said) as error:
        prepared(tmp_path, **arrays)
    assert error.value.fix
    assert not (tmp_path / "v").exists()


def test_a_store_is_kept_and_damage_is_found(tmp_path):
    store = prepared(tmp_path)
    with pytest.raises(UserError, match="holds a prepared dataset"):
        prepared(tmp_path, Y + 1)
    assert prepared(tmp_path, Y + 1, force=True).metadata.checksum != store.metadata.checksum
    np.save(tmp_path / "v/y.npy", np.zeros((N, 1), np.float32))
    with pytest.raises(UserError, match=r"y\.npy"):
        ValuesStore.open(tmp_path / "v").verify()


def test_the_generator_repeats_itself(tmp_path, graphmill):
    made = [
        json.loads(graphmill("prepare", "synthetic/values", "--as", name, "-o", f"seed={seed}", "--json").out)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    stores = [ValuesStore.open(tmp_path / "data" / name) for name in "abc"]
    assert made[0]["synthetic"] is True
    np.testing.assert_array_equal(stores[0].values, stores[1].values)
    assert not np.array_equal(stores[0].values, stores[2].values)


def test_it_is_not_split_into_parts(tmp_path, graphmill):
    graphmill("prepare", "synthetic/values", "-o", "num_nodes=50")
    result = graphmill("partition", "synthetic/values", "--num-parts", "2")
    assert result.code == 2
    assert "holds data of the task node_regression, which are not one graph" in result.err
