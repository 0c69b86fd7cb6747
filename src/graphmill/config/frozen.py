"""What every model of the spec is."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Frozen, and strict about names: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    renamed: ClassVar[Mapping[str, str]] = {}
    """Keys that the section had in an earlier version, and their dotted names now: they are refused with those."""
