"""Two profiles beside each other: what became faster, what slower, and what differs no more than steps do. Pure.

Medians are told apart by the notches of box plots, median ± 1.57 × interquartile range ÷ √steps: where those do not
meet, the medians differ, at 95 % (McGill, Tukey, Larsen 1978). What differs by 3 % or less is never told apart, for two
runs of the same do so.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from graphmill.base.errors import UserError
from graphmill.diagnose.profile import STEP, Row, cores_busy, rows_of
from graphmill.diagnose.thresholds import OTHERS_CORES, SAME_STEP
from graphmill.record.phases import Profile

Verdict = Literal["faster", "slower", "within noise", "only in the first", "only in the second"]
_NOTCH: Final = 1.57
_SAME_WORK: Final = ("task", "dataset.name", "dataset.checksum")
_OF_A_STEP: Final = ("batch_size", "budget.max_nodes", "budget.max_edges")
_IGNORED: Final = (
    "name",
    "run_id",
    "epochs",
    "steps_per_epoch",
    "steps_per_rank",
    "dataset.path",
    "evaluate_every_epochs",
    "baselines",
)
_SECTIONS_IGNORED: Final = ("profile", "checkpoint", "early_stopping", "init_from", "extends", "sources")


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """One phase in both profiles."""

    phase: str
    background: bool
    before: Row | None
    after: Row | None
    verdict: Verdict

    @property
    def ratio(self) -> float | None:
        """The mean of the second by that of the first; None: one of them lacks the phase, or took no time."""
        if self.before is None or self.after is None or not self.before.mean_s:
            return None
        return self.after.mean_s / self.before.mean_s


@dataclass(frozen=True, slots=True)
class ProfileComparison:
    """The phases of two profiles, the whole step among them, and what else differs."""

    changes: tuple[PhaseChange, ...]
    differences: tuple[str, ...]  # of the plans
    seeds_per_s: tuple[float, float]
    is_same_work: bool  # a step has as many seeds in both
    notes: tuple[str, ...]  # why a change may not be their own

    @property
    def step(self) -> PhaseChange:
        """The whole step."""
        return next(change for change in self.changes if change.phase == STEP)


def compare(before: Profile, after: Profile) -> ProfileComparison:
    """Raises `UserError` if they are of different data: their steps have nothing in common."""
    for key in _SAME_WORK:
        if before.plan.get(key) != after.plan.get(key):
            raise UserError(
                f"{before.run_id} and {after.run_id} cannot be compared: {_differs(key, before.plan, after.plan)}",
                fix="compare profiles of one dataset",
            )
    rows = [{(row.phase, row.background): row for row in rows_of(profile)} for profile in (before, after)]
    keys = [*rows[0], *(key for key in rows[1] if key not in rows[0])]
    keys.sort(key=lambda key: (key[1], key[0] == STEP))
    num_steps = (before.ranks[0].num_steps, after.ranks[0].num_steps)
    return ProfileComparison(
        changes=tuple(_change(key, rows[0].get(key), rows[1].get(key), num_steps) for key in keys),
        differences=tuple(_differences(before.plan, after.plan)),
        seeds_per_s=(_seeds_per_s(before), _seeds_per_s(after)),
        notes=tuple(_disturbed(before, "A") + _disturbed(after, "B")),
        is_same_work=all(before.plan.get(key) == after.plan.get(key) for key in _OF_A_STEP),
    )


def _change(key: tuple[str, bool], before: Row | None, after: Row | None, num_steps: tuple[int, int]) -> PhaseChange:
    if before is None or after is None:
        return PhaseChange(*key, before, after, "only in the second" if before is None else "only in the first")
    (low, high), (after_low, after_high) = (_notch(row, n) for row, n in zip((before, after), num_steps, strict=True))
    verdict: Verdict = "within noise"
    if abs(after.median_s - before.median_s) > SAME_STEP * max(after.median_s, before.median_s):
        verdict = "faster" if after_high < low else "slower" if after_low > high else verdict
    return PhaseChange(*key, before, after, verdict)


def _notch(row: Row, num_steps: int) -> tuple[float, float]:
    half = _NOTCH * (row.high_s - row.low_s) / math.sqrt(num_steps)
    return row.median_s - half, row.median_s + half


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    told = [key for key in keys if key not in _IGNORED and key.partition(".")[0] not in _SECTIONS_IGNORED]
    return [_differs(key, before, after) for key in told]


def _differs(key: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    return f"{key} is {json.dumps(before.get(key))} and {json.dumps(after.get(key))}"


def _disturbed(profile: Profile, name: str) -> list[str]:
    _, others = cores_busy(profile)
    if others <= OTHERS_CORES:
        return []
    return [f"other processes kept {others:.1f} cores busy in {name}: what changed may be their doing"]


def _seeds_per_s(profile: Profile) -> float:
    """Seeds per second of all ranks, by the mean step of the slowest."""
    slowest = max(rank.step.mean_s for rank in profile.ranks)
    return float(profile.plan["batch_size"] * profile.plan["ranks"] / slowest)
