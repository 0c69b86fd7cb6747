"""Read trace files as the Trace Event Format says, and refuse what viewers stumble over."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

_OF_PHASE = {
    "X": {"dur"},  # a complete event
    "i": {"s"},  # an instant
    "s": {"id", "cat"},  # a flow begins
    "f": {"id", "cat"},  # and ends
    "M": {"args"},  # metadata
}


def assert_trace(path: Path, *, ends_of_flows: bool = True) -> dict[str, Any]:
    """The document in a file, which is a trace; `ends_of_flows`: every flow that begins ends."""
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_constant=_refuse)
    assert document["displayTimeUnit"] in ("ms", "ns")
    events = document["traceEvents"]
    for event in events:
        assert event["ph"] in _OF_PHASE, event
        assert _OF_PHASE[event["ph"]] <= event.keys(), event
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int, event
        assert event["pid"] > 0
        assert type(event["tid"]) is int, event
        assert isinstance(event["ts"], int | float), event
        assert event.get("dur", 0) >= 0, event
    named = {event["pid"] for event in events if event["name"] == "process_name"}
    assert {event["pid"] for event in events} == named, "every process has a name"
    if ends_of_flows:
        ends = [Counter((e["cat"], e["id"]) for e in events if e["ph"] == phase) for phase in "sf"]
        assert ends[0] == ends[1]
    return document


def nested_spans(events: list[dict[str, Any]], pid: int, tid: int) -> None:
    """What viewers draw as one stack must be one: complete events of a thread contain each other, or do not meet."""
    own = sorted(
        ((e["ts"], e["ts"] + e["dur"]) for e in events if (e["ph"], e["pid"], e["tid"]) == ("X", pid, tid)),
        key=lambda each: (each[0], -each[1]),
    )
    stack: list[float] = []
    for begin, end in own:
        while stack and stack[-1] <= begin + 0.01:  # µs: events are rounded to thousandths
            stack.pop()
        assert not stack or end <= stack[-1] + 0.01
        stack.append(end)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
