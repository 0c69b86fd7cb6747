"""Which way users' own measures get better, of a table whose runs' plans are not at hand: by its rows."""

from contextlib import suppress
from dataclasses import replace

from graphmill.record.metrics import CsvTable
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.kind import AnyKind

_Pair = tuple[float, float]


def with_directions(kind: AnyKind, table: CsvTable) -> AnyKind:
    """The kind with the directions of its measures that the task itself does not know.

    The best value so far is never the worse one; where both are equal throughout, every value is an improvement.
    """
    known = {measure.name for measure in find_kind(kind.name).measures}
    measures = tuple(
        measure if measure.name in known else replace(measure, higher_is_better=_rises(table, measure.name))
        for measure in kind.measures
    )
    return kind if measures == kind.measures else replace(kind, measures=measures)


def _rises(table: CsvTable, name: str) -> bool:
    for pairs in _by_run(table, name).values():
        differences = [best - value for value, best in pairs if best != value]
        if differences:
            return differences[0] > 0
        if pairs and pairs[-1][0] != pairs[0][0]:
            return pairs[-1][0] > pairs[0][0]
    return True  # it never changes


def _by_run(table: CsvTable, name: str) -> dict[str, list[_Pair]]:
    """Pairs of the measure and its best so far, in order, by run."""
    run, value, best = (table.header.index(column) for column in ("run_id", f"val_{name}", f"best_val_{name}"))
    found: dict[str, list[_Pair]] = {}
    for row in table.rows:
        with suppress(ValueError):  # empty, or damaged, which reading the table reports
            found.setdefault(row[run], []).append((float(row[value]), float(row[best])))
    return found
