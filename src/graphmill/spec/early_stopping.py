"""When a run ends before its last step: the rule, and what it must remember from one evaluation to the next. Pure."""

import math
from typing import Literal

from pydantic import Field

from graphmill.config.frozen import Spec
from graphmill.spec.columns import Measure


class EarlyStoppingSpec(Spec):
    """Stop once the measure that chooses the best checkpoint no longer improves on the validation split."""

    patience: int = Field(
        0, ge=0, description="stop after this many evaluations in a row without an improvement; 0: never"
    )
    min_delta: float = Field(
        0.0, ge=0, description="an improvement is a measure better than the last improved one by more than this"
    )


class Patience(Spec):
    """The measure that counted as an improvement last, and the evaluations since."""

    reference: float | Literal["none"] = "none"  # "none": no evaluation yet
    num_stale: int = 0

    def after(self, value: float, measure: Measure, spec: EarlyStoppingSpec) -> "Patience":
        """Return the state after one more evaluation, which gave `value`."""
        if math.isnan(value):
            return Patience(reference=self.reference, num_stale=self.num_stale + 1)
        if self.reference == "none":
            return Patience(reference=value)
        needed = self.reference + (spec.min_delta if measure.higher_is_better else -spec.min_delta)
        if measure.is_better(value, needed):
            return Patience(reference=value)
        return Patience(reference=self.reference, num_stale=self.num_stale + 1)

    def is_over(self, spec: EarlyStoppingSpec) -> bool:
        """Whether the run should stop."""
        return 0 < spec.patience <= self.num_stale
