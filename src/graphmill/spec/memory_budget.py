"""How the size of a run's batches was found: the record of what was tried."""

from typing import Literal

from pydantic import Field

from graphmill.config.frozen import Spec
from graphmill.spec.batch import Sizing


class TriedSize(Spec):
    """One size that was tried: training steps on its largest batches, and an evaluation, in a process of its own."""

    size: int = Field(description="seeds, or graphs of mean size, of a batch of a rank")
    max_nodes: int | None = None
    max_edges: int | None = None
    peak_mib: float | None = Field(description="most that the process held at once; null: it ran out of memory")
    fits: bool
    num_steps: int = 0
    wall_s: float = 0.0


class MemoryBudget(Spec):
    """How the size of a run's batches was found: what was assumed, predicted and measured."""

    mode: Sizing
    unit: Literal["seeds", "graphs of mean size"]
    device: str
    limit_mib: float = Field(description="what each rank may use")
    target: float
    min: int
    max: int
    assumed: dict[str, float] = Field(description="MiB by name: what was not measured")
    attempts: tuple[TriedSize, ...] = ()
    max_fit: int = Field(description="the largest size that fits")
    safe: int = Field(description="`target` of it: what is used")
    max_nodes: int | None = Field(None, description="of the budget that is used; null: seeds are counted")
    max_edges: int | None = None
    predicted_mib: float = Field(description="most that a rank holds at once with batches of the size `safe`")
