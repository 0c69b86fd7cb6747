"""Merge the evaluations of many runs into one table in long form: a row per run, epoch, set and measure.

It holds every evaluation set of every run, whatever the tasks; same inputs, same bytes, as `merge`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.record.evaluations import read_evaluations
from graphmill.record.metrics import format_cell
from graphmill.record.run_folder import RunFolder
from graphmill.report.merge import Merged, Sheet, find_metrics
from graphmill.report.order import Value, sort_key
from graphmill.spec.columns import OF_THE_RUN, POSITION, RUN_ID, Column
from graphmill.spec.plan import Plan

COLUMNS: Final[Mapping[str, Column]] = {
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


def merge_long(input_root: Path, *, pattern: str, output: Path) -> Merged:
    """Merge the evaluations of the runs whose metrics.csv match the glob `pattern` below `input_root`."""
    files = find_metrics(input_root, pattern, output)
    rows: dict[tuple[Value, ...], tuple[Value, Path]] = {}
    num_rows = 0
    for path in files:
        for *key, value in _rows(path.parent):
            num_rows += 1
            known, where = rows.setdefault(tuple(key), (value, path.parent))
            if repr(known) != repr(value):
                said = ", ".join(f"{name}={cell}" for name, cell in zip(COLUMNS, key, strict=False))
                raise UserError(
                    f"{where} and {path.parent} have different values, {known} and {value}, for {said}",
                    fix="remove one of the two, or merge them apart (--glob, --output)",
                )
    merged = [(*key, value) for key, (value, _) in rows.items()]
    merged.sort(key=lambda row: [sort_key(value) for value in row])
    written = Sheet(tuple(COLUMNS), tuple(tuple(map(format_cell, row)) for row in merged), tuple(merged), COLUMNS)
    return Merged(
        csv=output,
        parquet=written.write(output),
        task=None,
        num_files=len(files),
        num_rows=len(merged),
        num_superseded=num_rows - len(merged),
        original_files=(),
    )


def _ranks(folder: RunFolder, plan: Plan) -> int | None:
    """Number of ranks of a run; None where its attempts had different numbers."""
    worlds = {plan.ranks if each.world is None else each.world.ranks for each in folder.attempts()}
    return plan.ranks if worlds <= {plan.ranks} else None


def _rows(path: Path) -> list[tuple[Value, ...]]:
    folder = RunFolder.open(path)
    plan = folder.read_plan()
    of_the_run = (
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
    return [(*of_the_run, row.epoch, row.set, row.measure, row.value) for row in read_evaluations(folder)]
