"""What every model of the spec is."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Frozen, and strict about names: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
