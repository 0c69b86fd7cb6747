"""Where the time of a step goes, and the one thing to change, from the profile of a run. Pure.

Waiting for batches, collectives and ranks that differ are judged as `bottleneck` judges whole runs; what is left of a
step, by its phases and its operators.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphmill.diagnose.bottleneck import Clock, Measured, find_bottleneck, is_crowded, lacks_cores
from graphmill.diagnose.thresholds import (
    BUSY,
    COPY_SHARE,
    MANY_CALLS,
    OPERATOR_SHARE,
    OPTIMIZER_SHARE,
    OTHER_SHARE,
    OTHERS_CORES,
    SMALL_CALL_S,
)
from graphmill.record.phases import OTHER, DurationSpread, Operator, Profile, RankPhases

STEP: Final = "step"
_MADE: Final = ("sample", "gather", "collate")
_DENSE: Final = ("aten::mm", "aten::addmm", "aten::bmm", "graphmill::linear")
_SLOWER: Final = 0.15
_UNEVEN: Final = 1.5  # times the lower quartile of steps
_COMPUTED: Final = ("forward", "backward")


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


@dataclass(frozen=True, slots=True)
class ProfileAdvice:
    """What to change, and the figure that says so; nothing stands out if there is no change."""

    what: str
    figure: str
    change: str  # what to type; empty: nothing
    then: tuple[str, ...] = ()


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


def advice(profile: Profile) -> ProfileAdvice:
    """The one thing to change first."""
    measured = measured_of(profile)
    verdict = find_bottleneck(measured)
    shares = {(row.phase, row.background): row.share for row in rows_of(profile)}
    if verdict.bound == "loader" and profile.plan["steps_per_epoch"] == 1:
        smaller = f"smaller batches (train.batch_size={max(1, profile.plan['batch_size'] // 4)})"
        figure = f"{_waited(profile, verdict.shares)}; an epoch is one step, and begins with its batch"
        return ProfileAdvice("loader", figure, f"{smaller}: of an epoch's later steps they are made ahead")
    if verdict.bound == "others":
        return ProfileAdvice("cores", verdict.figure, verdict.suggestions[0])
    if verdict.bound in ("loader", "sync", "imbalance"):
        first, *then = verdict.suggestions
        figure = {"loader": _waited, "sync": _synced, "imbalance": _differs}[verdict.bound](profile, verdict.shares)
        return ProfileAdvice(verdict.bound, figure, first, tuple(then))
    for rule in (_copies, _updates, _loops, _idle, _dominates, _dispatches):
        found = rule(profile, shares)
        if found is not None:
            return found
    forward, backward = (100 * shares.get((name, False), 0.0) for name in _COMPUTED)
    figure = f"forward takes {forward:.0f} % of a step and backward {backward:.0f} %"
    return ProfileAdvice("compute", f"nothing stands out: {figure}, and no operator {100 * OPERATOR_SHARE:.0f} %", "")


def measured_of(profile: Profile) -> Measured:
    """The clocks of the timed steps, as `bottleneck` judges those of whole epochs."""
    plan = profile.plan
    _, others = cores_busy(profile)
    return Measured(
        clocks=tuple(_clock(rank) for rank in profile.ranks),
        eval_s=0.0,
        warms_up=False,
        num_ranks=plan["ranks"],
        ranks_per_host=plan["ranks"] // plan["hosts"],
        threads=plan["threads"],
        sync_every=plan["sync.every"],
        prefetch=plan["prefetch"],
        device=plan["device"],
        batch_size=plan["batch_size"],
        cores_per_host=profile.num_cores,
        others_cores=others,
    )


def cores_busy(profile: Profile) -> tuple[float, float]:
    """On rank 0's host while steps were timed: by the ranks, and by others."""
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
    measured, first = measured_of(profile), profile.ranks[0]
    notes = []
    if is_crowded(measured):
        notes.append(
            f"{measured.ranks_per_host} ranks of {measured.threads} threads share {profile.num_cores} cores: waiting"
            " for a core hides in every figure"
        )
    _, others = cores_busy(profile)
    if others > OTHERS_CORES and not lacks_cores(measured):
        notes.append(f"other processes kept {others:.1f} cores busy meanwhile: the figures are not this run's alone")
    if first.step.high_s > _UNEVEN * first.step.low_s:
        low, high = 1e3 * first.step.low_s, 1e3 * first.step.high_s
        notes.append(
            f"steps differ much, {low:.1f} to {high:.1f} ms between quartiles: other processes work here, batches are"
            " of many sizes, or not every step synchronises"
        )
    slower = first.traced_step.median_s / first.step.median_s - 1
    if slower > _SLOWER:
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


Shares = dict[tuple[str, bool], float]


def _waited(profile: Profile, shares: dict[str, float]) -> str:
    made = sorted(((_of(profile, name), name) for name in _MADE), reverse=True)
    parts = ", ".join(f"{name} {1e3 * seconds:.2f} ms" for seconds, name in made if seconds)
    return f"steps waited for their batch {100 * shares['loader']:.0f} % of the time; making one took {parts}"


def _of(profile: Profile, name: str) -> float:
    """Mean seconds of a batch in a phase, whichever thread was in it."""
    return statistics.fmean(
        sum(phase.per_step.mean_s for phase in rank.phases if phase.name == name) for rank in profile.ranks
    )


def _synced(profile: Profile, shares: dict[str, float]) -> str:
    del profile
    return f"even the rank that waits least spent {100 * shares['sync']:.0f} % of its steps in collectives"


def _differs(profile: Profile, shares: dict[str, float]) -> str:
    clocks = measured_of(profile).clocks
    slowest = max(clocks, key=lambda clock: clock.compute_s + clock.wait_s)
    own = slowest.compute_s + slowest.wait_s
    mean = statistics.fmean(clock.compute_s + clock.wait_s for clock in clocks)
    return (
        f"rank {slowest.rank} works {1e3 * own:.1f} ms a step where ranks do {1e3 * mean:.1f} ms on average: the others"
        f" wait for it {100 * shares['imbalance']:.0f} % of the time"
    )


def _copies(profile: Profile, shares: Shares) -> ProfileAdvice | None:
    share = shares.get(("copy", False), 0.0)
    if share <= COPY_SHARE:
        return None
    figure = f"starting the copy of a batch to the GPU took {100 * share:.0f} % of a step"
    return ProfileAdvice("copy", figure, _larger(profile))


def _updates(profile: Profile, shares: Shares) -> ProfileAdvice | None:
    share = shares.get(("optimizer", False), 0.0)
    if share <= OPTIMIZER_SHARE:
        return None
    figure = f"the optimizer took {100 * share:.0f} % of a step: an update costs the same for a batch of any size"
    every = profile.plan["sync.every"]
    then = f"or one update for several batches, with the scheme deferred_allreduce (train.sync.every={4 * every})"
    return ProfileAdvice("optimizer", figure, _larger(profile), (then,))


def _loops(profile: Profile, shares: Shares) -> ProfileAdvice | None:
    share = shares.get((OTHER, False), 0.0)
    if share <= OTHER_SHARE:
        return None
    figure = f"{100 * share:.0f} % of a step lies in no phase, but in the loop around them: the steps are small"
    return ProfileAdvice(OTHER, figure, _larger(profile))


def _idle(profile: Profile, shares: Shares) -> ProfileAdvice | None:
    """Cores without a thread; or threads without work, where nobody else has the cores."""
    measured = measured_of(profile)
    wanted, have = measured.threads * measured.ranks_per_host, profile.num_cores
    if measured.device != "cpu":
        return None
    computing = sum(shares.get((name, False), 0.0) for name in _COMPUTED)
    if wanted < have:
        threads = have // measured.ranks_per_host
        figure = (
            f"{have - wanted} of {have} cores have no thread, and computing takes {100 * computing:.0f} % of a step"
        )
        return ProfileAdvice("compute", figure, f"train.threads={threads}", ("or more ranks (--ranks)",))
    busy, others = cores_busy(profile)
    reachable = have - others
    if busy >= BUSY * reachable:
        return None
    figure = f"{busy:.1f} cores were busy of {reachable:.1f} that the steps could have: their operations are small"
    return ProfileAdvice("compute", figure, _larger(profile))


def _dominates(profile: Profile, shares: Shares) -> ProfileAdvice | None:
    """An operator and its backward are one."""
    del shares
    found: defaultdict[str, list[tuple[Operator, float]]] = defaultdict(list)
    for each, share in dominant(profile):
        if each.phase in _COMPUTED:
            found[each.name.removesuffix("Backward").removesuffix("_backward")].append((each, share))
    name, parts = max(found.items(), key=lambda item: sum(share for _, share in item[1]), default=("", []))
    total = sum(share for _, share in parts)
    if total <= OPERATOR_SHARE:
        return None
    told = ", ".join(f"{1e3 * each.self_s:.2f} ms in {each.phase}" for each, _ in parts)
    figure = f"{name} took {100 * total:.0f} % of a step: {told}"
    look = "look at its shapes in the trace (-O train.profiler.shapes=true)"
    if name in _DENSE and profile.plan["precision"] == "fp32":
        return ProfileAdvice("operator", figure, "train.precision=bf16, if the processor has it", (look,))
    return ProfileAdvice("operator", figure, f"{look}: a smaller model or neighbourhood makes it cheaper")


def _dispatches(profile: Profile, shares: Shares) -> ProfileAdvice | None:
    first = profile.ranks[0]
    computing = sum(phase.per_step.mean_s for phase in first.phases if phase.name in _COMPUTED and not phase.background)
    del shares
    if first.calls < MANY_CALLS or computing / first.calls > SMALL_CALL_S:
        return None
    figure = (
        f"{first.calls:.0f} operators a step take {1e6 * computing / first.calls:.0f} µs each: most is calling them"
    )
    return ProfileAdvice("dispatch", figure, _larger(profile))


def _larger(profile: Profile) -> str:
    size: Any = profile.plan["batch_size"]
    if profile.plan.get("budget.max_nodes"):
        return f"larger batches (train.batch.max_nodes={2 * profile.plan['budget.max_nodes']})"
    return f"larger batches (train.batch_size={2 * size})"
