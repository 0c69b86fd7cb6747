"""What a run is worth: its best epoch, beside the weights that it began with and methods that learn little."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from graphmill.record.documents import Outcome
from graphmill.record.evaluations import Evaluated
from graphmill.spec.columns import Measure
from graphmill.spec.kinds.kind import AnyKind

INITIAL: Final = 0
"""The epoch of an evaluation before the first step: of weights that another run made."""


def can_be_best(epoch: int) -> bool:
    """Whether an evaluation of the validation split counts when the best checkpoint is chosen.

    The weights that a run began with do not: its best checkpoint is one that it made. Trainer and verify ask here.
    """
    return epoch > INITIAL


def not_better_than_it_began(rows: Iterable[Evaluated], kind: AnyKind, best: Mapping[str, object] | None) -> str:
    """Say that no epoch was better than another run's weights that this one began with; "": one was, or not known.

    Args:
        rows: evaluations.csv of the run.
        kind: of the run, with its own measures.
        best: the best epoch and its measures, as outcome.json has them.
    """
    measure = kind.measures[0]
    value = None if best is None else best.get(measure.name)
    if best is None or not isinstance(value, int | float):
        return ""
    at_first = (row.value for row in rows if (row.epoch, row.set, row.measure) == (INITIAL, "val", measure.name))
    start = next(at_first, None)
    if start is None or measure.is_better(value, start):
        return ""
    return (
        f"no epoch was better than the weights that it began with: {measure.words} on the validation split was"
        f" {start:.6g}, and at best {value:.6g} (epoch {best['epoch']})"
    )


@dataclass(frozen=True, slots=True)
class Lost:
    """A baseline that scores better than a run, the best of those that do."""

    baseline: str  # in words
    measure: Measure
    run: float
    best: float
    num_better: int

    def __str__(self) -> str:
        others = self.num_better - 1
        also = f", and {others} more {'is' if others == 1 else 'are'} better too" if others else ""
        return f"loses to a baseline: {self.measure.words} {self.run:.4f}, {self.baseline} {self.best:.4f}{also}"


def lost_to(
    kind: AnyKind, scores: Mapping[str, float | int], baselines: Mapping[str, Mapping[str, float]]
) -> Lost | None:
    """The best baseline that beats a run; None: none does.

    By the measure that the run is chosen by; by the task's first that both have where that one is the user's own, which
    is not taken of baselines.

    Args:
        kind: of the run, with its own measures.
        scores: of the run on a split: measure → value.
        baselines: on the same split: baseline → measure → value.
    """
    methods = [each for each in kind.baselines.methods if not each.is_bound]
    known = {each.name: each.words for each in methods if each.name in baselines}
    for measure in kind.measures:
        values = {name: baselines[name][measure.name] for name in known if measure.name in baselines[name]}
        run = float(scores.get(measure.name, math.nan))
        if not values or math.isnan(run):
            continue
        better = [name for name, value in values.items() if measure.is_better(value, run)]
        if not better:
            return None
        best = (max if measure.higher_is_better else min)(better, key=values.__getitem__)
        return Lost(known[best], measure, run, values[best], len(better))
    return None


def lost_on_test(kind: AnyKind, outcome: Outcome | None) -> Lost | None:
    """Baseline that a finished run lost to on the test split, by the run's outcome; None: there is none."""
    if outcome is None or outcome.test is None:
        return None
    return lost_to(kind, outcome.test, outcome.baselines.get("test", {}))
