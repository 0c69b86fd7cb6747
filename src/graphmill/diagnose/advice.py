"""What to ask for next time: from what a job asked for and what was measured. Pure.

What slows a run down is found in `bottleneck.py`, and is part of the advice.

All thresholds are constants in this file. Advice that saves little is not given.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from graphmill.base.amounts import clock_of, gib, slurm_memory
from graphmill.diagnose.bottleneck import Finding
from graphmill.diagnose.thresholds import NEARLY_FULL, Bound

Resource = Literal["memory", "cores", "time", "gpus", "staging"]

MUCH_UNUSED: Final = 0.5  # memory, time: less than this share of what was asked was used
HEADROOM: Final = 1.25  # what is advised, over what was used
WORTH_MIB: Final = 1024.0  # less memory of a host than this is not worth giving back
WORTH_S: Final = 300.0  # nor less time
CORES_UNUSED: Final = 0.7  # cores: busy, on average and for nine tenths of the time, less than this share
WORTH_CORES: Final = 1.0
HOST_FULL_PERCENT: Final = 95.0  # of a host's cores: then it may be others who kept the ranks from theirs
CORES_NOISE: Final = 0.05  # one busy thread and a few ticks of others are one core
GPU_IDLE_PERCENT: Final = 10.0  # of the time: such a job needs no GPU, or something starves it
GPU_LOW_PERCENT: Final = 60.0
STAGING_SHARE: Final = 0.2  # of the job's time

_GIB: Final = 1024.0
_NICE_MINUTES: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 960, 1440)


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What is known of one run of a job. Amounts are those of one host, the fullest; None: not known."""

    is_done: bool = False  # the run is: a job that was cut short does not show the time it needs
    state: str = ""  # Slurm's word
    num_ranks: int = 1  # of a host
    memory_asked_mib: float | None = None
    memory_used_mib: float | None = None  # at its peak
    cores_asked: float | None = None
    cores_busy: float | None = None  # on average
    cores_busy_p90: float | None = None
    host_busy_percent: float | None = None  # of all its cores, whoever ran there
    time_asked_s: float | None = None
    time_used_s: float | None = None
    gpus_asked: float | None = None
    gpu_busy_percent: float | None = None
    uses_gpus: bool = False  # as planned
    staging_s: float | None = None
    staged_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding and what to do about it."""

    resource: Resource | Bound
    finding: str
    suggestion: str
    asked: float | None = None  # in `unit`, as are the next two
    used: float | None = None
    suggested: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.resource}: {self.finding}; {self.suggestion}"


def advise(facts: JobUsage, findings: Sequence[Finding] = ()) -> list[Advice]:
    """What the numbers ask for: the most costly resource first, then what slows the run down.

    `findings`: of `find_bottleneck`, on the same run. What it says of memory is said here of the job's.
    """
    slow = [finding for finding in findings if finding.bound != "memory"]
    starved = any(finding.bound == "loader" for finding in slow)
    resources = (_gpus(facts, starved=starved), _memory(facts), _cores(facts), _time(facts))
    found = (*resources, *map(_slow_part, slow), _staging(facts))
    return [advice for advice in found if advice is not None]


def _memory(facts: JobUsage) -> Advice | None:
    asked, used = facts.memory_asked_mib, facts.memory_used_mib
    if asked is None or used is None:
        return None

    def advice(finding: str, new: float) -> Advice:
        suggestion = f"request {gib(new)} GiB (slurm.mem={slurm_memory(new)})"
        return Advice("memory", finding, suggestion, asked=asked, used=used, suggested=new, unit="MiB of a host")

    both = f"used {gib(used)} of {gib(asked)} GiB per host"
    if facts.state == "OUT_OF_MEMORY":
        return advice(f"{gib(asked)} GiB per host was not enough", nice_memory(asked * 1.5))
    if used > NEARLY_FULL * asked:
        return advice(both, nice_memory(max(used, asked) * HEADROOM))
    new = nice_memory(used * HEADROOM)
    if used < MUCH_UNUSED * asked and asked - new >= WORTH_MIB:
        return advice(both, new)
    return None


def _cores(facts: JobUsage) -> Advice | None:
    asked, busy = facts.cores_asked, facts.cores_busy
    if asked is None or busy is None:
        return None
    needed = max(busy, facts.cores_busy_p90 or 0.0)
    new = max(facts.num_ranks, math.ceil(needed - CORES_NOISE))
    if needed >= CORES_UNUSED * asked or asked - new < WORTH_CORES:
        return None
    finding = f"{busy:.1f} of {asked:g} cores per host busy"
    if facts.cores_busy_p90 is not None and facts.cores_busy_p90 > busy * 1.2:
        finding += f" on average, {facts.cores_busy_p90:.1f} at most for nine tenths of the time"
    suggestion = f"request {new} (slurm.cpus_per_host={new})"
    if (facts.host_busy_percent or 0) >= HOST_FULL_PERCENT:
        suggestion += f", if that holds on a quieter host: this one was {facts.host_busy_percent:.0f} % busy"
    return Advice("cores", finding, suggestion, asked=asked, used=busy, suggested=new, unit="cores of a host")


def _time(facts: JobUsage) -> Advice | None:
    asked, used = facts.time_asked_s, facts.time_used_s
    if asked is None or used is None:
        return None

    def advice(finding: str, new: float) -> Advice:
        suggestion = f"request {clock_of(new)} (slurm.time={clock_of(new)})"
        return Advice("time", finding, suggestion, asked=asked, used=used, suggested=new, unit="s")

    both = f"used {clock_of(used)} of {clock_of(asked)}"
    if facts.state == "TIMEOUT":
        return advice(f"time limit of {clock_of(asked)} reached before the run stopped", nice_time(asked * 1.5))
    if not facts.is_done:
        return None
    if used > NEARLY_FULL * asked:
        return advice(f"{both}; a slower run would exceed the limit", nice_time(used * HEADROOM))
    new = nice_time(used * HEADROOM)
    if used < MUCH_UNUSED * asked and asked - new >= WORTH_S:
        return advice(f"{both}; a shorter job starts sooner", new)
    return None


def _gpus(facts: JobUsage, *, starved: bool) -> Advice | None:
    asked, busy = facts.gpus_asked, facts.gpu_busy_percent
    if not asked:
        return None
    if not facts.uses_gpus:
        finding = f"{asked:g} per host requested, and the run computes on the CPU"
        suggestion = "request none (slurm.gpus_per_host=0), or train on them (train.device=cuda)"
        return Advice("gpus", finding, suggestion, asked=asked, used=0, suggested=0, unit="GPUs of a host")
    if busy is None or busy >= GPU_LOW_PERCENT:
        return None
    finding = f"{asked:g} per host, busy {busy:.0f} % of the time"
    if starved:
        suggestion = "they wait for mini-batches: see loader"
    elif busy < GPU_IDLE_PERCENT:
        suggestion = "try the run without GPUs (slurm.gpus_per_host=0, train.device=cpu), or give them more at once"
    else:
        suggestion = "give them more at once (a larger train.batch_size)"
    return Advice("gpus", finding, suggestion, asked=100, used=busy, unit="% of the time")


def _slow_part(finding: Finding) -> Advice:
    suggestion = "; ".join(finding.suggestions)
    unit = "% of the cores of a host" if finding.bound == "others" else "% of the time"
    return Advice(finding.bound, finding.figure, suggestion, used=100 * finding.share, unit=unit)


def _staging(facts: JobUsage) -> Advice | None:
    took, used = facts.staging_s, facts.time_used_s
    if not took or not used or took <= STAGING_SHARE * used:
        return None
    finding = f"copying the dataset ({gib(facts.staged_mib or 0)} GiB) took {took:.0f} s of {used:.0f}"
    suggestion = "read the shared copy (staging.to=nowhere), or stage to scratch, where the next job finds it"
    return Advice("staging", finding, suggestion, asked=used, used=took, unit="s")


def nice_memory(mib: float) -> float:
    """The next amount that a user would write: quarters of a GiB below one, then 1, 2, 3, 4, 6, 8, 12, 16, 24 … GiB.

    >>> nice_memory(15 * 1024) / 1024, nice_memory(500), nice_memory(97 * 1024) / 1024
    (16.0, 512.0, 128.0)
    """
    if mib <= _GIB:
        return max(256.0, math.ceil(mib / 256) * 256.0)
    power = 2.0 ** math.floor(math.log2(mib / _GIB))
    return next(
        _GIB * power * step for step in (1, 1.5, 2) if _GIB * power * step >= mib and (step != 1.5 or power > 1)
    )


def nice_time(seconds: float) -> float:
    """The next length of time that a user would write, in seconds.

    >>> nice_time(50 * 60) / 60, nice_time(25 * 3600) / 3600
    (60.0, 48.0)
    """
    for minutes in _NICE_MINUTES:
        if seconds <= minutes * 60:
            return minutes * 60.0
    return math.ceil(seconds / 86400) * 86400.0
