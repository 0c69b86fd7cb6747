"""What a run, or the steps of its profile, are judged by: clocks of ranks, the plan, named measurements. Pure."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphmill.diagnose.thresholds import MANY_CALLS, OTHERS_CORES, SMALL_CALL_S
from graphmill.record.phases import Operator


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds of one rank, summed over epochs, or of a mean step. Making batches (sample, gather) may overlap it."""

    rank: int
    train_s: float
    compute_s: float
    wait_s: float
    sync_s: float
    sample_s: float = 0.0
    gather_s: float = 0.0

    @property
    def work_s(self) -> float:
        """Seconds until the rank meets the other ranks."""
        return self.compute_s + self.wait_s


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a run, or of the timed and traced steps of its profile.

    `use` has by name what was measured. Of the busiest or fullest host: cores; ranks_cores and others_cores, that its
    ranks and that other processes kept busy; memory_used_mib of all its ranks, memory_total_mib that there is or the
    job may use. Of all: gpu_busy_percent. Of steps: copy, optimizer and other, as shares of a step; steps_cores, that
    the ranks kept busy; calls of operators; computing_s, forward and backward.
    """

    clocks: tuple[Clock, ...]  # of every rank; of rank 0 alone if the events lack those of the others
    eval_s: float
    warms_up: bool  # the sums hold the first epoch, for there is no other
    plan: Mapping[str, Any]  # by dotted name
    use: Mapping[str, float]
    operators: Mapping[str, tuple[tuple[Operator, float], ...]] | None = None
    """Of forward and backward, with shares of a step; None: epochs were measured, and not steps."""

    @property
    def total_s(self) -> float:
        """Seconds of training (of the slowest rank) and evaluation."""
        return max(clock.train_s for clock in self.clocks) + self.eval_s

    @property
    def cores(self) -> int | None:
        """Cores of a host; None: not measured."""
        return int(self.use["cores"]) if "cores" in self.use else None

    @property
    def ranks_per_host(self) -> int:
        """Ranks on each host that has ranks."""
        return int(self.plan["ranks"] // self.plan["hosts"])

    @property
    def threads_per_host(self) -> int:
        """Threads of all ranks of a host."""
        return int(self.plan["threads"] * self.ranks_per_host)

    @property
    def others_cores(self) -> float:
        """Cores that other processes kept busy; 0 where that was not measured."""
        return self.use.get("others_cores", 0.0)

    @property
    def is_crowded(self) -> bool:
        """Whether the ranks of a host have more threads than it has cores."""
        return self.cores is not None and self.threads_per_host > self.cores

    @property
    def lacks_cores(self) -> bool:
        """Whether others took cores that threads of the ranks would have used: that comes before all advice."""
        others, cores = self.others_cores, self.cores
        return (
            self.plan["device"] == "cpu"
            and cores is not None
            and others > OTHERS_CORES
            and self.threads_per_host + others > cores + OTHERS_CORES
        )

    @property
    def reachable_cores(self) -> float:
        """Cores that the threads of a host's ranks could keep busy."""
        wanted = self.threads_per_host
        return min(wanted, self.cores or wanted) - self.others_cores

    def shares(self) -> dict[str, float]:
        """Shares of the time: compute, loader, sync, evaluation, the rest, and imbalance; memory, of what there is."""
        total, clocks, mean = self.total_s, self.clocks, statistics.fmean
        work = [clock.work_s for clock in clocks]
        shares = {
            "compute": mean(clock.compute_s for clock in clocks) / total,
            "loader": mean(clock.wait_s for clock in clocks) / total,
            "sync": min(clock.sync_s for clock in clocks) / total,
            "evaluation": self.eval_s / total,
        }
        parts = mean(clock.work_s + clock.sync_s for clock in clocks) + self.eval_s
        shares["rest"] = max(0.0, 1 - parts / total)
        if len(clocks) > 1:
            shares["imbalance"] = max(0.0, max(work) - mean(work)) / total  # equal ranks: the mean may round above them
        if "memory_used_mib" in self.use and self.use.get("memory_total_mib"):
            shares["memory"] = self.use["memory_used_mib"] / self.use["memory_total_mib"]
        return shares

    @property
    def longest_operator(self) -> tuple[str, float]:
        """The one that takes most, and its share of a step; an operator and its backward are one."""
        sums = {name: sum(share for _, share in parts) for name, parts in (self.operators or {}).items()}
        return max(sums.items(), key=lambda item: item[1], default=("", 0.0))

    def values(self) -> dict[str, float]:
        """What the rules compare with their thresholds: the shares, and what was measured of cores and of steps."""
        values, use = self.shares(), self.use
        values |= {name: use[name] for name in ("copy", "optimizer", "other") if name in use}
        values["operator"] = self.longest_operator[1]
        calls = use.get("calls", 0.0)
        values["dispatch"] = calls if calls >= MANY_CALLS and use["computing_s"] / calls <= SMALL_CALL_S else 0.0
        if self.plan["device"] == "cpu":
            cores, wanted, reachable = self.cores, self.threads_per_host, self.reachable_cores
            busy = use.get("steps_cores", use.get("ranks_cores"))
            values["threadless"] = (cores - wanted) / cores if cores else 0.0
            values["idle"] = 1 - busy / reachable if busy is not None and reachable > 0 else 0.0
        return values
