"""A run continues with the data that it was planned with, or not at all."""

from graphmill.base.errors import UserError
from graphmill.spec.kinds.kind import DatasetInfo


def refuse_other_data(planned: DatasetInfo, checksum: str) -> None:
    """Raise a `UserError` if the data under the planned path have another checksum now."""
    if checksum != planned.checksum:
        raise UserError(
            f"{planned.path} was prepared again since the run was planned: its checksum is {checksum}, and plan.json"
            f" says {planned.checksum}",
            fix="restore that dataset, or start a new run",
        )
