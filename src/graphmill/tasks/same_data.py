"""A run continues with the data that it was planned with, or not at all."""

from pathlib import Path
from typing import TypeVar

from graphmill.base.errors import UserError
from graphmill.graph.prepared import PreparedStore
from graphmill.spec.kinds.kind import DatasetInfo

S = TypeVar("S", bound=PreparedStore)


def open_planned(store: type[S], planned: DatasetInfo) -> S:
    """The store that was planned with: a run must not continue with other data under the same path."""
    found = store.open(Path(planned.path))
    refuse_other_data(planned, found.metadata.checksum)
    return found


def refuse_other_data(planned: DatasetInfo, checksum: str) -> None:
    """Raise a `UserError` if the data under the planned path have another checksum now."""
    if checksum != planned.checksum:
        raise UserError(
            f"{planned.path} was prepared again since the run was planned: its checksum is {checksum}, and plan.json"
            f" says {planned.checksum}",
            fix="restore that dataset, or start a new run",
        )
