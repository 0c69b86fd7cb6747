"""What holds a run back, from the clocks of its ranks and what the monitors saw. Pure; `thresholds.py` has the limits.

All shares are of the time of the epochs after the first, training and evaluation together. A finding is what lies over
its threshold; the verdict is the largest of them, memory before all others, and computing if there is none. Where other
processes took the cores, that is the verdict, and shares of time are findings no longer: they are not the run's own.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graphmill.base.amounts import gib
from graphmill.diagnose.thresholds import BUSY, NEARLY_FULL, OTHERS_CORES, SEVERE, SHORT_S, THRESHOLDS, Bound


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds of one rank, summed over epochs. Making batches (sample, gather) may overlap the step."""

    rank: int
    train_s: float
    compute_s: float
    wait_s: float
    sync_s: float
    sample_s: float = 0.0
    gather_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a run. None: not measured."""

    clocks: tuple[Clock, ...]  # of every rank; of rank 0 alone if the events lack those of the others
    eval_s: float
    warms_up: bool  # the sums hold the first epoch, for there is no other
    num_ranks: int
    ranks_per_host: int
    threads: int  # of each rank
    sync_every: int
    prefetch: int
    device: Literal["cpu", "cuda"] = "cpu"
    batch_size: int | None = None
    cores_per_host: int | None = None
    ranks_cores: float | None = None  # of the busiest host: what its ranks kept busy
    others_cores: float | None = None  # of the same: what other processes did
    memory_used_mib: float | None = None  # of the fullest host, all its ranks
    memory_total_mib: float | None = None  # there is, or the job may use
    gpu_busy_percent: float | None = None

    @property
    def total_s(self) -> float:
        """Of the slowest rank: training and evaluation."""
        return max(clock.train_s for clock in self.clocks) + self.eval_s


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing over its threshold."""

    bound: Bound
    share: float
    threshold: float
    is_severe: bool
    figure: str  # the number that shows it, for display
    suggestions: tuple[str, ...]  # the next thing to try first


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What holds a run back."""

    bound: Bound
    figure: str
    suggestions: tuple[str, ...]
    shares: dict[str, float]  # compute, loader, sync, imbalance, evaluation, rest; memory of what there is
    findings: tuple[Finding, ...]  # the largest first
    caveats: tuple[str, ...]  # why the verdict may not be the run's own


def find_bottleneck(measured: Measured) -> Diagnosis:
    """The verdict on one run; `measured` has at least one clock."""
    shares = _shares(measured)
    describe = {"loader": _loader, "sync": _sync, "imbalance": _imbalance, "evaluation": _evaluation, "memory": _memory}
    findings = []
    for bound, (threshold, _) in THRESHOLDS.items():
        share = shares.get(bound)
        if share is not None and share > threshold:
            figure, suggestions = describe[bound](measured, share)
            findings.append(Finding(bound, share, threshold, share > SEVERE * threshold, figure, suggestions))
    if lacks_cores(measured):
        findings = [*(finding for finding in findings if finding.bound == "memory"), _others(measured, shares)]
    findings.sort(key=lambda finding: (finding.bound != "memory", -finding.share))
    if findings:
        first = findings[0]
        bound, figure, suggestions = first.bound, first.figure, first.suggestions
    else:
        bound, (figure, suggestions) = "compute", _compute(measured, shares["compute"])
    return Diagnosis(bound, figure, suggestions, shares, tuple(findings), tuple(_caveats(measured)))


def lacks_cores(measured: Measured) -> bool:
    """Whether other processes took cores that threads of the ranks would have used: that comes before all advice."""
    others, have = measured.others_cores or 0.0, measured.cores_per_host
    wanted = measured.threads * measured.ranks_per_host
    return (
        measured.device == "cpu"
        and have is not None
        and others > OTHERS_CORES
        and wanted + others > have + OTHERS_CORES
    )


def _shares(measured: Measured) -> dict[str, float]:
    total, clocks = measured.total_s, measured.clocks
    work = [clock.compute_s + clock.wait_s for clock in clocks]
    mean = statistics.fmean
    shares = {
        "compute": mean(clock.compute_s for clock in clocks) / total,
        "loader": mean(clock.wait_s for clock in clocks) / total,
        "sync": min(clock.sync_s for clock in clocks) / total,
        "evaluation": measured.eval_s / total,
    }
    parts = mean(clock.compute_s + clock.wait_s + clock.sync_s for clock in clocks) + measured.eval_s
    shares["rest"] = max(0.0, 1 - parts / total)
    if len(clocks) > 1:
        shares["imbalance"] = max(0.0, max(work) - mean(work)) / total  # equal ranks: the mean may round above them
    if measured.memory_used_mib is not None and measured.memory_total_mib:
        shares["memory"] = measured.memory_used_mib / measured.memory_total_mib
    return shares


def _compute(measured: Measured, share: float) -> tuple[str, tuple[str, ...]]:
    figure = f"{100 * share:.0f} % of the time went into forward, backward and update"
    if measured.device == "cuda":
        busy = measured.gpu_busy_percent
        if busy is not None:
            figure += f"; the GPUs were busy {busy:.0f} % of the time"
        return figure, ("train.precision=bf16", "more GPUs: see what they bring with a study of kind strong")
    wanted = measured.threads * measured.ranks_per_host
    have = measured.cores_per_host
    suggestions = []
    if measured.ranks_cores is not None:
        figure += f"; {measured.ranks_cores:.1f} cores busy for {_threads(wanted)} of a host"
        reachable = min(wanted, have or wanted) - (measured.others_cores or 0.0)
        if measured.ranks_cores < BUSY * reachable:
            larger = f" (train.batch_size={2 * measured.batch_size})" if measured.batch_size else ""
            suggestions.append(f"cores are idle during compute: the operations are small: larger batches{larger}")
    if have is not None and wanted < have:
        threads = have // measured.ranks_per_host
        suggestions.append(f"{have - wanted} of {have} cores have no thread: train.threads={threads}, or more ranks")
    more = "more hosts, or more ranks: see what they bring with a study of kind strong"
    return figure, (*suggestions, more, "train.precision=bf16")


def _loader(measured: Measured, share: float) -> tuple[str, tuple[str, ...]]:
    sample = statistics.fmean(clock.sample_s for clock in measured.clocks)
    gather = statistics.fmean(clock.gather_s for clock in measured.clocks)
    slower = "sampling" if sample >= gather else "gathering features"
    figure = f"steps waited for their batch {100 * share:.0f} % of the time"
    if sample or gather:
        figure += f"; {slower} takes most ({sample:.1f} s sampling, {gather:.1f} s gathering)"
    suggestions = []
    if measured.prefetch == 0:
        suggestions.append("make batches ahead (train.prefetch=2)")
    if sample > gather:
        suggestions.append("smaller fan-outs (train.num_neighbors)")
    elif sample or gather:
        suggestions.append("keep the dataset near the host (staging.to=host_local)")
    cores, busy = measured.cores_per_host, measured.ranks_cores
    if measured.prefetch and is_crowded(measured):
        suggestions.insert(0, "leave the loader a core: fewer ranks or threads on a host")
    elif cores and busy and busy > NEARLY_FULL * cores:
        more = math.ceil(1.5 * cores)
        suggestions.insert(0, f"all cores are busy: more of them (slurm.cpus_per_host={more})")
    if measured.ranks_per_host > 1:
        suggestions.append("fewer ranks on a host, so that each loader has more of its memory's bandwidth")
    return figure, tuple(suggestions or ["larger batches (train.batch_size)"])


def _sync(measured: Measured, share: float) -> tuple[str, tuple[str, ...]]:
    """The rank that spends least in collectives: the slowest rank waits least, the others wait for it."""
    figure = f"even the rank that waits least spent {100 * share:.0f} % of the time in collectives"
    suggestions = [f"synchronise less often (train.sync.every={4 * measured.sync_every})", "train.sync.payload=fp16"]
    if is_crowded(measured):
        suggestions.insert(0, f"fewer ranks: {_cores(measured.cores_per_host)} cannot run all threads at once")
    if measured.num_ranks > measured.ranks_per_host:
        suggestions.append("name a faster network interface (slurm.interface)")
    return figure, tuple(suggestions)


def _imbalance(measured: Measured, share: float) -> tuple[str, tuple[str, ...]]:
    clocks = measured.clocks
    slowest = max(clocks, key=lambda clock: clock.compute_s + clock.wait_s)
    mean_compute = statistics.fmean(clock.compute_s for clock in clocks)
    mean_wait = statistics.fmean(clock.wait_s for clock in clocks)
    by_wait = slowest.wait_s - mean_wait > slowest.compute_s - mean_compute
    part = "waits for batches" if by_wait else "computes"
    own, mean = (slowest.wait_s, mean_wait) if by_wait else (slowest.compute_s, mean_compute)
    figure = (
        f"rank {slowest.rank} {part} {own:.1f} s where ranks do {mean:.1f} s on average:"
        f" the others wait for it {100 * share:.0f} % of the time"
    )
    host = slowest.rank // measured.ranks_per_host
    look = f"see whether others work on host {host + 1} of the run (monitor/*.csv), and request it exclusively"
    return figure, (f"{look} (slurm.exclusive=true)", "hosts of one kind (slurm.constraint)")


def _evaluation(measured: Measured, share: float) -> tuple[str, tuple[str, ...]]:
    del measured
    return f"{100 * share:.0f} % of the time went into evaluations", ("train.evaluate_every_epochs=5",)


def _memory(measured: Measured, share: float) -> tuple[str, tuple[str, ...]]:
    used, total = measured.memory_used_mib or 0.0, measured.memory_total_mib or 0.0
    smaller = f" (train.batch_size={max(1, measured.batch_size // 2)})" if measured.batch_size else ""
    return (
        f"the ranks of a host took {gib(used)} of {gib(total)} GiB at their peak ({100 * share:.0f} %)",
        (f"smaller batches{smaller}", "fewer ranks on a host", "more memory (slurm.mem)"),
    )


def _others(measured: Measured, shares: dict[str, float]) -> Finding:
    others, have = measured.others_cores or 0.0, measured.cores_per_host or 1
    computing = _compute(measured, shares["compute"])[0]
    figure = (
        f"other processes kept {others:.1f} of {_cores(have)} of a host busy, which the ranks' threads lacked, so"
        f" shares of time say little; {computing}"
    )
    free = "free the cores of other processes, or request the host alone (slurm.exclusive=true): run again"
    return Finding("others", others / have, OTHERS_CORES / have, is_severe=True, figure=figure, suggestions=(free,))


def is_crowded(measured: Measured) -> bool:
    """Whether the ranks of a host have more threads than it has cores."""
    cores = measured.cores_per_host
    return cores is not None and measured.ranks_per_host * measured.threads > cores


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _cores(count: int | None) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def _caveats(measured: Measured) -> Sequence[str]:
    caveats = []
    if is_crowded(measured):
        caveats.append(
            f"oversubscribed: {measured.ranks_per_host} ranks of {_threads(measured.threads)} each share"
            f" {_cores(measured.cores_per_host)}, so that waiting for a core hides in every other figure"
        )
    if measured.total_s < SHORT_S:
        caveats.append(
            f"only {measured.total_s:.1f} s of epochs were measured: shares of so short a time say little; run longer"
        )
    if (measured.others_cores or 0.0) > OTHERS_CORES and not lacks_cores(measured):
        caveats.append(f"other processes kept {measured.others_cores:.1f} cores of a host busy meanwhile")
    if len(measured.clocks) < measured.num_ranks:
        caveats.append("only rank 0's clocks were recorded: whether ranks differ is not known")
    if measured.warms_up:
        caveats.append("a single epoch was measured, the one that warms up")
    return caveats
