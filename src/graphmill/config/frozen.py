"""What every model of the spec is."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Frozen, and strict about names: an unknown key is an error."""

    # Built when first used: a command uses few of the models that it imports, and building them is half its start.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
