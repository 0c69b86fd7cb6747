"""Trace files: what torch's profiler wrote of a rank, on the clock of all ranks, with graphmill's spans; merged.

The Trace Event Format, as TensorBoard's plugin and Perfetto read it. A rank's file has one event a line, so that the
merged file is a concatenation, whatever its size.
"""

import gzip
import io
import json
import re
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from graphmill.base.files import replacing
from graphmill.base.packed import open_packed
from graphmill.record.phases import Operator, SpanRecord

Event = dict[str, Any]
PREFIX: Final = "graphmill::"
"""Of the names of spans, in traces."""
_US: Final = 1e6
_OF_A_RANK: Final = 100_000  # ids of processes that a rank may have in the merged trace
_FLOWS_OF_A_RANK: Final = 1 << 32
_NAMES_OF_PROCESSES: Final = ("process_name", "process_sort_index")
_FLOW: Final = ("s", "t", "f")
_SPANS: Final = "user_annotation"
_KERNELS: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_OPERATOR: Final = "cpu_op"
_CALLS: Final = "python_function"
_SHAPES: Final = ("Input Dims", "Input Strides", "Input type", "Concrete Inputs", "Call stack")
_MOST_OPERATORS: Final = 40
_OF_A_LIBRARY: Final = re.compile(r"GeneratedBackwardFor_(graphmill)_(.+)_default(Backward)?")
"""How torch calls an operator of ours inside itself, where it computes."""


@dataclass(slots=True)
class Trace:
    """The events of one rank, and the other keys of its file."""

    header: dict[str, Any]
    events: list[Event]
    notes: list[str] = field(default_factory=list)  # what was cut


def trace_of(
    raw: dict[str, Any],
    spans: Sequence[SpanRecord],
    threads: Mapping[int, str],
    *,
    rank: int,
    host: str,
    zero: float,
    thread: int,
) -> Trace:
    """What torch wrote as the trace of a rank; `zero`: the moment by this rank's clock that is 0 on all ranks.

    Torch records the thread that computes. Spans of other threads (`threads`: their names) are added, by their own
    clock: the two are compared by the spans that both have.
    """
    events: list[Event] = raw.pop("traceEvents")
    shift = _shift_us(events, spans, thread)
    known = {(event.get("tid"), event["name"]) for event in events if event.get("cat") == _SPANS}
    for event in events:
        event["ts"] = round(event["ts"] - shift - zero * _US, 3)
    timed = [event for event in events if event["ph"] == "X" and event.get("cat") == _SPANS]
    begin = min(event["ts"] for event in timed)
    end = max(event["ts"] + event["dur"] for event in timed)
    added = [span for span in spans if (span.thread, PREFIX + span.name) not in known]
    pid = next(event["pid"] for event in timed)
    events += _added(added, threads, pid, zero=zero, begin=begin, end=end)
    _name_threads(events, threads, pid, thread)
    _renumber(events, pid, rank, host)
    header = {**raw, "baseTimeNanoseconds": 0, "displayTimeUnit": "ms"}
    header.pop("traceName", None)  # a path
    return Trace(header, events)


def _shift_us(events: Iterable[Event], spans: Sequence[SpanRecord], thread: int) -> float:
    """What torch's clock is ahead of ours, by the spans that both recorded: the median."""
    of_torch: defaultdict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == _SPANS and event["name"].startswith(PREFIX):
            of_torch[event["name"].removeprefix(PREFIX)].append(event["ts"])
    ahead = []
    for name, times in of_torch.items():
        ours = [span.began * _US for span in spans if span.name == name and span.thread == thread]
        last = ours[len(ours) - len(times) :] if len(ours) >= len(times) else []
        ahead += [theirs - own for theirs, own in zip(sorted(times), sorted(last), strict=False)]
    if not ahead:
        raise ValueError("torch's trace has no span of graphmill's, so its clock is not known")
    return statistics.median(ahead)


def _added(
    spans: Iterable[SpanRecord], threads: Mapping[int, str], pid: object, *, zero: float, begin: float, end: float
) -> list[Event]:
    """Events of spans that touch the traced time, and the names of their threads."""
    found: list[Event] = []
    for span in spans:
        ts, dur = (span.began - zero) * _US, (span.ended - span.began) * _US
        if ts + dur < begin or ts > end:
            continue
        place = {"pid": pid, "tid": span.thread, "ts": round(ts, 3)}
        found.append({"ph": "X", "cat": _SPANS, "name": PREFIX + span.name, **place, "dur": round(dur, 3), "args": {}})
    return found


def _name_threads(events: list[Event], threads: Mapping[int, str], pid: object, thread: int) -> None:
    """Threads that have spans of ours, with the one that computes on top."""
    ours = dict.fromkeys(
        event["tid"] for event in events if event.get("cat") == _SPANS and event["name"].startswith(PREFIX)
    )
    named = {(pid, number) for number in ours}
    events[:] = [event for event in events if event["ph"] != "M" or (event["pid"], event.get("tid")) not in named]
    for number in ours:
        place = {"ph": "M", "pid": pid, "tid": number, "ts": 0}
        name = "step" if number == thread else threads.get(number, "thread")
        events.append({"name": "thread_name", **place, "args": {"name": name}})
        events.append({"name": "thread_sort_index", **place, "args": {"sort_index": 0 if number == thread else 1}})


def _renumber(events: list[Event], main: object, rank: int, host: str) -> None:
    """Give processes, threads and flows ids that no other rank has: numbers, as both viewers want them."""
    first = (rank + 1) * _OF_A_RANK  # no process is 0: viewers take that for the idle one
    pids: dict[object, int] = {main: first}
    tids: dict[object, int] = {}
    for event in events:
        pid, tid = event.get("pid", main), event.get("tid", 0)
        event["pid"] = pids.setdefault(pid, first + len(pids))
        event["tid"] = tid if isinstance(tid, int) else tids.setdefault(tid, len(tids) + 1)
        if event["ph"] in _FLOW:
            event["id"] = rank * _FLOWS_OF_A_RANK + int(event["id"])
    events[:] = [event for event in events if event["name"] not in _NAMES_OF_PROCESSES]
    for pid, number in pids.items():
        what = "" if pid == main else f", GPU {pid}" if isinstance(pid, int) else f", profiler: {pid}"
        place = {"ph": "M", "pid": number, "tid": 0, "ts": 0}
        events.append({"name": "process_name", **place, "args": {"name": f"rank {rank} on {host}{what}"}})
        events.append({"name": "process_sort_index", **place, "args": {"sort_index": number}})


def bounded(trace: Trace, max_mib: float) -> list[str]:
    """The lines of a trace's events, less than so much; what is cut for that is noted."""
    limit = max_mib * 2**20
    cuts: tuple[tuple[str, Callable[[list[Event]], list[Event]]], ...] = (
        ("", list),
        ("Python calls", _without_calls),
        ("shapes and stacks", _without_shapes),
    )
    lines: list[str] = []
    for what, cut in cuts:
        before = len(trace.events), sum(len(line) for line in lines)
        trace.events = cut(trace.events)
        lines = [json.dumps(event, separators=(",", ":")) for event in trace.events]
        size = sum(len(line) + 2 for line in lines)
        if what and before != (len(lines), sum(len(line) for line in lines)):
            trace.notes.append(f"{what} were cut: the trace was larger than {max_mib:g} MiB (train.profiler.max_mib)")
        if size <= limit:
            return lines
    return _longest(trace, lines, limit, max_mib)


def _without_calls(events: list[Event]) -> list[Event]:
    return [event for event in events if event.get("cat") != _CALLS]


def _without_shapes(events: list[Event]) -> list[Event]:
    for event in events:
        for key in _SHAPES:
            event.get("args", {}).pop(key, None)
    return events


def _longest(trace: Trace, lines: Sequence[str], limit: float, max_mib: float) -> list[str]:
    """Metadata and spans, and of the rest the longest events that there is room for; flows have no ends then."""

    def weight(event: Event) -> float:
        return float("inf") if event["ph"] == "M" or event.get("cat") == _SPANS else event.get("dur", 0.0)

    kept, size = [], 0
    for index in sorted(range(len(lines)), key=lambda index: -weight(trace.events[index])):
        size += len(lines[index]) + 2
        if size > limit:
            break
        if trace.events[index]["ph"] not in _FLOW:
            kept.append(index)
    trace.notes.append(
        f"{len(lines) - len(kept):,} of {len(lines):,} events were cut, the shortest: the trace was larger than"
        f" {max_mib:g} MiB (train.profiler.max_mib)"
    )
    return [lines[index] for index in sorted(kept)]


def write_trace(path: Path, header: Mapping[str, Any], lines: Sequence[str]) -> None:
    """A trace file, whole or not at all."""
    opening = json.dumps({**header, "traceEvents": []}, separators=(",", ":")).removesuffix("]}")
    with replacing(path) as temporary, gzip.open(temporary, "wt", encoding="utf-8", compresslevel=6) as file:
        file.write(f"{opening}\n")
        file.write(",\n".join(lines))
        file.write("\n]}\n")


def merge(paths: Sequence[Path], into: Path, *, max_mib: float, between: Callable[[], None]) -> list[int]:
    """All ranks' traces as one; the places in `paths` of those that are left out, for its size.

    `between` is called after each file.
    """
    left_out, size = [], 0
    with replacing(into) as temporary, gzip.open(temporary, "wt", encoding="utf-8", compresslevel=6) as file:
        file.write('{"schemaVersion":1,"displayTimeUnit":"ms","traceEvents":[\n')
        for place, path in enumerate(paths):
            with io.TextIOWrapper(open_packed(path), encoding="utf-8") as part:
                text = part.read().partition("\n")[2].removesuffix("\n]}\n")
            if size and size + len(text) > max_mib * 2**20:
                left_out.append(place)
                continue
            file.write((",\n" if size else "") + text)
            size += len(text)
            between()
        file.write("\n]}\n")
    return left_out


def operators_of(events: Sequence[Event], *, thread: int) -> tuple[Operator, ...]:
    """Self times of operators and kernels by the phase that `thread` was in meanwhile, of a step; the longest.

    The median of the steps: where cores are shared, some operator of some step waits for one.
    """
    ours = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"].removeprefix(PREFIX))
        for event in events
        if event.get("cat") == _SPANS and event["tid"] == thread and event["name"].startswith(PREFIX)
    )
    phases = [span for span in ours if span[2] != "step"]
    begins, steps = [begin for begin, _, _ in phases], [begin for begin, _, name in ours if name == "step"]

    def phase_at(ts: float) -> str:
        place = bisect_right(begins, ts) - 1
        return phases[place][2] if place >= 0 and ts <= phases[place][1] else "step"

    found: defaultdict[tuple[str, str, bool], defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(event: Event, name: str, took_us: float, *, device: bool) -> None:
        step = bisect_right(steps, event["ts"])
        found[name, phase_at(event["ts"]), device][step].append(took_us)

    for event, self_us in _self_times(event for event in events if event.get("cat") == _OPERATOR):
        add(event, _OF_A_LIBRARY.sub(r"\1::\2", event["name"]), self_us, device=False)
    for event in events:
        if event.get("cat") in _KERNELS:
            add(event, event["name"], event["dur"], device=True)
    operators = [_operator(key, by_step, len(steps)) for key, by_step in found.items()]
    return tuple(sorted(operators, key=lambda each: -each.self_s)[:_MOST_OPERATORS])


def _operator(key: tuple[str, str, bool], by_step: Mapping[int, Sequence[float]], num_steps: int) -> Operator:
    name, phase, device = key
    sums = [sum(us) for us in by_step.values()]
    sums += [0.0] * (num_steps - len(sums))
    calls = sum(len(us) for us in by_step.values()) / num_steps
    return Operator(name=name, phase=phase, device=device, calls=calls, self_s=statistics.median(sums) / _US)


def num_operators(events: Iterable[Event]) -> int:
    """How often operators were called."""
    return sum(event.get("cat") == _OPERATOR for event in events)


def _self_times(events: Iterable[Event]) -> Iterable[tuple[Event, float]]:
    """Each event with its duration less that of the events directly inside it, on the same thread; µs."""
    by_thread: defaultdict[object, list[Event]] = defaultdict(list)
    for event in events:
        by_thread[event["tid"]].append(event)
    for own in by_thread.values():
        own.sort(key=lambda event: (event["ts"], -event["dur"]))
        self_us = [event["dur"] for event in own]
        stack: list[int] = []
        for index, event in enumerate(own):
            while stack and own[stack[-1]]["ts"] + own[stack[-1]]["dur"] <= event["ts"]:
                stack.pop()
            if stack:
                self_us[stack[-1]] -= event["dur"]
            stack.append(index)
        yield from zip(own, (max(0.0, us) for us in self_us), strict=True)
