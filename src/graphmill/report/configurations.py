"""What merged runs were planned to do differently: columns `plan.<key>`, and the label of a configuration made of them.

metrics.csv says of a run its dataset, scheme, payload, k, number of ranks and rng seed. Whatever else differs between
runs of one dataset is read from their plan.json, so that no table or figure averages over it. Runs without plan.json,
such as those of other programs, have empty cells.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from graphmill.record.metrics import CsvTable
from graphmill.record.run_folder import RunFolder
from graphmill.spec.columns import Column, ColumnType
from graphmill.spec.differences import configuration, keys_that_vary
from graphmill.spec.plan import Plan

if TYPE_CHECKING:  # who compares runs needs their names only
    import polars as pl

PREFIX: Final = "plan."
_SAY_LITTLE: Final = (".kind", ".name")
CONFIGURATION: Final = "configuration"
"""The column of a table in memory that names the configuration; empty where nothing varies."""

_IN_METRICS: Final = {"sync.scheme", "sync.payload", "sync.every", "ranks", "hosts"}


@dataclass(frozen=True, slots=True)
class Varied:
    """What some runs were planned to do differently than others."""

    columns: Mapping[str, Column]  # plan.<key> → what it holds
    cells: Sequence[tuple[str, ...]]  # of each run


def what_varies(plans: Iterable[Plan | None]) -> Varied:
    """A column for each key in which plans of one dataset differ. One plan is in memory at a time."""
    chosen: list[Mapping[str, Any]] = []
    by_dataset: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for plan in plans:
        chosen.append({} if plan is None else configuration(plan))
        if plan is not None:
            by_dataset.setdefault((plan.task.kind, plan.dataset.name), []).append(chosen[-1])
    keys = dict.fromkeys(key for members in by_dataset.values() for key in keys_that_vary(members))
    shown = [key for key in keys if key not in _IN_METRICS]
    columns = {f"{PREFIX}{key}": _column(key, [each[key] for each in chosen if key in each]) for key in shown}
    return Varied(columns, [tuple(_text(each.get(key)) for key in shown) for each in chosen])


def plan_of_table(table: CsvTable) -> Plan | None:
    """The plan next to a file; None: it lies in no run folder."""
    folder = RunFolder(table.path.parent)
    return folder.read_plan() if folder.plan_path.is_file() else None


def with_labels(frame: "pl.DataFrame") -> "pl.DataFrame":
    """The table of one dataset with the column `configuration`, made of the keys that vary in it."""
    import polars as pl

    keys = varied_columns(frame)
    names = dict(zip(keys, short_names([key.removeprefix(PREFIX) for key in keys]), strict=True))
    parts = [pl.concat_str(pl.lit(f"{name} "), pl.col(key).fill_null("-")) for key, name in names.items()]
    label = pl.concat_str(*parts, separator=", ") if parts else pl.lit("")
    return frame.with_columns(label.alias(CONFIGURATION))


def with_run_names(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Put the name of each run in place of its configuration, as for the stages of a pipeline."""
    import polars as pl

    return frame.with_columns(pl.col("run_id").str.split("/").list.last().alias(CONFIGURATION))


def varied_columns(frame: "pl.DataFrame") -> list[str]:
    """The columns `plan.<key>` with more than one value."""
    return [name for name in frame.columns if name.startswith(PREFIX) and frame[name].n_unique() > 1]


def short_names(keys: Sequence[str]) -> list[str]:
    """Each dotted key by its last part, where that names no other; a kind by what it is the kind of.

    >>> short_names(["model.hidden_channels", "optimizer.schedule.kind", "optimizer.lr", "lr"])
    ['hidden_channels', 'schedule.kind', 'optimizer.lr', 'lr']
    """
    last = [".".join(key.split(".")[-2 if key.endswith(_SAY_LITTLE) else -1 :]) for key in keys]
    return [name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)]


def _text(value: Any) -> str:  # noqa: ANN401  # whatever a plan holds
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _column(key: str, values: Sequence[Any]) -> Column:
    return Column("", _type([value for value in values if value is not None]), f"{key} of the plan")


def _type(values: Sequence[Any]) -> ColumnType:
    if all(isinstance(value, bool) for value in values):
        return "bool"
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return "text"
    return "integer" if all(isinstance(value, int) for value in values) else "number"
