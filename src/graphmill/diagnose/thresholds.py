"""What a run is judged by: the shares of its time and memory from which on something holds it back.

A module of its own, and light: the help of `graphmill bottleneck` shows them.
"""

from typing import Final, Literal

Bound = Literal["compute", "loader", "sync", "memory", "imbalance", "evaluation", "others"]
"""What holds a run back; others: processes that are not the run's, where they took cores that its threads lacked."""

NEARLY_FULL: Final = 0.9
"""Of memory, cores, time: more than this share was used, and the next run may not fit."""
WAIT_SHARE: Final = 0.15
SYNC_SHARE: Final = 0.25
EVALUATION_SHARE: Final = 0.3
IMBALANCE_SHARE: Final = 0.1
"""Of the time: what the average rank loses by waiting for the slowest one."""
OPTIMIZER_SHARE: Final = 0.2
COPY_SHARE: Final = 0.1
OTHER_SHARE: Final = 0.15
"""Of a step: the update, the start of copies to the GPU, and what lies in no phase."""
OPERATOR_SHARE: Final = 0.4
"""Of a step: one operator in one phase takes more, and it is the one to look at."""
SMALL_CALL_S: Final = 20e-6
MANY_CALLS: Final = 300
"""More operators than this a step that take less than this each: their dispatch is what the step does."""
BUSY: Final = 0.7
"""Of a rank's threads: fewer busy cores than this while it computes, and its operations are too small for them."""
OTHERS_CORES: Final = 0.25
"""More cores than this kept busy by other processes, and the clocks are not the run's alone."""
SHORT_S: Final = 5.0
"""Less than this measured, and one pause of the machine is a tenth of it: no verdict is to be trusted."""
SEVERE: Final = 2.0
"""A finding is severe at this many times its threshold: for loading data, 15 % and 30 %."""

THRESHOLDS: Final[dict[Bound, tuple[float, str]]] = {
    "memory": (NEARLY_FULL, "peak of all ranks of a host ÷ its memory, or the job's"),
    "loader": (WAIT_SHARE, "time that steps waited for their batch, mean over ranks"),
    "sync": (SYNC_SHARE, "time in collectives, of the rank that spends least there"),
    "imbalance": (IMBALANCE_SHARE, "computing and waiting for batches: slowest rank minus mean over ranks"),
    "evaluation": (EVALUATION_SHARE, "time of evaluations"),
}
"""Bound → threshold, and what is compared with it."""


def headline(bound: Bound) -> str:
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
