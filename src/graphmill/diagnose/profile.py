"""Where the time of a step goes, and the one thing to change, from the profile of a run. Pure.

Waiting for batches, collectives and ranks that differ are judged as `bottleneck` judges whole runs; what is left of a
step, by its phases and its operators: the rules are one table, `rules.py`.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from graphmill.diagnose.measured import Clock, Measured
from graphmill.diagnose.rules import RULES, Finding, caveats, find_bottleneck, over_threshold
from graphmill.diagnose.thresholds import OPERATOR_SHARE, SLOW_TRACE, THRESHOLDS, UNEVEN_STEPS
from graphmill.record.phases import OTHER, DurationSpread, Operator, Profile, RankPhases

STEP: Final = "step"
_MADE: Final = ("sample", "gather", "collate")
_COMPUTED: Final = ("forward", "backward")
_OF_STEPS: Final = tuple(name for name in RULES if name not in THRESHOLDS)


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
