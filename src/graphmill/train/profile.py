"""Profile the steps of a rank: graphmill's spans over some steps, then a trace of torch's profiler over a few more.

Nothing that is computed changes. All ranks count the same steps, so they begin, and write, together.
"""

import logging
import os
import platform
import resource
import socket
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import psutil
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from graphmill import __version__
from graphmill.base.files import write_text
from graphmill.base.json_text import parse_json
from graphmill.base.retries import is_there, retried
from graphmill.record.phases import (
    MERGED_FILE,
    PHASES_FILE,
    Profile,
    RankPhases,
    SpanRecord,
    StepSpan,
    summarised,
    write_profile,
)
from graphmill.record.run_folder import RunFolder
from graphmill.record.traces import PREFIX, Trace, bounded, merge, num_operators, operators_of, trace_of, write_trace
from graphmill.runtime.machine import machine_info
from graphmill.runtime.spans import Name
from graphmill.runtime.stop import StopRequest
from graphmill.spec.differences import flat
from graphmill.spec.plan import Plan
from graphmill.spec.profiler import ProfilePlan
from graphmill.sync.group import MIB, Group
from graphmill.train.memory_snapshot import memory_snapshot

_log = logging.getLogger(__name__)

_ON_THE_DEVICE: Final[tuple[Name, ...]] = ("forward", "backward", "optimizer")
_MERGED_MIB: Final = 1024.0  # before compression; browsers hold no larger trace
_UNREAD: Final = 8  # times train.profiler.max_mib: a larger trace is not even read to be cut


@dataclass(frozen=True, slots=True)
class _Busy:
    """Seconds of cores that were used so far."""

    at: float
    own_s: float  # by this process
    host_s: float  # by all of the host

    @classmethod
    def now(cls) -> "_Busy":
        times = psutil.cpu_times()  # type: ignore[no-untyped-call]  # psutil leaves it unannotated
        return cls(time.perf_counter(), time.process_time(), sum(times) - times.idle - getattr(times, "iowait", 0.0))

    def cores_until(self, later: "_Busy", whose: Literal["own_s", "host_s"]) -> float:
        took_s = later.at - self.at
        return float(getattr(later, whose) - getattr(self, whose)) / took_s if took_s else 0.0


@dataclass(slots=True)
class StepProfile:
    """The profile of one rank's attempt. `step_ended` is called after every step, by all ranks alike."""

    profile_plan: ProfilePlan
    plan: Plan
    group: Group
    run: RunFolder
    stop: StopRequest
    paused: Callable[[], AbstractContextManager[None]]  # what is done within is no time of the epoch
    alive: Callable[[], None]
    _spans: list[SpanRecord] = field(default_factory=list)
    _threads: dict[int, str] = field(default_factory=dict)
    _ends: list[float] = field(default_factory=list)  # of steps
    _busy: list["_Busy"] = field(default_factory=list)  # after the first step, and after the last that was timed
    _profiler: profile | None = None
    _snapshot: AbstractContextManager[None] | None = None
    _zero: float = 0.0

    def begin(self) -> None:
        """Listen to the rank's spans from here on, unless an earlier attempt has made the profile."""
        made = [int(is_there(self.run.profile_dir / PHASES_FILE))]
        if any(found[0] for found in self.group.gather_numbers(made)):
            return
        self.group.spans.listeners.append(self._heard)
        self.group.spans.around = self._around

    def step_ended(self) -> None:
        """Count a step; begin to trace, or write what was traced, where that is due."""
        if self._heard not in self.group.spans.listeners:
            return
        self._ends.append(time.perf_counter())
        num_steps = len(self._ends)
        if num_steps in (1, self.profile_plan.wait):
            self._busy.append(_Busy.now())
        if num_steps == self.profile_plan.wait:
            with self.paused():
                self._begin_to_trace()
        elif self._profiler is not None:
            if num_steps == self.profile_plan.last_step:
                with self.paused():
                    self._finish()
            else:
                self._profiler.step()
                if num_steps == self.profile_plan.wait + self.profile_plan.warmup and self.profile_plan.memory_snapshot:
                    self._snapshot = memory_snapshot(self._snapshot_path)
                    self._snapshot.__enter__()

    def close(self) -> None:
        """The attempt is over. A profile that is not complete leaves no file."""
        if self._heard not in self.group.spans.listeners:
            return
        self._stop_listening()
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None
        if self._snapshot is not None:
            self._snapshot.__exit__(None, None, None)
            self._snapshot_path.unlink(missing_ok=True)
        if self.group.rank == 0:
            _log.warning(
                f"the attempt ended after {len(self._ends)} steps, before its profile was complete"
                f" ({self.profile_plan.last_step}): there is none"
            )

    def _heard(self, name: Name, began: float, ended: float) -> None:
        number = threading.get_native_id()
        self._threads.setdefault(number, threading.current_thread().name)
        self._spans.append(SpanRecord(name, number, began, ended))

    @contextmanager
    def _around(self, name: Name) -> Iterator[None]:
        """Name the span in torch's trace, too. A phase on a GPU ends when the GPU has done it."""
        with record_function(PREFIX + name):
            yield
            if self.group.device.type == "cuda" and name in _ON_THE_DEVICE:
                torch.cuda.synchronize(self.group.device)

    def _stop_listening(self) -> None:
        self.group.spans.listeners.remove(self._heard)
        self.group.spans.around = None

    def _begin_to_trace(self) -> None:
        profile_plan, is_cuda = self.profile_plan, self.group.device.type == "cuda"
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # it prints when it begins and ends
        self._profiler = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])],
            schedule=schedule(wait=0, warmup=profile_plan.warmup, active=profile_plan.steps, repeat=1),
            record_shapes=profile_plan.shapes,
            profile_memory=profile_plan.memory,
            with_stack=profile_plan.stacks,
        )
        self._profiler.start()
        if is_cuda:
            torch.cuda.reset_peak_memory_stats(self.group.device)
        self._zero = self._moment()

    def _moment(self) -> float:
        """One moment by every rank's own clock; on one host all ranks have the same clock."""
        self.group.barrier()
        now = time.perf_counter()
        first = self.group.gather_numbers([time.perf_counter_ns()])[0][0]
        return first / 1e9 if self.plan.hosts == 1 else now

    def _finish(self) -> None:
        assert self._profiler is not None
        self._stop_listening()
        if self._snapshot is not None:
            self._snapshot.__exit__(None, None, None)
        with tempfile.TemporaryDirectory(prefix="graphmill-profile-") as folder:
            raw = Path(folder) / "trace.json"
            self._profiler.stop()
            self._profiler.export_chrome_trace(str(raw))
            self._profiler = None
            self.alive()
            found = self._of_rank(raw)
        write_text(self._part(self.group.rank), found.model_dump_json())
        self.group.barrier()
        if self.group.rank == 0:
            self._merge()
        self.group.barrier()
        if self.profile_plan.ends_run:
            self.stop.ask("the profile is complete")

    def _of_rank(self, raw: Path) -> RankPhases:
        own = threading.get_native_id()
        rank, host = self.group.rank, socket.gethostname()
        steps = self._steps(own)
        # The first step makes the plans of kernels.
        timed = steps[1 : self.profile_plan.wait] or steps[: self.profile_plan.wait]
        traced = steps[-self.profile_plan.steps :]
        step, phases = summarised(self._spans, timed, thread=own)
        traced_step, _ = summarised(self._spans, traced, thread=own)
        trace = self._trace(raw, rank=rank, host=host, thread=own)
        path = self.run.trace_path(rank)
        operators = () if trace is None else operators_of(trace.events, thread=own)
        calls = 0.0 if trace is None else num_operators(trace.events) / len(traced)
        peaks = self._peaks_mib(trace)
        if trace is not None:
            lines = bounded(trace, self.profile_plan.max_mib)
            write_trace(path, trace.header, lines)
        notes = (self._unread(raw),) if trace is None else tuple(trace.notes)
        return RankPhases(
            rank=rank,
            host=host,
            num_steps=len(timed),
            step=step,
            phases=tuple(phases),
            num_traced=len(traced),
            traced_step=traced_step,
            operators=operators,
            calls=calls,
            cores_busy=self._busy[0].cores_until(self._busy[-1], "own_s"),
            host_cores_busy=self._busy[0].cores_until(self._busy[-1], "host_s"),
            peaks_mib=peaks,
            trace="" if trace is None else path.name,
            notes=notes,
        )

    def _steps(self, thread: int) -> list[StepSpan]:
        """Spans of the steps, each from the wait for a batch to the end of the step."""
        waits = sorted(span.began for span in self._spans if span.name == "wait" and span.thread == thread)
        found, place = [], 0
        for ended in self._ends:
            found.append(StepSpan(min(waits[place], ended) if place < len(waits) else ended, ended))
            place = bisect_left(waits, ended)
        return found

    def _trace(self, raw: Path, *, rank: int, host: str, thread: int) -> Trace | None:
        if raw.stat().st_size > _UNREAD * self.profile_plan.max_mib * MIB:
            return None
        written = parse_json(raw.read_bytes())
        return trace_of(written, self._spans, self._threads, rank=rank, host=host, zero=self._zero, thread=thread)

    def _unread(self, raw: Path) -> str:
        size = raw.stat().st_size / MIB
        return (
            f"the trace had {size:,.0f} MiB, more than {_UNREAD} times train.profiler.max_mib, and is left out: fewer"
            " train.profile_steps, or no train.profiler.stacks"
        )

    def _peaks_mib(self, trace: Trace | None) -> dict[str, float]:
        found = {"process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        if self.group.device.type == "cuda":
            found["tensors on the GPU, traced steps"] = torch.cuda.max_memory_allocated(self.group.device) / MIB
        held = [_held(event) for event in (trace.events if trace is not None else ()) if event["name"] == "[memory]"]
        if held:
            found["tensors allocated in traced steps"] = max(held) / MIB
        return found

    def _merge(self) -> None:
        """Rank 0, once all have written: the merged trace, and last the document that makes the profile whole."""
        parts = [
            RankPhases.model_validate_json(retried(self._part(rank), Path.read_bytes))
            for rank in range(self.group.world_size)
        ]
        traced = [part for part in parts if part.trace]
        left_out = []
        if traced:
            paths = [self.run.profile_dir / part.trace for part in traced]
            left_out = merge(paths, self.run.profile_dir / MERGED_FILE, max_mib=_MERGED_MIB, between=self.alive)
        kind = self.plan.kind
        found = Profile(
            run_id=self.plan.run_id,
            plan=flat(self.plan),
            kind=kind.name,
            seeds_are=kind.seeds_are,
            num_cores=machine_info(os.environ).num_cores,
            versions={"graphmill": __version__, "torch": torch.__version__, "python": platform.python_version()},
            ranks=tuple(parts),
            not_merged=tuple(traced[place].rank for place in left_out),
        )
        write_profile(self.run.profile_dir, found)
        for rank in range(self.group.world_size):
            self._part(rank).unlink(missing_ok=True)

    @property
    def _snapshot_path(self) -> Path:
        return self.run.profile_dir / f"rank_{self.group.rank}.memory.pickle"

    def _part(self, rank: int) -> Path:
        """What a rank hands to rank 0."""
        return self.run.profile_dir / f".rank_{rank}.phases.json"


def _held(event: dict[str, Any]) -> float:
    return float(event["args"].get("Total Allocated", 0))
