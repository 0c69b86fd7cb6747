"""`graphmill solve`: what it prints and writes is the assignment of least cost, and what is no problem is refused."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

COSTS = "worker,paint,weld,drive\nAnna,4,1,3\nBob,2,0,5\nCy,3,2,2\n"


@pytest.fixture
def table(tmp_path):
    (tmp_path / "costs.csv").write_text(COSTS)
    return "costs.csv"


def test_a_table_with_names(graphmill, table, golden):
    done = graphmill("solve", table, "--best", 3, "--output", "pairs.csv")
    assert done.code == 0
    golden("solve.txt", done.out)
    with Path("pairs.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [(each["row"], each["column"], float(each["cost"])) for each in written[:3]] == [
        ("Anna", "weld", 1.0),
        ("Bob", "paint", 2.0),
        ("Cy", "drive", 2.0),
    ]
    assert [each["rank"] for each in written] == ["1"] * 3 + ["2"] * 3 + ["3"] * 3


@pytest.mark.parametrize("maximize", [False, True])
def test_several_matrices(graphmill, tmp_path, maximize):
    three = np.random.default_rng(0).random((3, 30, 40))
    np.save(tmp_path / "costs.npy", three)
    words = ["solve", "costs.npy", *(["--maximize"] if maximize else [])]
    found = json.loads(graphmill(*words, "--json").out)
    for costs, each in zip(three, found, strict=True):
        rows, columns = linear_sum_assignment(costs, maximize=maximize)
        assert each["is_optimal"]
        pairs = each["assignments"][0]["pairs"]
        assert [(pair["row"], pair["column"]) for pair in pairs] == list(zip(rows, columns, strict=True))
    assert graphmill(*words).out.count("yes") == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("1,nan\n2,3\n", "row 0, column 1 is NaN"),
        ("inf,inf\n2,3\n", "no assignment gives every row"),
        ("1,x\n2,3\n", "line 1, column 2: 'x'"),
        ("1,2\n2,x\n", "line 2, column 2: 'x'"),
    ],
)
def test_what_is_no_problem(graphmill, tmp_path, content, says):
    (tmp_path / "costs.csv").write_text(content)
    done = graphmill("solve", "costs.csv")
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_a_file_that_is_not_there(graphmill):
    done = graphmill("solve", "absent.csv")
    assert done.code == 2
    assert "absent.csv does not exist" in done.err
