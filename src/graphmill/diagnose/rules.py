"""The rule table: what each measurement over its threshold says of a run or its steps, and what to type. Pure.

`bottleneck` asks it about the epochs of a run, `profile` about timed and traced steps, the epilog about the run of a
job; each rule has its text here, once. Thresholds are in `thresholds.py`, measurements in `measured.py`.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from graphmill.base.amounts import gib
from graphmill.diagnose import thresholds
from graphmill.diagnose.measured import Measured
from graphmill.diagnose.thresholds import THRESHOLDS, Bound

_DENSE: Final = ("aten::mm", "aten::addmm", "aten::bmm", "graphmill::linear")

Subject = Bound | Literal["copy", "optimizer", "other", "operator", "dispatch", "cores", "time", "gpus", "staging"]
Level = Literal["note", "warn", "severe"]
Words = tuple[str, tuple[str, ...]]
"""The figure, and what to type."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was measured and stands out. All diagnoses are made of these."""

    subject: Subject
    level: Level
    text: str  # the figure that shows it
    fixes: tuple[str, ...]  # what to type, the first thing to try first
    amounts: Mapping[str, float] = field(default_factory=dict)  # share and threshold; or asked, used and suggested
    unit: str = ""  # of asked, used and suggested

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}; {'; '.join(self.fixes)}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What is said where more than the threshold was measured."""

    subject: Subject
    threshold: float
    say: Callable[[Measured, float], Words]


def over_threshold(measured: Measured, names: Iterable[str]) -> list[Finding]:
    """A finding for each of the named measurements that is over its threshold, in that order."""
    values = measured.values()
    found = []
    for name in names:
        rule, value = RULES[name], values.get(name)
        if value is not None and value > rule.threshold:
            level: Level = "severe" if value > thresholds.SEVERE * rule.threshold else "warn"
            amounts = {"share": value, "threshold": rule.threshold}
            found.append(Finding(rule.subject, level, *rule.say(measured, value), amounts))
    return found


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What holds a run back."""

    verdict: Finding
    shares: dict[str, float]  # of the time; memory, of what there is
    findings: tuple[Finding, ...]  # what is over its threshold, the verdict first
    caveats: tuple[str, ...]  # why the verdict may not be the run's own


def find_bottleneck(measured: Measured) -> Diagnosis:
    """The verdict is the largest finding, memory before all others, and computing if there is none.

    Where other processes took the cores, that is the verdict, and shares of time are findings no longer: they are not
    the run's own. `measured` has at least one clock.
    """
    findings = over_threshold(measured, THRESHOLDS)
    if measured.lacks_cores:
        findings = [*(each for each in findings if each.subject == "memory"), _others(measured)]
    findings.sort(key=lambda finding: (finding.subject != "memory", -finding.amounts["share"]))
    verdict = findings[0] if findings else _compute(measured)
    return Diagnosis(verdict, measured.shares(), tuple(findings), tuple(caveats(measured)))


def _others(measured: Measured) -> Finding:
    others, cores = measured.others_cores, measured.cores or 1
    figure = (
        f"other processes kept {others:.1f} of {_counted(cores, 'core')} of a host busy, which the ranks' threads"
        f" lacked, so shares of time say little; {_computing(measured)}"
    )
    free = "free the cores of other processes, or request the host alone (slurm.exclusive=true): run again"
    return Finding(
        "others", "severe", figure, (free,), {"share": others / cores, "threshold": thresholds.OTHERS_CORES / cores}
    )


def _compute(measured: Measured) -> Finding:
    figure, fixes = _computing(measured), ["train.precision=bf16"]
    if measured.plan["device"] == "cuda":
        fixes.append("more GPUs: see what they bring with a study of kind strong")
    else:
        fixes.insert(0, "more hosts, or more ranks: see what they bring with a study of kind strong")
        idle = over_threshold(measured, ("idle", "threadless"))
        fixes = [*(f"{each.text}: {', '.join(each.fixes)}" for each in idle), *fixes]
    return Finding("compute", "note", figure, tuple(fixes))


def caveats(measured: Measured) -> list[str]:
    """Why a verdict may not be the run's own."""
    plan, found = measured.plan, list[str]()
    if measured.is_crowded:
        found.append(
            f"oversubscribed: {measured.ranks_per_host} ranks of {_counted(plan['threads'], 'thread')} each share"
            f" {_counted(measured.cores or 0, 'core')}, so that waiting for a core hides in every other figure"
        )
    of_epochs = measured.operators is None
    if of_epochs and measured.total_s < thresholds.SHORT_S:
        found.append(
            f"only {measured.total_s:.1f} s of epochs were measured: shares of so short a time say little; run longer"
        )
    if measured.others_cores > thresholds.OTHERS_CORES and not measured.lacks_cores:
        found.append(
            f"other processes kept {measured.others_cores:.1f} cores busy meanwhile: the figures are not this run's"
            " alone"
        )
    if of_epochs and len(measured.clocks) < plan["ranks"]:
        found.append("only rank 0's clocks were recorded: whether ranks differ is not known")
    if measured.warms_up:
        found.append("a single epoch was measured, the one that warms up")
    return found


def _computing(measured: Measured) -> str:
    figure = f"{100 * measured.shares()['compute']:.0f} % of the time went into forward, backward and update"
    use, plan = measured.use, measured.plan
    if plan["device"] == "cuda":
        busy = use.get("gpu_busy_percent")
        return figure if busy is None else f"{figure}; the GPUs were busy {busy:.0f} % of the time"
    if "ranks_cores" not in use:
        return figure
    return (
        f"{figure}; {use['ranks_cores']:.1f} cores busy for {_counted(measured.threads_per_host, 'thread')} of a host"
    )


def _memory(measured: Measured, share: float) -> Words:
    used, total = measured.use["memory_used_mib"], measured.use["memory_total_mib"]
    figure = f"the ranks of a host took {gib(used)} of {gib(total)} GiB at their peak ({100 * share:.0f} %)"
    return figure, (_batches(measured, 1 / 2), "fewer ranks on a host", "more memory (slurm.mem)")


def _loader(measured: Measured, share: float) -> Words:
    plan, use = measured.plan, measured.use
    sample = statistics.fmean(clock.sample_s for clock in measured.clocks)
    gather = statistics.fmean(clock.gather_s for clock in measured.clocks)
    figure = f"steps waited for their batch {100 * share:.0f} % of the time"
    if sample or gather:
        slower = "sampling" if sample >= gather else "gathering features"
        times = f"{_spent(measured, sample)} sampling, {_spent(measured, gather)} gathering"
        figure += f"; {slower} takes most ({times})"
    if plan["steps_per_epoch"] == 1:
        smaller = f"{_batches(measured, 1 / 4)}: of an epoch's later steps they are made ahead"
        return f"{figure}; an epoch is one step, and begins with its batch", (smaller,)
    fixes = []
    if plan["prefetch"] and measured.is_crowded:
        fixes.append("leave the loader a core: fewer ranks or threads on a host")
    elif measured.cores and use.get("ranks_cores", 0.0) > thresholds.NEARLY_FULL * measured.cores:
        more = math.ceil(1.5 * measured.cores)
        fixes.append(f"all cores are busy: more of them (slurm.cpus_per_host={more})")
    if plan["prefetch"] == 0:
        fixes.append("make batches ahead (train.prefetch=2)")
    if sample > gather:
        fixes.append("smaller fan-outs (train.num_neighbors)")
    elif sample or gather:
        fixes.append("keep the dataset near the host (staging.to=host_local)")
    if measured.ranks_per_host > 1:
        fixes.append("fewer ranks on a host, so that each loader has more of its memory's bandwidth")
    return figure, tuple(fixes or ["larger batches (train.batch_size)"])


def _sync(measured: Measured, share: float) -> Words:
    """The rank that spends least in collectives: the slowest rank waits least, the others wait for it."""
    plan = measured.plan
    figure = f"even the rank that waits least spent {100 * share:.0f} % of the time in collectives"
    fixes = [f"synchronise less often (train.sync.every={4 * plan['sync.every']})", "train.sync.payload=fp16"]
    if measured.is_crowded:
        fixes.insert(0, f"fewer ranks: {_counted(measured.cores or 0, 'core')} cannot run all threads at once")
    if plan["ranks"] > measured.ranks_per_host:
        fixes.append("name a faster network interface (slurm.interface)")
    return figure, tuple(fixes)


def _imbalance(measured: Measured, share: float) -> Words:
    clocks = measured.clocks
    slowest = max(clocks, key=lambda clock: clock.work_s)
    mean_compute = statistics.fmean(clock.compute_s for clock in clocks)
    mean_wait = statistics.fmean(clock.wait_s for clock in clocks)
    by_wait = slowest.wait_s - mean_wait > slowest.compute_s - mean_compute
    part = "waits for batches" if by_wait else "computes"
    own, mean = (slowest.wait_s, mean_wait) if by_wait else (slowest.compute_s, mean_compute)
    figure = (
        f"rank {slowest.rank} {part} {_spent(measured, own)} where ranks do {_spent(measured, mean)} on average:"
        f" the others wait for it {100 * share:.0f} % of the time"
    )
    host = slowest.rank // measured.ranks_per_host
    look = f"see whether others work on host {host + 1} of the run (monitor/*.csv), and request it exclusively"
    return figure, (f"{look} (slurm.exclusive=true)", "hosts of one kind (slurm.constraint)")


def _evaluation(_: Measured, share: float) -> Words:
    return f"{100 * share:.0f} % of the time went into evaluations", ("train.evaluate_every_epochs=5",)


def _threadless(measured: Measured, _: float) -> Words:
    cores = measured.cores or 0
    figure = f"{cores - measured.threads_per_host} of {cores} cores have no thread"
    return figure, (f"train.threads={cores // measured.ranks_per_host}", "or more ranks (--ranks)")


def _idle(measured: Measured, share: float) -> Words:
    reachable = measured.reachable_cores
    busy = (1 - share) * reachable
    figure = f"{busy:.1f} cores were busy of {reachable:.1f} that the steps could have: their operations are small"
    fewer = max(1, math.ceil(busy / measured.ranks_per_host))
    if fewer >= measured.plan["threads"]:
        return figure, (_batches(measured, 2),)
    # Not `fewer` itself: some operations may use all threads.
    return figure, (_batches(measured, 2), "or fewer threads: train.threads=trial measures how many are as fast")


def _copy(measured: Measured, share: float) -> Words:
    return f"starting the copy of a batch to the GPU took {100 * share:.0f} % of a step", (_batches(measured, 2),)


def _optimizer(measured: Measured, share: float) -> Words:
    figure = f"the optimizer took {100 * share:.0f} % of a step: an update costs the same for a batch of any size"
    every = 4 * measured.plan["sync.every"]
    then = f"or one update for several batches, with the scheme deferred_allreduce (train.sync.every={every})"
    return figure, (_batches(measured, 2), then)


def _loop(measured: Measured, share: float) -> Words:
    figure = f"{100 * share:.0f} % of a step lies in no phase, but in the loop around them: the steps are small"
    return figure, (_batches(measured, 2),)


def _operator(measured: Measured, share: float) -> Words:
    name, _ = measured.longest_operator
    parts = (measured.operators or {})[name]
    times = (f"{1e3 * each.self_s:.2f} ms in {each.phase}" for each, _ in parts)
    figure = f"{name} took {100 * share:.0f} % of a step: {', '.join(times)}"
    look = "look at its shapes in the trace (-O train.profiler.shapes=true)"
    if name in _DENSE and measured.plan["precision"] == "fp32":
        return figure, ("train.precision=bf16, if the processor has it", look)
    return figure, (f"{look}: a smaller model or neighbourhood makes it cheaper",)


def _dispatch(measured: Measured, calls: float) -> Words:
    each_us = 1e6 * measured.use["computing_s"] / calls
    figure = f"{calls:.0f} operators a step take {each_us:.0f} µs each: most is calling them"
    return figure, (_batches(measured, 2),)


RULES: Final[Mapping[str, Rule]] = {
    "memory": Rule("memory", THRESHOLDS["memory"][0], _memory),
    "loader": Rule("loader", THRESHOLDS["loader"][0], _loader),
    "sync": Rule("sync", THRESHOLDS["sync"][0], _sync),
    "imbalance": Rule("imbalance", THRESHOLDS["imbalance"][0], _imbalance),
    "evaluation": Rule("evaluation", THRESHOLDS["evaluation"][0], _evaluation),
    "copy": Rule("copy", thresholds.COPY_SHARE, _copy),
    "optimizer": Rule("optimizer", thresholds.OPTIMIZER_SHARE, _optimizer),
    "other": Rule("other", thresholds.OTHER_SHARE, _loop),
    "threadless": Rule("compute", 0.0, _threadless),
    "idle": Rule("compute", 1 - thresholds.BUSY, _idle),
    "operator": Rule("operator", thresholds.OPERATOR_SHARE, _operator),
    "dispatch": Rule("dispatch", 0.0, _dispatch),
}
"""Measurement → its rule. Of a step, in the order in which `profile` asks them."""


def _batches(measured: Measured, factor: float) -> str:
    """Batches `factor` times as large, as one types it."""
    most = measured.plan.get("budget.max_nodes")
    key, size = ("batch.max_nodes", most) if most else ("batch_size", measured.plan["batch_size"])
    return f"{'larger' if factor > 1 else 'smaller'} batches (train.{key}={max(1, int(factor * size))})"


def _spent(measured: Measured, seconds: float) -> str:
    """Format seconds: of a run in all, of a profile per step."""
    return f"{seconds:.1f} s" if measured.operators is None else f"{1e3 * seconds:.2f} ms a step"


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
