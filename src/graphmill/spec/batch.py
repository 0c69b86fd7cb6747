"""How large a mini-batch is: so many seeds, a budget of nodes and edges, or what memory allows, with what was tried."""

import math
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from graphmill.config.frozen import Spec

Sizing = Literal["static", "measured", "trial"]
"""Ways to find a size. static: by formula; measured: by what a step keeps for its backward pass; trial: by trying."""


class BatchSpec(Spec):
    """How the size of a batch is chosen; `min` and `max` bound what is looked for."""

    mode: Literal["count", "static", "measured", "trial"] = Field(
        "count",
        description="count: train.batch_size seeds; static, measured, trial: the most that fit into `memory`, found by "
        "formula, by what a step keeps for its backward pass, or by trying whole training steps",
    )
    memory: str | None = Field(
        None, description="what each rank may use, as Slurm writes it, such as 2G; null: on a GPU, all that is free"
    )
    target: float = Field(0.85, gt=0, le=1, description="share of the largest size that fits which is used")
    min: PositiveInt = Field(8, description="seeds, or graphs of mean size: less is refused")
    max: PositiveInt = Field(8192, description="seeds, or graphs of mean size: more is not tried")

    @model_validator(mode="after")
    def _a_range(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min is {self.min}, and max is {self.max}")
        return self

    @property
    def sizing(self) -> Sizing | None:
        """How a size is to be found; None: it is given."""
        return None if self.mode == "count" else self.mode


class GraphBatchSpec(BatchSpec):
    """Batch sizes of graphs of many sizes: the sizes that are found are budgets."""

    mode: Literal["count", "budget", "static", "measured", "trial"] = Field(  # type: ignore[assignment]  # one more
        "count",
        description="count: train.batch_size graphs; budget: as many as fit into max_nodes and max_edges; static, "
        "measured, trial: the largest budget that fits into `memory`, found by formula, by what a step keeps for its "
        "backward pass, or by trying whole training steps",
    )
    max_nodes: PositiveInt | None = Field(None, description="of a batch of a rank, with mode budget")
    max_edges: PositiveInt | None = Field(None, description="of a batch of a rank, with mode budget")

    @model_validator(mode="after")
    def _a_whole_budget(self) -> Self:
        given = [name for name in ("max_nodes", "max_edges") if getattr(self, name) is not None]
        if self.mode == "budget" and len(given) < 2:
            raise ValueError("mode budget needs max_nodes and max_edges")
        if self.mode != "budget" and given:
            raise ValueError(f"{' and '.join(given)} is for mode budget, and mode is {self.mode}")
        return self

    @property
    def sizing(self) -> Sizing | None:
        """How a size is to be found; None: it is given."""
        return None if self.mode in ("count", "budget") else self.mode  # type: ignore[return-value]  # the rest


class GraphSizes(Spec):
    """How large the graphs of a set are, as far as a planner must know."""

    num_graphs: int
    num_nodes: int = Field(description="of all graphs")
    num_edges: int = Field(description="of all graphs, directed")
    max_nodes: int = Field(description="of one graph")
    max_edges: int = Field(description="of one graph")

    def budget_of(self, graphs: int) -> tuple[int, int]:
        """Nodes and edges of `graphs` graphs of mean size; at least those of the largest graph."""
        nodes, edges = (-(-graphs * total // self.num_graphs) for total in (self.num_nodes, self.num_edges))
        return max(nodes, self.max_nodes, 1), max(edges, self.max_edges, 1)

    @property
    def largest(self) -> int:
        """The largest graph in graphs of mean size, rounded up."""
        mean_nodes, mean_edges = (max(1, total) / self.num_graphs for total in (self.num_nodes, self.num_edges))
        return math.ceil(max(self.max_nodes / mean_nodes, self.max_edges / mean_edges))


class BatchBudget(Spec):
    """What one batch of one rank may hold, in a plan."""

    max_nodes: PositiveInt
    max_edges: PositiveInt
    num_batches: PositiveInt = Field(description="of an epoch, over all ranks")


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
