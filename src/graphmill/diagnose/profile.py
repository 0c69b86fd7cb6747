"""Where the time of a step goes, and the one thing to change, from the profile of a run; two profiles compared. Pure.

Waiting for batches, collectives and ranks that differ are judged as `bottleneck` judges whole runs; what is left of a
step, by its phases and its operators: the rules are one table, `rules.py`.

Medians are told apart by the notches of box plots, median ± 1.57 × interquartile range ÷ √steps: where those do not
meet, the medians differ, at 95 % (McGill, Tukey, Larsen 1978). What differs by 3 % or less is never told apart, for two
runs of the same do so.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from graphmill.base.errors import UserError
from graphmill.diagnose.measured import Clock, Measured
from graphmill.diagnose.rules import RULES, Finding, caveats, find_bottleneck, over_threshold
from graphmill.diagnose.thresholds import OPERATOR_SHARE, OTHERS_CORES, SAME_STEP, SLOW_TRACE, THRESHOLDS, UNEVEN_STEPS
from graphmill.record.phases import OTHER, DurationSpread, Operator, Profile, RankPhases

STEP: Final = "step"
_MADE: Final = ("sample", "gather", "collate")
_COMPUTED: Final = ("forward", "backward")
_OF_STEPS: Final = tuple(name for name in RULES if name not in THRESHOLDS)
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
class Row:
    """One phase, over ranks: the medians of theirs. Means add up to the step; the share is theirs, mean over ranks."""

    phase: str
    background: bool
    mean_s: float
    median_s: float
    low_s: float
    high_s: float
    share: float


def rows_of(profile: Profile) -> list[Row]:
    """The phases of the step, the whole step, and what was done in the background meanwhile."""
    keys = dict.fromkeys((phase.name, phase.background) for rank in profile.ranks for phase in rank.phases)
    rows = [_row(profile, *key) for key in keys]
    whole = _over_ranks(STEP, False, [rank.step for rank in profile.ranks], 1.0)
    own = [row for row in rows if not row.background]
    own.sort(key=lambda row: row.phase == OTHER)
    return [*own, whole, *(row for row in rows if row.background)]


def _row(profile: Profile, name: str, background: bool) -> Row:
    found = [
        (phase.per_step, rank.step.mean_s)
        for rank in profile.ranks
        for phase in rank.phases
        if (phase.name, phase.background) == (name, background)
    ]
    share = sum(spread.mean_s / step for spread, step in found) / len(profile.ranks)
    return _over_ranks(name, background, [spread for spread, _ in found], share)


def _over_ranks(name: str, background: bool, spreads: Sequence[DurationSpread], share: float) -> Row:
    mean, median, low, high = (
        statistics.median(getattr(spread, key) for spread in spreads)
        for key in ("mean_s", "median_s", "low_s", "high_s")
    )
    return Row(name, background, mean, median, low, high, share)


def advice(profile: Profile) -> Finding:
    """The one thing to change first; without anything to type if nothing stands out."""
    measured = measured_of(profile)
    verdict = find_bottleneck(measured).verdict
    found = [verdict] if verdict.level != "note" else over_threshold(measured, _OF_STEPS)
    if found:
        return found[0]
    forward, backward = (100 * _own_shares(profile).get(name, 0.0) for name in _COMPUTED)
    figure = f"forward takes {forward:.0f} % of a step and backward {backward:.0f} %"
    text = f"nothing stands out: {figure}, and no operator {100 * OPERATOR_SHARE:.0f} %"
    return Finding("compute", "note", text, ())


def measured_of(profile: Profile) -> Measured:
    """The clocks of the timed steps, as `bottleneck` judges those of whole epochs, and what was traced."""
    first, shares, (busy, others) = profile.ranks[0], _own_shares(profile), cores_busy(profile)
    own = [phase for phase in first.phases if not phase.background]
    use = {"cores": float(profile.num_cores), "others_cores": others, "steps_cores": busy, "calls": first.calls}
    use["computing_s"] = sum(phase.per_step.mean_s for phase in own if phase.name in _COMPUTED)
    use |= {name: shares.get(name, 0.0) for name in ("copy", "optimizer", OTHER)}
    operators = _computing_operators(profile)
    clocks = tuple(map(_clock, profile.ranks))
    return Measured(clocks, 0.0, warms_up=False, plan=profile.plan, use=use, operators=operators)


def _own_shares(profile: Profile) -> dict[str, float]:
    return {row.phase: row.share for row in rows_of(profile) if not row.background}


def _computing_operators(profile: Profile) -> Mapping[str, tuple[tuple[Operator, float], ...]]:
    """An operator and its backward are one."""
    found: defaultdict[str, list[tuple[Operator, float]]] = defaultdict(list)
    for each, share in dominant(profile):
        if each.phase in _COMPUTED:
            found[each.name.removesuffix("Backward").removesuffix("_backward")].append((each, share))
    return {name: tuple(parts) for name, parts in found.items()}


def cores_busy(profile: Profile) -> tuple[float, float]:
    """Cores that were busy on rank 0's host while steps were timed: by the ranks, and by others."""
    first = profile.ranks[0]
    ours = sum(rank.cores_busy for rank in profile.ranks if rank.host == first.host)
    return ours, max(0.0, first.host_cores_busy - ours)


def _clock(rank: RankPhases) -> Clock:
    own = {phase.name: phase.per_step.mean_s for phase in rank.phases if not phase.background}
    made = {name: sum(each.per_step.mean_s for each in rank.phases if each.name == name) for name in _MADE}
    wait_s = own.get("wait", 0.0) + sum(own.get(name, 0.0) for name in _MADE)
    sync_s = own.get("sync", 0.0)
    total = rank.step.mean_s
    return Clock(
        rank=rank.rank,
        train_s=total,
        compute_s=total - wait_s - sync_s,
        wait_s=wait_s,
        sync_s=sync_s,
        sample_s=made["sample"],
        gather_s=made["gather"] + made["collate"],
    )


def notes_of(profile: Profile) -> list[str]:
    """What makes the figures less than certain, or the traces less than whole."""
    first, notes = profile.ranks[0], caveats(measured_of(profile))
    if first.step.high_s > UNEVEN_STEPS * first.step.low_s:
        low, high = 1e3 * first.step.low_s, 1e3 * first.step.high_s
        notes.append(
            f"steps differ much, {low:.1f} to {high:.1f} ms between quartiles: other processes work here, batches are"
            " of many sizes, or not every step synchronises"
        )
    slower = first.traced_step.median_s / first.step.median_s - 1
    if slower > SLOW_TRACE:
        notes.append(
            f"traced steps took {100 * slower:.0f} % longer than timed ones, by torch's profiler or other processes:"
            " read operators as shares"
        )
    notes += [f"rank {rank.rank}: {note}" for rank in profile.ranks for note in rank.notes]
    if profile.not_merged:
        notes.append(f"the merged trace is without ranks {', '.join(map(str, profile.not_merged))}, for its size")
    return notes


def dominant(profile: Profile) -> list[tuple[Operator, float]]:
    """The operators of rank 0's traced steps, the longest first, with their shares of such a step."""
    first = profile.ranks[0]
    return [(each, each.self_s / first.traced_step.median_s) for each in first.operators]


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
