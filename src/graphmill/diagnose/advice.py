"""What to ask for next time: from what a job asked for and what was measured. Pure.

What slows a run down is found in `bottleneck.py`, and is part of the advice.

Advice that saves little is not given; `thresholds.py` says what is little.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from graphmill.base.amounts import clock_of, gib, slurm_memory
from graphmill.diagnose import thresholds
from graphmill.diagnose.rules import Finding, Subject

_GIB: Final = 1024.0
_NICE_MINUTES: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 960, 1440)


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What is known of one run of a job. Amounts are those of one host, the fullest; absent or None: not known.

    `requested` and `used` have cores, memory_mib, time_s and gpus; of what was used, cores are busy ones on average and
    memory_mib its peak, and there are cores_p90, busy_percent of all cores of the host, whoever ran there,
    gpu_busy_percent, staging_s and staged_mib.
    """

    is_done: bool = False  # the run is: a job that was cut short does not show the time it needs
    state: str = ""  # Slurm's word
    num_ranks: int = 1  # of a host
    uses_gpus: bool = False  # as planned
    requested: Mapping[str, float | None] = field(default_factory=dict)
    used: Mapping[str, float | None] = field(default_factory=dict)


def advise(facts: JobUsage, findings: Sequence[Finding] = ()) -> list[Finding]:
    """What the numbers ask for: the most costly resource first, then what slows the run down.

    `findings`: of `find_bottleneck`, on the same run. What it says of memory is said here of the job's.
    """
    slow = [finding for finding in findings if finding.subject != "memory"]
    starved = any(finding.subject == "loader" for finding in slow)
    resources = (_gpus(facts, starved=starved), _memory(facts), _cores(facts), _time(facts))
    found = (*resources, *map(_slow_part, slow), _staging(facts))
    return [finding for finding in found if finding is not None]


def _memory(facts: JobUsage) -> Finding | None:
    requested, used = facts.requested.get("memory_mib"), facts.used.get("memory_mib")
    if requested is None or used is None:
        return None
    new, text = nice_memory(used * thresholds.HEADROOM), f"used {gib(used)} of {gib(requested)} GiB per host"
    if facts.state == "OUT_OF_MEMORY":
        new, text = nice_memory(requested * 1.5), f"{gib(requested)} GiB per host was not enough"
    elif used > thresholds.NEARLY_FULL * requested:
        new = nice_memory(max(used, requested) * thresholds.HEADROOM)
    elif used >= thresholds.MUCH_UNUSED * requested or requested - new < thresholds.WORTH_MIB:
        return None
    fix = f"request {gib(new)} GiB (slurm.mem={slurm_memory(new)})"
    return _request("memory", text, fix, asked=requested, used=used, suggested=new, unit="MiB of a host")


def _cores(facts: JobUsage) -> Finding | None:
    requested, busy, busy_p90 = facts.requested.get("cores"), facts.used.get("cores"), facts.used.get("cores_p90")
    if requested is None or busy is None:
        return None
    needed = max(busy, busy_p90 or 0.0)
    new = max(facts.num_ranks, math.ceil(needed - thresholds.CORES_NOISE))
    if needed >= thresholds.CORES_UNUSED * requested or requested - new < thresholds.WORTH_CORES:
        return None
    text = f"{busy:.1f} of {requested:g} cores per host busy"
    if busy_p90 is not None and busy_p90 > busy * 1.2:
        text += f" on average, {busy_p90:.1f} at most for nine tenths of the time"
    fix = f"request {new} (slurm.cpus_per_host={new})"
    of_host = facts.used.get("busy_percent") or 0.0
    if of_host >= thresholds.HOST_FULL_PERCENT:
        fix += f", if that holds on a quieter host: this one was {of_host:.0f} % busy"
    return _request("cores", text, fix, asked=requested, used=busy, suggested=new, unit="cores of a host")


def _time(facts: JobUsage) -> Finding | None:
    requested, used = facts.requested.get("time_s"), facts.used.get("time_s")
    if requested is None or used is None:
        return None
    new, text = nice_time(used * thresholds.HEADROOM), f"used {clock_of(used)} of {clock_of(requested)}"
    if facts.state == "TIMEOUT":
        new, text = nice_time(requested * 1.5), f"time limit of {clock_of(requested)} reached before the run stopped"
    elif facts.is_done and used > thresholds.NEARLY_FULL * requested:
        text += "; a slower run would exceed the limit"
    elif facts.is_done and used < thresholds.MUCH_UNUSED * requested and requested - new >= thresholds.WORTH_S:
        text += "; a shorter job starts sooner"
    else:
        return None
    fix = f"request {clock_of(new)} (slurm.time={clock_of(new)})"
    return _request("time", text, fix, asked=requested, used=used, suggested=new, unit="s")


def _gpus(facts: JobUsage, *, starved: bool) -> Finding | None:
    requested, busy = facts.requested.get("gpus"), facts.used.get("gpu_busy_percent")
    if not requested:
        return None
    if not facts.uses_gpus:
        text = f"{requested:g} per host requested, and the run computes on the CPU"
        fix = "request none (slurm.gpus_per_host=0), or train on them (train.device=cuda)"
        return _request("gpus", text, fix, asked=requested, used=0, suggested=0, unit="GPUs of a host")
    if busy is None or busy >= thresholds.GPU_LOW_PERCENT:
        return None
    if starved:
        fix = "they wait for mini-batches: see loader"
    elif busy < thresholds.GPU_IDLE_PERCENT:
        fix = "try the run without GPUs (slurm.gpus_per_host=0, train.device=cpu), or give them more at once"
    else:
        fix = "give them more at once (a larger train.batch_size)"
    text = f"{requested:g} per host, busy {busy:.0f} % of the time"
    return _request("gpus", text, fix, asked=100, used=busy, unit="% of the time")


def _slow_part(finding: Finding) -> Finding:
    unit = "% of the cores of a host" if finding.subject == "others" else "% of the time"
    return replace(finding, amounts={"used": 100 * finding.amounts["share"]}, unit=unit)


def _staging(facts: JobUsage) -> Finding | None:
    took, used = facts.used.get("staging_s"), facts.used.get("time_s")
    if not took or not used or took <= thresholds.STAGING_SHARE * used:
        return None
    text = f"copying the dataset ({gib(facts.used.get('staged_mib') or 0)} GiB) took {took:.0f} s of {used:.0f}"
    fix = "read the shared copy (staging.to=nowhere), or stage to scratch, where the next job finds it"
    return _request("staging", text, fix, asked=used, used=took, unit="s")


def _request(subject: Subject, text: str, fix: str, *, unit: str, **amounts: float) -> Finding:
    return Finding(subject, "warn", text, (fix,), amounts, unit)


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
