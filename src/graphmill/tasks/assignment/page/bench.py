"""What `graphmill bench assignment RUN -o KEY=VALUE` takes."""

from typing import Literal

from pydantic import Field, PositiveInt

from graphmill.config.frozen import Spec
from graphmill.tasks.assignment.page.data import Family


class AssignmentBenchOptions(Spec):
    """Which instances are solved, and how often."""

    split: Literal["train", "val", "test"] = Field("test", description="of the prepared data")
    sizes: tuple[PositiveInt, ...] | None = Field(None, description="rows of an instance; null: all")
    families: tuple[Family, ...] | None = Field(None, description="null: all")
    instances: PositiveInt = Field(5, description="of each family and size, at most; the first ones")
    repeats: PositiveInt = Field(
        5, description="of each way to solve an instance, after one more; a time is their median"
    )
