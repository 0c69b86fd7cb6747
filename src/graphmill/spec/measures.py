"""What a run is judged by: the measures of its task, and those that the user has defined. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from graphmill.base.errors import UserError
from graphmill.spec.columns import Measure
from graphmill.spec.experiment import MeasureSpec
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.kind import AnyKind

_TAKEN: Final = ("step", "epoch", "num_seeds")  # what stands beside measures in events and outcome.json
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class MeasuredPlan(Protocol):
    """What `judged_kind` must know of a plan."""

    @property
    def measures(self) -> Mapping[str, MeasureSpec]:
        """Measures of the user's own, by name."""

    @property
    def best_by(self) -> str | None:
        """The measure that the best checkpoint is chosen by; None: the first of the task."""


def judged_kind(name: str, runs: Sequence[MeasuredPlan]) -> AnyKind:
    """The kind called `name` with all measures that users defined for `runs`, first the one that chose all their best.

    Where runs were judged by different measures, the task's own first one is first.
    """
    own = {key: spec for run in runs for key, spec in run.measures.items()}
    chosen = {run.best_by for run in runs}
    first = chosen.pop() if len(chosen) == 1 else None
    return with_measures(find_kind(name), [_measure(*item) for item in own.items()], first)


def with_measures(kind: AnyKind, custom: Sequence[Measure], best_by: str | None) -> AnyKind:
    """The kind with measures beside its own, the one called `best_by` first; None: its first stays the first."""
    if not custom and best_by is None:
        return kind
    measures = (*kind.measures, *custom)
    first = [measure for measure in measures if measure.name == best_by]
    return replace(kind, measures=(*first, *(measure for measure in measures if measure.name != best_by)))


def refuse_unfit_measures(kind: AnyKind, custom: Mapping[str, MeasureSpec], best_by: str | None) -> None:
    """Raise a `UserError` for measures that the task cannot take, names that are taken, and an unknown `best_by`."""
    if custom and not kind.takes_measures:
        raise UserError(
            f"train.measures has {', '.join(custom)}, but the task {kind.name} takes none",
            fix="give its page a Measure, and compute it in its method evaluate: docs/howto/own-task.md",
        )
    for name in custom:
        if not _NAME.fullmatch(name):
            raise UserError(
                f"train.measures.{name} names a column of metrics.csv", fix="take small letters, digits and _, as mcc_2"
            )
        if f"val_{name}" in kind.columns or name in _TAKEN:
            raise UserError(f"train.measures.{name} has a name that is taken", fix="give it another")
    known = [*(measure.name for measure in kind.measures), *custom]
    if best_by is not None and best_by not in known:
        raise UserError(
            f"train.best_by is {best_by!r}, which is no measure of the run",
            fix=f"set it to one of {', '.join(known)}",
        )


def _measure(name: str, spec: MeasureSpec) -> Measure:
    return Measure(name, name, spec.higher_is_better, spec.unit, f"{spec.target}, of the user's own")
