"""Whatever the functions are given: a result, or a `UserError` that says what to do; nothing else."""

from pathlib import Path

import numpy as np
import pytest

import graphmill

ANYTHING = {
    repr(value)[:30]: value
    for value in (
        -1, 3, 2**70, 1.5, float("nan"), "3", "a\0b", b"x", None, True, [], {}, [1], [[]], {1: 2}, {"a": object},
        np.float64(2), np.zeros(3), Path("/nonexistent"), object,
    )
}  # fmt: skip


@pytest.fixture(autouse=True)
def _desk(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        *(lambda value, name=name: graphmill.plan("toy.yaml", **{name: value}) for name in (
            "overrides", "ranks", "run_id", "dataset_root", "epochs", "num_neighbors", "model", "another")),
        *(lambda value, name=name: graphmill.train("absent", **{"resume": True, name: value}) for name in (
            "overrides", "ranks", "run_id", "dataset_root", "logs_root", "trust")),
        *(lambda value, name=name: graphmill.evaluate("absent", **{name: value}) for name in (
            "split", "weights", "dataset", "dataset_root", "trust", "logs_root")),
        *(lambda value, name=name: graphmill.compare(**{name: value}) for name in ("what", "sort", "by", "logs_root")),
        graphmill.plan, graphmill.evaluate, graphmill.predict, graphmill.Run,
    ],
)  # fmt: skip
def test_whatever_is_given_a_user_error_says_what_to_do(call):
    for told, value in ANYTHING.items():
        if value is None and call is graphmill.plan:
            continue  # the recipe that is planned where none is named
        refused = None
        try:
            call(value)
        except graphmill.UserError as error:
            refused = error
        assert refused is None or (refused.message and refused.fix), told
