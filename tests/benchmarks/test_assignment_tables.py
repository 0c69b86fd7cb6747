"""Tables of the assignment solver: the best peer of each cell with its version, without those that were wrong."""

import assignment_tables


def cell(inexact: tuple[str, ...] = (), **ratios: float) -> dict:
    medians = {"graphmill": 1.0, "graphmill, checked": 1.1, **ratios, "floor": 0.5}
    spreads = {name: {"median": value, "q25": value, "q75": value} for name, value in medians.items()}
    seconds = {name: {"median": value / 1000} for name, value in medians.items()}
    return {"ratio_to_graphmill": spreads, "seconds": seconds, "inexact": list(inexact)}


def result() -> dict:
    versions = {"scipy": "1.2.3", "lapx": "4.5.6"}
    small = {"uniform": cell(SciPy=8.0, lapjv=2.0), "tie": cell(("lapjv",), SciPy=32.0, lapjv=0.5)}
    large = {"uniform": cell(SciPy=4.0, lapjv=9.0), "tie": cell()}
    entries = {"1024": {"families": large, "versions": versions}, "512": {"families": small, "versions": versions}}
    return {**entries, "origins": {}}


def test_each_row_names_its_best_peer_and_what_was_wrong_is_none():
    lines = assignment_tables.assignment(result()).splitlines()
    assert "| 512 | uniform | 1.00 | 1.1 | lapjv of lapx 4.5.6 | 8 | 2 | 0.5 |" in lines
    assert "| 512 | tie | 1.00 | 1.1 | SciPy 1.2.3 | 32 | (0.5) | 0.5 |" in lines
    assert "| 1,024 | tie | 1.00 | 1.1 | none ended |  |  | 0.5 |" in lines
    assert "| 512 | geometric mean of best | | | 8 | | | |" in lines


def test_the_headline_tells_the_cell_that_gains_least():
    what, figure = assignment_tables.assignment_headline(result())
    assert what == "the assignment problem, 512 to 1,024 rows, 2 families"
    assert figure.startswith("6.35 times as fast as the best of 2 solvers in each cell (geometric mean), 2.00 where")
    assert "(uniform, 512 rows, lapjv of lapx 4.5.6); in 1 of the cells" in figure
