"""A file of predictions as `graphmill predict` writes it, which says whose predictions it holds: only Parquet does.

What its columns mean is said by the page of the task (`predictions` of a `Kind`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.spec.kinds import TASKS, find_kind
from graphmill.spec.kinds.kind import ORIGIN, AnyKind


@dataclass(frozen=True, slots=True)
class RunPredictions:
    """Predictions of one run, on one split of some data."""

    path: Path
    origin: Mapping[str, Any]  # as train/predict.py writes it
    kind: AnyKind

    @property
    def suffix(self) -> str:
        """Suffix for names of files: it differs between any two runs."""
        words = (str(self.origin["run"]), str(self.origin["dataset"]), str(self.origin["split"]))
        return "".join(
            f"_{word}" for word in (re.sub(r"[^A-Za-z0-9.-]+", "-", each).strip("-.") for each in words) if word
        )

    @property
    def title(self) -> str:
        """Title of a figure: the data, split and run."""
        return f"{self.origin['dataset']}, {self.origin['split']}, {self.origin['run']}"

    @property
    def is_synthetic(self) -> bool:
        """Whether the data were made up."""
        return bool(self.origin["synthetic"])

    def read(self, *columns: str, known: str) -> pl.DataFrame:
        """Read these columns, of the items whose `known` is known. `UserError` if there is none."""
        try:
            table = pl.read_parquet(self.path, columns=list(columns)).drop_nulls(known)
        except (OSError, pl.exceptions.PolarsError):
            lacks = f"{self.path} is damaged, or lacks one of the columns {', '.join(columns)}"
            raise UserError(lacks, fix=_again(self.path)) from None
        if table.is_empty():
            raise UserError(f"no item of {self.path} has a known {known} to compare with", fix=_again(self.path))
        return table


def open_predictions(path: Path, *, task: str | None = None) -> RunPredictions:
    """The predictions in a Parquet file. `task`: theirs, if it is outside this package: its code is imported."""
    try:
        text = pl.read_parquet_metadata(path).get(ORIGIN)
    except (OSError, pl.exceptions.PolarsError):
        what = "is not a whole Parquet file" if path.is_file() else "is not a file"
        raise UserError(f"{path} {what}, and figures are drawn of predictions in Parquet", fix=_again(path)) from None
    origin = _parsed(text)
    if origin is None:
        raise UserError(f"{path} does not say whose predictions it holds", fix=_again(path))
    if origin["task"] not in TASKS and origin["task"] != task:
        raise UserError(
            f"the predictions in {path} are of a task outside this package, {origin['task']!r}",
            fix="if you trust its code, which is imported: --task package.module:KIND",
        )
    return RunPredictions(path, origin, find_kind(str(origin["task"])))


def _parsed(text: str | None) -> dict[str, Any] | None:
    try:
        origin = parse_json(text or "null")
    except ValueError:
        return None
    needed = {"task", "run", "dataset", "synthetic", "split"}
    return origin if isinstance(origin, dict) and needed <= origin.keys() else None


def _again(path: Path) -> str:
    return f"graphmill predict RUN --output {path.with_suffix('.parquet')}"
