"""Baselines of a task: the methods that its page names (`Kind.baselines`), scored by code in its own folder.

They are scored from prepared data on the items, masks and measures of `Task.evaluate`, so that their scores and those
of a model can stand side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from graphmill.graph.splits import Split
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.kind import TaskPlan
from graphmill.tasks.stores import load


@dataclass(frozen=True, slots=True)
class BaselineScore:
    """What a baseline scores on a split, by the names of the kind's measures; None: `why_not` says why it cannot."""

    baseline: str
    split: Split
    values: dict[str, float] | None
    why_not: str = ""


class ScoresBaselines(Protocol):
    """The function that a kind names: `Baselines.score`."""

    def __call__(
        self, task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool
    ) -> Iterator[BaselineScore]:
        """Scores of the baselines called `names` on each of `splits`, over the data of a task's plan section.

        Exact, the same on every rank, without communication. `bounded`: what would take more than `MOST_OPERATIONS` or
        `MOST_BYTES` is not scored, with why; so it is but with `graphmill baseline --all`.
        """


_IN_A_MINUTE: Final = 6e11  # operations, of two cores of 2026
MOST_OPERATIONS: Final = _IN_A_MINUTE / 3
"""Of a baseline that is scored without being asked for."""
MOST_BYTES: Final = 2e9


def work_text(operations: float, num_bytes: float) -> str:
    """What a baseline takes, for people; a core of 2026 does some 5e9 of these operations a second.

    >>> work_text(6e12, 2**31)
    '6,000 GFLOP (some 10 minutes of two cores) and 2,048 MiB'
    """
    minutes = max(1, round(operations / _IN_A_MINUTE))
    span = f"{minutes:,} minute{'s' if minutes > 1 else ''}" if minutes < 120 else f"{minutes / 60:,.0f} hours"
    return f"{operations / 1e9:,.0f} GFLOP (some {span} of two cores) and {num_bytes / 2**20:,.0f} MiB"


def score_baselines(
    task_plan: TaskPlan, names: Sequence[str], splits: Sequence[Split], *, bounded: bool = False
) -> Iterator[BaselineScore]:
    """`ScoresBaselines` of the task whose plan section `task_plan` is; nothing if its kind has none."""
    kind = find_kind(task_plan.kind)
    if kind.baselines.score and names:
        yield from cast("ScoresBaselines", load(kind.baselines.score))(task_plan, names, splits, bounded=bounded)


def score_at_start(task_plan: TaskPlan) -> Iterator[BaselineScore]:
    """Score the baselines that are measured before every run, on val and test; those without scores are left out."""
    names = [baseline.name for baseline in find_kind(task_plan.kind).baselines.methods if baseline.scored == "start"]
    found = score_baselines(task_plan, names, ("val", "test"), bounded=True)
    return (score for score in found if score.values is not None)
