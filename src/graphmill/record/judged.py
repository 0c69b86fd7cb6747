"""Whether a run is worth more than methods that learn little: its scores beside those of the baselines."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from graphmill.record.documents import Outcome
from graphmill.spec.columns import Measure
from graphmill.spec.kinds.kind import AnyKind


@dataclass(frozen=True, slots=True)
class Lost:
    """A baseline that scores better than a run, the best of those that do."""

    baseline: str  # in words
    measure: Measure
    run: float
    best: float
    num_better: int

    def __str__(self) -> str:
        others = f", and {self.num_better - 1} more are better too" if self.num_better > 1 else ""
        return f"loses to a baseline: {self.measure.words} {self.run:.4f}, {self.baseline} {self.best:.4f}{others}"


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
    known = {each.name: each.words for each in kind.baselines if each.name in baselines}
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
    """The same of a finished run on the test split, by its outcome."""
    if outcome is None or outcome.test is None:
        return None
    return lost_to(kind, outcome.test, outcome.baselines.get("test", {}))
