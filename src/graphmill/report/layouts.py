"""The layouts of a merged table: wide, long, or a view of other programs' names.

The long one has a row per run, epoch, set and measure. It holds every evaluation set of every run, whatever the tasks;
same inputs, same bytes, as `merge`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.columns import layouts as views
from graphmill.record.evaluations import read_evaluations
from graphmill.record.metrics import format_cell
from graphmill.record.run_folder import RunFolder
from graphmill.report.merge import KEY_COLUMNS, Merged, find_metrics, merge
from graphmill.report.order import Value, sort_key
from graphmill.report.sheet import Row, Sheet
from graphmill.report.table import MERGED_METRICS
from graphmill.spec.columns import OF_THE_RUN, POSITION, RUN_ID, Column
from graphmill.spec.plan import Plan

LONG_COLUMNS: Final[Mapping[str, Column]] = {
    **RUN_ID,
    "task": Column("", "text", "the task's kind"),
    **{name: OF_THE_RUN[name] for name in ("dataset", "synthetic", "sync_scheme", "payload")},
    **{name: POSITION[name] for name in ("sync_every", "world_size")},
    "seed": OF_THE_RUN["seed"],
    "epoch": Column("", "integer", "the weights are those at its end, counted from 1; 0: the initial weights"),
    "set": Column("", "text", "val, test, or the name of another evaluation set"),
    "measure": Column("", "text", "loss, num_seeds, or a measure of the task"),
    "value": Column("", "number", "of the measure"),
}
MERGED_EVALUATIONS: Final = MERGED_METRICS.with_name("evaluations.csv")
LAYOUTS: Final = ("wide", "long", *views())
"""A row per epoch; a row per epoch, evaluation set and measure; headers of other programs (docs/coming-from.md)."""


def merge_long(input_root: Path, *, pattern: str, output: Path) -> Merged:
    """Merge the evaluations of the runs whose metrics.csv match the glob `pattern` below `input_root`."""
    folders = [RunFolder.open(path.parent) for path in find_metrics(input_root, pattern, output)]
    alike: dict[tuple[tuple[int, float, str], ...], list[_LongRows]] = {}
    for folder in folders:
        of_the_run = _of_the_run(folder)
        order = tuple(sort_key(value) for value in of_the_run)
        alike.setdefault(order, []).append(_LongRows(folder, of_the_run))
    merging = _MergingLong([alike[order] for order in sorted(alike)])
    return Merged(
        csv=output,
        parquet=Sheet(tuple(LONG_COLUMNS), LONG_COLUMNS, merging.rows).write(output),
        task=None,
        num_files=len(folders),
        num_rows=merging.num_rows,
        num_superseded=merging.num_superseded,
        original_files=(),
    )


@dataclass(frozen=True, slots=True)
class _LongRows:
    """The evaluations of one run: what stands in all of its rows, and what in each."""

    folder: RunFolder
    of_the_run: tuple[Value, ...]

    def read(self) -> Iterator[tuple[Value, ...]]:
        return ((*self.of_the_run, row.epoch, row.set, row.measure, row.value) for row in read_evaluations(self.folder))


@dataclass(slots=True)
class _MergingLong:
    """The rows of all runs, in order; those of one run, and of its copies, are in memory at a time."""

    runs: Sequence[Sequence[_LongRows]]
    num_rows: int = 0
    num_superseded: int = 0

    def rows(self) -> Iterator[Row]:
        """Rows that differ; they are counted meanwhile."""
        self.num_rows = self.num_superseded = 0
        for copies in self.runs:
            merged, num_read = _without_copies(copies)
            self.num_rows += len(merged)
            self.num_superseded += num_read - len(merged)
            yield from ((tuple(map(format_cell, row)), row) for row in merged)


def _without_copies(copies: Sequence[_LongRows]) -> tuple[list[tuple[Value, ...]], int]:
    """The rows of copies of one run, each once and in order, and how many were read."""
    rows: dict[tuple[Value, ...], tuple[Value, Path]] = {}
    num_read = 0
    for copy in copies:
        for *key, value in copy.read():
            num_read += 1
            known, where = rows.setdefault(tuple(key), (value, copy.folder.path))
            if repr(known) != repr(value):
                said = ", ".join(f"{name}={cell}" for name, cell in zip(LONG_COLUMNS, key, strict=False))
                raise UserError(
                    f"{where} and {copy.folder.path} have different values, {known} and {value}, for {said}",
                    fix="remove one of the two, or merge them apart (--glob, --output)",
                )
    merged = [(*key, value) for key, (value, _) in rows.items()]
    of_the_run = len(copies[0].of_the_run)  # alike in all of them
    return sorted(merged, key=lambda row: [sort_key(value) for value in row[of_the_run:]]), num_read


def _ranks(folder: RunFolder, plan: Plan) -> int | None:
    """Number of ranks of a run; None where its attempts had different numbers."""
    worlds = {plan.ranks if each.world is None else each.world.ranks for each in folder.attempts()}
    return plan.ranks if worlds <= {plan.ranks} else None


def _of_the_run(folder: RunFolder) -> tuple[Value, ...]:
    plan = folder.read_plan()
    return (
        plan.run_id,
        plan.task.kind,
        plan.dataset.name,
        plan.dataset.synthetic,
        plan.sync.scheme,
        plan.sync.payload,
        plan.sync.every,
        _ranks(folder, plan),
        plan.seed,
    )


def merge_as(
    layout: str, input_root: Path, *, pattern: str, output: Path | None = None, key_columns: Sequence[str] | None = None
) -> list[Merged]:
    """Merge the runs below `input_root` in a layout; every layout has a default file name of its own."""
    if layout not in LAYOUTS:
        raise UserError(
            f"there is no layout {layout!r}; {did_you_mean(layout, LAYOUTS)}",
            fix=f"graphmill merge --layout {LAYOUTS[0]}, or another of {', '.join(LAYOUTS)}",
        )
    if layout == "long":
        if key_columns is not None:
            raise UserError("--key-columns does not apply to --layout long", fix="leave --key-columns out")
        return [merge_long(input_root, pattern=pattern, output=output or MERGED_EVALUATIONS)]
    _, view = views().get(layout, (None, None))
    name = f"metrics_{layout}.csv" if view else MERGED_METRICS.name
    return merge(
        input_root,
        pattern=pattern,
        output=output or MERGED_METRICS.with_name(name),
        key_columns=key_columns or KEY_COLUMNS,
        layout=view,
    )
