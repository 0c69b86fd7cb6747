"""Instances that others published: OR-Library's optima, Matrix Market's patterns."""

import gzip

import numpy as np
import pytest
from assignment_problems import prepared
from scipy import io, sparse

from graphmill.base.errors import UserError
from graphmill.tasks.assignment.data.sources import holds_problems

OPTIMA = [305, 475, 626, 804, 991, 1176, 1362, 1552]


def test_optima_of_or_library(tmp_path, shared_data):
    store = prepared(tmp_path, shared_data("lap/orlib_assign.npz"))
    assert [store.optimum(each) for each in range(len(store))] == OPTIMA
    assert [store.shape(each) for each in range(len(store))] == [(n, n) for n in range(100, 900, 100)]
    assert {store.family(each) for each in range(len(store))} == {"orlib"}
    assert store.tag(0) == "assign100"
    store.verify()
    text = prepared(tmp_path, shared_data("lap/assign100.txt"), name="text")
    assert np.array_equal(text.cost(0), store.cost(0))
    both = prepared(tmp_path, store.path, text.path, name="both")
    assert (len(both), both.metadata.num_duplicates) == (8, 1)


def test_text_of_or_library(tmp_path):
    path = tmp_path / "assign3.txt"
    path.write_text(" 3\n 4 1 3 2\n 0 5 3 2 2\n")
    assert holds_problems(path)
    store = prepared(tmp_path, path)
    assert store.cost(0).tolist() == [[4, 1, 3], [2, 0, 5], [3, 2, 2]]
    assert store.optimum(0) == 5
    (tmp_path / "assign4.txt").write_text(" 3\n 4 1 3 2\n 0 5 3 2\n")
    with pytest.raises(UserError, match=r"assign4\.txt: it has 8 costs, and 3 x 3 are 9"):
        prepared(tmp_path, tmp_path / "assign4.txt", name="short")
    (tmp_path / "notes.txt").write_text("to be read first\n")
    assert not holds_problems(tmp_path / "notes.txt")


def test_an_optimum_that_is_wrong_is_told(tmp_path):
    np.savez(tmp_path / "a.npz", names=np.array(["one"]), optimum=np.array([7]), one=np.array([[1, 2], [3, 5]]))
    with pytest.raises(UserError, match=r"a\.npz: its optimum is 5\.0, and the file says 7"):
        prepared(tmp_path, tmp_path / "a.npz")


def test_plain_matrices_are_instances(tmp_path):
    more = np.random.default_rng(0).random((2, 2, 4))
    np.savez(tmp_path / "some.npz", whole=np.array([[1, 2], [3, 4]]), more=more)
    store = prepared(tmp_path, tmp_path / "some.npz")
    assert [store.shape(each) for each in range(len(store))] == [(2, 2), (2, 4), (2, 4)]
    assert (store.family(0), store.tag(1), store.optimum(0)) == ("given", "more[0]", 5)
    assert np.array_equal(store.cost(2), more[1])
    store.verify()


def test_a_sparse_matrix_has_infeasible_pairs(tmp_path):
    dense = np.array([[0, -2.0, 0, 1], [4, 0, 0, 0], [0, 0, 0.5, 8]])
    io.mmwrite(tmp_path / "small.mtx", sparse.coo_array(dense))
    store = prepared(tmp_path, tmp_path / "small.mtx")
    inf = np.inf
    assert store.cost(0).tolist() == [[inf, 2, inf, 1], [4, inf, inf, inf], [inf, inf, 0.5, 8]]
    assert store.optimum(0) == 5.5
    assert (store.family(0), store.tag(0)) == ("suitesparse", "small")
    store.verify()
    with gzip.open(tmp_path / "packed.mtx.gz", "wb") as file:
        file.write((tmp_path / "small.mtx").read_bytes())
    ratios = prepared(tmp_path, tmp_path / "packed.mtx.gz", name="ratios", matrix_costs="log_ratio")
    np.testing.assert_allclose(ratios.cost(0)[0, [1, 3]], [0, np.log(8)])
    assert ratios.tag(0) == "packed"


def test_a_matrix_without_an_assignment_is_told(tmp_path):
    folder = tmp_path / "matrices"
    folder.mkdir()
    io.mmwrite(folder / "singular.mtx", sparse.coo_array(np.array([[1.0, 0], [1, 0]])))
    io.mmwrite(folder / "whole.mtx", sparse.coo_array(np.array([[1.0, 0], [1, 2]])))
    (folder / "cut.mtx").write_bytes((folder / "whole.mtx").read_bytes()[:-9])
    with pytest.raises(UserError, match=r"cut\.mtx: it cannot be read as Matrix Market"):
        prepared(tmp_path, folder)
    store = prepared(tmp_path, folder, damaged="skip")
    assert len(store) == 1
    assert store.tag(0) == "whole"
    assert any("singular.mtx" in each and "no assignment" in each for each in store.metadata.damaged)
