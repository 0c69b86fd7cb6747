"""Times, bytes and loss of an epoch: collected while it runs, returned by name (see `spec.columns`) when it ends."""

import math
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch

from graphmill.base.errors import UserError
from graphmill.record.manifest import Counters, SavedStats
from graphmill.runtime.spans import Name
from graphmill.spec.columns import PRECISIONS, Cell, Measure
from graphmill.spec.plan import Plan
from graphmill.sync.group import MIB, Group, interface_bytes
from graphmill.tasks.task import Measures

Item = TypeVar("Item")


class Utilisation(Protocol):
    """How busy the machines were over a span of time; None: not measured."""

    @property
    def cpu_util_avg(self) -> float | None:
        """Percent of all cores."""

    @property
    def gpu_util_avg(self) -> float | None:
        """Percent, over the GPUs."""


@dataclass(slots=True)
class EpochStats:
    """Counters of the run so far and clocks of the epoch under way, of this rank."""

    plan: Plan
    group: Group
    num_parameters: int
    interface: str | None  # the network interface to watch; None: ranks exchange nothing, or not over a socket
    attempt: int
    num_hosts: int
    utilisation: Callable[[float, float], Utilisation] | None = None  # between two Unix times, s; None: unwatched
    earlier: Counters = field(default_factory=Counters)  # before this attempt
    before_epoch: Counters = field(default_factory=Counters)
    loss_sum: float = 0.0  # of this epoch
    earlier_s: float = 0.0  # of this epoch, in earlier attempts
    earlier_phases: dict[str, float] = field(default_factory=dict)  # of it
    num_agreed: int = 0  # syncs of this attempt after which the ranks' parameter hashes were compared and equal
    _began: float = 0.0
    _began_at: float = 0.0  # Unix time, s
    _interface_zero: int = 0  # interface bytes before the attempt, and within `excluded`
    _synced_in_steps: float = 0.0  # s of the epoch
    _zero: dict[Name, float] = field(default_factory=dict)  # seconds of every span when the epoch began

    def begin_attempt(self) -> None:
        """Count the interface's bytes from here on."""
        self._interface_zero = self._crossed()

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Exclude the interface's bytes within this block (an evaluation, a checkpoint) from training."""
        before = self._crossed()
        try:
            yield
        finally:  # an aborted evaluation has used it, too
            self._interface_zero += self._crossed() - before

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude this block from training: its time, its collectives and their bytes."""
        began, synced = time.perf_counter(), self.group.spans.seconds["sync"]
        try:
            with self.excluded():
                yield
        finally:
            self._began += time.perf_counter() - began
            self.group.spans.seconds["sync"] = synced

    def _crossed(self) -> int:
        return interface_bytes(self.interface) if self.interface else 0

    def begin_epoch(self) -> None:
        """Start the clocks of an epoch, or of what is left of one after a resume."""
        self._began, self._began_at = time.perf_counter(), time.time()
        self._synced_in_steps, self._zero = 0.0, dict(self.group.spans.seconds)

    def end_epoch(self) -> None:
        """Reset the counters of the epoch that ended."""
        self.loss_sum = self.earlier_s = 0.0
        self.earlier_phases = {}
        self.before_epoch = self.counters()

    def timed(self, batches: Iterator[Item]) -> Iterator[Item]:
        """Yield the batches; the time until each is available counts as waiting."""
        while True:
            with self.group.spans("wait"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
            del batch  # released before the next is asked for

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Time within this block counts as computing, except for that of collectives."""
        seconds = self.group.spans.seconds
        before = seconds["sync"]
        with self.group.spans("step"):
            yield
        self._synced_in_steps += seconds["sync"] - before

    def read_clocks(self) -> None:
        """Count what a device spent in collectives, of steps whose time counts as computing."""
        self._synced_in_steps += self.group.read_clocks()

    def phases(self) -> dict[str, float]:
        """Seconds of this epoch by what they were spent on, earlier attempts included."""
        now = {
            "sample_s": self._spent_s("sample"),
            "gather_s": self._spent_s("gather") + self._spent_s("collate"),
            "wait_s": self._spent_s("wait"),
            "compute_s": self._spent_s("step") - self._synced_in_steps,
            "sync_s": self._spent_s("sync"),
        }
        return {name: seconds + self.earlier_phases.get(name, 0.0) for name, seconds in now.items()}

    def _spent_s(self, name: Name) -> float:
        """Seconds in spans of that name since the epoch began, or went on."""
        return self.group.spans.seconds[name] - self._zero.get(name, 0.0)

    def counters(self) -> Counters:
        """Everything exchanged so far."""
        return Counters(
            num_syncs=self.earlier.num_syncs + self.group.traffic.num_syncs,
            payload_bytes=self.earlier.payload_bytes + self.group.traffic.payload_bytes,
            interface_bytes=self.earlier.interface_bytes + self._crossed() - self._interface_zero,
            num_agreed=self.earlier.num_agreed + self.num_agreed,
        )

    def elapsed_s(self) -> float:
        """Seconds of training in this epoch, earlier attempts included."""
        return self.earlier_s + time.perf_counter() - self._began

    def saved(self, steps_done: int, *, mid_epoch: bool) -> SavedStats:
        """What a checkpoint must hold."""
        refuse_divergence(self.loss_sum, steps_done)
        epoch_s = self.elapsed_s() if mid_epoch else 0.0
        return SavedStats(
            loss_sum=self.loss_sum,
            epoch_s=epoch_s,
            counters=self.counters(),
            before_epoch=self.before_epoch,
            spent_s=self.phases() if mid_epoch else {},
        )

    def reopen(self, saved: SavedStats) -> None:
        """Continue from the books of an earlier attempt."""
        self.loss_sum, self.earlier_s = saved.loss_sum, saved.epoch_s
        self.earlier_phases = dict(saved.spent_s)
        self.earlier, self.before_epoch = saved.counters, saved.before_epoch

    def facts(self, *, epoch: int, steps_done: int, loss: float, num_seeds: tuple[int, int]) -> dict[str, Cell]:
        """The metrics of an epoch, without its evaluation.

        `loss` is the mean over all ranks. `num_seeds`: of all ranks in this epoch, and so far.
        """
        refuse_divergence(loss, steps_done)
        plan, train_s, now = self.plan, self.elapsed_s(), self.counters()
        return {
            "run_id": plan.run_id,
            "sync_every": plan.sync.every,
            "epoch": epoch + 1,
            "loss": loss,
            "steps_done": steps_done,
            "epoch_steps": steps_done - plan.calendar.steps_done(epoch),
            "global_steps": steps_done * plan.ranks,
            "num_seeds": num_seeds[0],
            "num_seeds_cum": num_seeds[1],
            "target_global_steps": plan.last_step * plan.ranks,
            "world_size": self.group.world_size,
            "train_s": train_s,
            "sync_scheme": plan.sync.scheme,
            "seed": plan.seed,
            "num_hosts": self.num_hosts,
            "dataset": plan.dataset.name,
            "synthetic": plan.dataset.synthetic,
            "payload": plan.sync.payload,
            "seeds_per_s": num_seeds[0] / train_s,
            **self.phases(),
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "peak_gpu_mib": torch.cuda.max_memory_allocated(self.group.device) / MIB if plan.device == "cuda" else None,
            "attempt": self.attempt,
            **self._busy(),
            **self._exchanged(now),
        }

    def _busy(self) -> dict[str, Cell]:
        if self.utilisation is None:
            return {}
        found = self.utilisation(self._began_at, time.time())
        return {"cpu_util_avg": found.cpu_util_avg, "gpu_util_avg": found.gpu_util_avg}

    def _exchanged(self, now: Counters) -> dict[str, Cell]:
        before, watched = self.before_epoch, self.interface is not None
        num_syncs = now.num_syncs - before.num_syncs
        cells: dict[str, Cell] = {
            "num_syncs": num_syncs,
            "num_syncs_cum": now.num_syncs,
            "replicas_agree": now.num_agreed - before.num_agreed == num_syncs if self.group.world_size > 1 else None,
            "measured_mib_epoch": (now.payload_bytes - before.payload_bytes) / MIB,
            "measured_mib_cum": now.payload_bytes / MIB,
            "interface_mib_epoch": (now.interface_bytes - before.interface_bytes) / MIB if watched else None,
            "interface_mib_cum": now.interface_bytes / MIB if watched else None,
        }
        for name, size in PRECISIONS.items():
            mib = self.num_parameters * size / MIB
            cells[f"modelled_mib_per_sync_{name}"] = mib
            cells[f"modelled_mib_epoch_{name}"] = num_syncs * mib
            cells[f"modelled_mib_cum_{name}"] = now.num_syncs * mib
        return cells


def refuse_divergence(loss_sum: float, steps_done: int) -> None:
    """Raise `UserError` if the loss is not finite: later steps would be meaningless."""
    if not math.isfinite(loss_sum):
        raise UserError(
            f"the training loss is {loss_sum} by step {steps_done}: the run has diverged",
            fix="start a new run with a lower train.optimizer.lr, or look for huge feature values",
        )


def evaluation_facts(
    measures: Measures, best: dict[str, float], eval_s: float, known: Sequence[Measure]
) -> dict[str, Cell]:
    """The metrics that an evaluation after the epoch adds; `best`: of each measure the best so far.

    Only measures that the task has named (`known`) have columns; evaluations.csv has all that were taken.
    """
    return {
        **{f"val_{each.name}": measures.values[each.name] for each in known if each.name in measures.values},
        **{f"best_val_{name}": value for name, value in best.items()},
        "val_loss": measures.loss,
        "eval_s": eval_s,
    }
