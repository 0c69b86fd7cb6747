"""Every threshold of a diagnosis: what a run, a step and a job are judged by.

A module of its own, and light: the help of `graphmill bottleneck` shows some of them.
"""

from typing import Final, Literal

Bound = Literal["compute", "loader", "sync", "memory", "imbalance", "evaluation", "others"]
"""What holds a run back; others: processes that are not the run's, where they took cores that its threads lacked."""

NEARLY_FULL: Final = 0.9
"""Of memory, cores, time: more than this share was used, and the next run may not fit."""

THRESHOLDS: Final[dict[Bound, tuple[float, str]]] = {
    "memory": (NEARLY_FULL, "peak of all ranks of a host ÷ its memory, or the job's"),
    "loader": (0.15, "time that steps waited for their batch, mean over ranks"),
    "sync": (0.25, "time in collectives, of the rank that spends least there"),
    "imbalance": (0.1, "computing and waiting for batches: slowest rank minus mean over ranks"),
    "evaluation": (0.3, "time of evaluations"),
}
"""Of the time of a run, or of the timed steps of a profile: bound → threshold, and what is compared with it."""
SEVERE: Final = 2.0
"""A finding is severe at this many times its threshold: for loading data, 15 % and 30 %."""
OTHERS_CORES: Final = 0.25
"""More cores than this kept busy by other processes, and the clocks are not the run's alone."""
SHORT_S: Final = 5.0
"""Less than this measured, and one pause of the machine is a tenth of it: no verdict is to be trusted."""
BUSY: Final = 0.7
"""Of a rank's threads: fewer busy cores than this while it computes, and its operations are too small for them."""

COPY_SHARE: Final = 0.1
OPTIMIZER_SHARE: Final = 0.2
OTHER_SHARE: Final = 0.15
"""Of a step: the start of copies to the GPU, the update, and what lies in no phase."""
OPERATOR_SHARE: Final = 0.4
"""Of a step: one operator in one phase takes more, and it is the one to look at."""
SMALL_CALL_S: Final = 20e-6
MANY_CALLS: Final = 300
"""As many operators a step or more that take no longer than this each: their dispatch is what the step does."""
UNEVEN_STEPS: Final = 1.5
"""The upper quartile of steps is more than this many times the lower one: their medians say little."""
SLOW_TRACE: Final = 0.15
"""Traced steps took longer than timed ones by more than this share: operators are to be read as shares."""
SAME_STEP: Final = 0.03
"""Two medians that differ by no more than this share are never told apart."""

MUCH_UNUSED: Final = 0.5
"""Of the memory or time that a job asked for: less than this share was used."""
HEADROOM: Final = 1.25
"""What is advised, over what was used."""
WORTH_MIB: Final = 1024.0
WORTH_S: Final = 300.0
WORTH_CORES: Final = 1.0
"""Of a host: less memory, time, fewer cores than this are not worth giving back."""
CORES_UNUSED: Final = 0.7
"""Less than this share of the cores was busy, on average and for nine tenths of the time."""
CORES_NOISE: Final = 0.05
"""One busy thread and a few ticks of others are one core."""
HOST_FULL_PERCENT: Final = 95.0
"""Of a host's cores: then it may be others who kept the ranks from theirs."""
GPU_IDLE_PERCENT: Final = 10.0
GPU_LOW_PERCENT: Final = 60.0
"""Of the time: a job whose GPUs are busy less needs none, or something starves them; or gives them too little."""
STAGING_SHARE: Final = 0.2
"""Of the job's time."""

CLOCKS_APART_S: Final = 0.1
"""Two hosts' clocks, beyond what the measurement may be wrong by."""
TEMPORARY_BYTES: Final = 2 << 30
"""Free in a host's TMPDIR."""


def headline(bound: str) -> str:
    """The verdict in a word or two.

    >>> headline("sync"), headline("others")
    ('sync-bound', 'short of cores, which other processes took')
    """
    return "short of cores, which other processes took" if bound == "others" else f"{bound}-bound"


def thresholds_text() -> str:
    """The thresholds for a help text, a line each."""
    lines = [f"  {bound:<11}> {100 * threshold:.0f} %  {what}" for bound, (threshold, what) in THRESHOLDS.items()]
    others = "  others     before all but memory: other processes took cores that the ranks' threads lacked"
    return "\n".join([*lines, others, "  compute    none of these"])
