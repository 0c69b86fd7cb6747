"""Whatever the public names of the package are given: a result, or a `UserError` that says what to do; nothing else."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from labelled_stores import made_store, split_made

import graphmill
from graphmill.assignment import solve, solve_best, solve_changed, solve_many, solve_sequence
from graphmill.base.errors import UserError

ANYTHING = {
    repr(value)[:30]: value
    for value in (
        0, -1, 1, 3, 2**31, 2**70, 1.5, float("nan"), float("inf"), "3", "a\0b", b"x", None, True, [], {}, [1], ["x"],
        np.float64(2), np.zeros(3), torch.zeros(2), Path("/nonexistent"), object,
    )
}  # fmt: skip
EYE = np.eye(3)
DTYPES = ["bool", "uint8", "int64", "uint64", "float16", "float32", "longdouble", "complex128", "object", "U3", "S2",
          "datetime64[s]"]  # fmt: skip
SHAPES = [(3, 3), (2, 4), (4, 2), (0, 3), (3, 0), (3,), (1, 3, 3)]
MATRICES = {
    **{f"{dtype} {list(shape)}": np.zeros(shape).astype(dtype) for dtype in DTYPES for shape in SHAPES},
    "nan": np.full((3, 3), np.nan),
    "inf": np.full((3, 3), np.inf),
    "-inf": np.full((3, 3), -np.inf),
    "largest": np.full((4, 4), 1.5e308),
    "least": np.full((4, 4), -1.5e308),
    "largest of both signs": np.array([[1.5e308, -1.5e308], [1, 2]]),
    "largest float32": np.full((4, 4), 3e38, np.float32),
    "smallest": np.full((3, 3), 5e-324),
    "2^62": np.full((3, 3), 2**62),
    "2^63": np.full((3, 3), 2**63, np.uint64),
    "-2^63": np.full((3, 3), -(2**63)),
    "by column": np.asfortranarray(np.arange(25.0).reshape(5, 5)),
    "with steps": np.arange(25.0).reshape(5, 5)[::-1, ::-2],
    "torch": torch.ones(3, 3),
    "learnt": torch.ones(3, 3, requires_grad=True),
    "bfloat16": torch.ones(3, 3).bfloat16(),
    "torch, sparse": torch.eye(3).to_sparse(),
    "csr": scipy.sparse.csr_matrix(EYE),
    "coo": scipy.sparse.coo_matrix(EYE),
    "complex csr": scipy.sparse.csr_matrix(EYE * 1j),
    "one row of coo": scipy.sparse.coo_array(np.ones(3)),
    "ragged": [[1, 2], [3]],
    "text": [[1, "a"], [2, 3]],
    "masked": np.ma.masked_array(EYE, EYE > 0),
}


class Predicts:
    def __init__(self, answer):
        self.answer = answer

    def seed(self, costs):
        return self.answer


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    root = tmp_path_factory.mktemp("parts")
    split_made(made_store(root / "whole"), root / "three", num_parts=3)
    return root / "three"


def answered(call):
    """Whether it gave a result; False: a `UserError` with a fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except UserError as refused:
            if not refused.fix:
                raise
            return False
        return True


@pytest.mark.parametrize("value", ANYTHING.values(), ids=ANYTHING)
def test_anything_in_the_place_of_any_argument(parts, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not answered(lambda: graphmill.open_partitioned(value))
    for name in ("topology", "undirected", "cache_ratio", "ranks_per_host"):
        answered(lambda name=name: graphmill.open_partitioned(parts, **{name: value}))
    assert not answered(lambda: graphmill.open_partitioned(parts).nodes_in(value))
    assert not answered(lambda: graphmill.load(value))
    for name in ("weights", "dataset_root", "logs_root", "trust"):
        assert not answered(lambda name=name: graphmill.load("absent", **{name: value}))
    if not torch.cuda.is_available():
        assert not answered(lambda: graphmill.memory_snapshot(value).__enter__())
    assert not answered(lambda: graphmill.SeededSolver(value))
    assert not answered(lambda: graphmill.SeededSolver(Predicts(None), value))
    assert not answered(lambda: graphmill.SeededSolver(Predicts(None)).way_of(value))
    answered(lambda: graphmill.SeededSolver(Predicts(value), "model").solve(EYE))


@pytest.mark.parametrize("value", ANYTHING.values(), ids=ANYTHING)
def test_anything_in_the_place_of_costs_and_potentials(value):
    assert not answered(lambda: solve(value))
    for arguments in ({"duals": value}, {"duals": (value, None)}, {"duals": (None, value)}, {"maximize": value}):
        answered(lambda arguments=arguments: solve(EYE, **arguments))
    answered(lambda: solve(EYE, check=value))
    answered(lambda: solve_many(value))
    assert not answered(lambda: solve_many([value]))
    answered(lambda: solve_many([EYE], threads=value))
    assert not answered(lambda: solve_best(value, 2))
    answered(lambda: solve_best(EYE, value))
    assert not answered(lambda: solve_changed(value, solve(EYE)))
    assert not answered(lambda: solve_changed(EYE, value))
    for side in ("rows", "columns"):
        answered(lambda side=side: solve_changed(EYE, solve(EYE), **{side: value}))
    answered(lambda: solve_sequence(value))
    assert not answered(lambda: solve_sequence([EYE, value]))
    for ids in (value, [value]):
        answered(lambda ids=ids: solve_sequence([EYE], ids))


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_any_matrix_of_costs_by_any_way_of_asking(matrix):
    for maximize in (False, True):
        alone = answered(lambda maximize=maximize: solve(matrix, maximize=maximize))
        if not hasattr(matrix, "tocsr"):
            assert answered(lambda maximize=maximize: solve_many([matrix], maximize=maximize)) is alone
    assert answered(lambda: solve_sequence([matrix, matrix])) is answered(lambda: solve(matrix))
    assert answered(lambda: graphmill.SeededSolver(Predicts((None, None))).solve(matrix)) is answered(
        lambda: solve(matrix)
    )
