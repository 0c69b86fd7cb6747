"""The layouts of a merged table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.columns import layouts as views
from graphmill.report.long import merge_long
from graphmill.report.merge import KEY_COLUMNS, Merged, merge
from graphmill.report.table import MERGED_METRICS

MERGED_EVALUATIONS: Final = MERGED_METRICS.with_name("evaluations.csv")
LAYOUTS: Final = ("wide", "long", *views())
"""A row per epoch; a row per epoch, evaluation set and measure; headers of other programs (docs/coming-from.md)."""


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
