"""Matrices in numpy's files and in tables: costs, names of lines, and what is refused."""

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.graph.matrix_files import read_matrices


def test_numpys_files(tmp_path):
    three = np.random.default_rng(0).random((3, 2, 4))
    np.save(tmp_path / "one.npy", three[0])
    np.save(tmp_path / "all.npy", three)
    np.savez(tmp_path / "some.npz", whole=np.array([[1, 2], [3, 4]]), more=three[:2])
    (one,) = read_matrices(tmp_path / "one.npy")
    assert (one.name, one.costs.tolist(), one.row_names) == ("one", three[0].tolist(), ())
    assert [each.name for each in read_matrices(tmp_path / "all.npy")] == ["all[0]", "all[1]", "all[2]"]
    assert [each.name for each in read_matrices(tmp_path / "some.npz")] == ["whole", "more[0]", "more[1]"]


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("4,1,3\n2,inf,5\n", (), ()),
        ("a,b,c\n4,1,3\n2,inf,5\n", (), ("a", "b", "c")),
        ("Anna,4,1,3\nBob,2,inf,5\n", ("Anna", "Bob"), ()),
        (",a,b,c\nAnna,4,1,3\nBob,2,inf,5\n", ("Anna", "Bob"), ("a", "b", "c")),
        ('"worker","a","b","c"\n"Anna", 4, 1,3\n"Bob",2,Inf,5\n', ("Anna", "Bob"), ("a", "b", "c")),
    ],
)
def test_tables(tmp_path, text, rows, columns):
    for name, written in (("costs.csv", text), ("costs.tsv", text.replace(",", "\t"))):
        (tmp_path / name).write_text(written)
        (found,) = read_matrices(tmp_path / name)
        assert found.costs.tolist() == [[4, 1, 3], [2, np.inf, 5]]
        assert (tuple(found.row_names), tuple(found.column_names)) == (rows, columns)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4,1,3\n2,,5\n", "line 2, column 2: it is empty"),
        ("a,b,c\n4,1,3\n2,x,5\n", "line 3, column b: 'x' is not a number"),
        ("n,a,b\nAnna,4,1\nBob,2,x\n", "line 3, column b: 'x' is not a number"),
        ("4;1;3\n2;1;5\n", "separator is ';'"),
        ("a,b,c\n", "no row of costs"),
        ("", "cannot be read|no row"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, says):
    (tmp_path / "costs.csv").write_text(text)
    with pytest.raises(UserError, match=says) as refused:
        read_matrices(tmp_path / "costs.csv")
    assert refused.value.fix


def test_other_arrays_are_refused(tmp_path):
    for name, array in (("line", np.arange(3.0)), ("text", np.array([["a"]])), ("complex", np.ones((2, 2), complex))):
        np.save(tmp_path / f"{name}.npy", array)
        with pytest.raises(UserError, match=rf"{name}\.npy: {name} is {array.dtype}".replace("<", ".")):
            read_matrices(tmp_path / f"{name}.npy")
    (tmp_path / "costs.xlsx").write_bytes(b"")
    with pytest.raises(UserError, match=r"costs\.xlsx is not \.npy"):
        read_matrices(tmp_path / "costs.xlsx")
