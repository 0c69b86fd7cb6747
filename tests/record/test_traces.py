"""Trace files, from events as torch writes them: one clock, ids that no other rank has, a bounded size; merged."""

import gzip
import json
from pathlib import Path

import pytest
from trace_format import assert_trace

from graphmill.record.phases import SpanRecord
from graphmill.record.traces import Trace, bounded, merge, operators_of, trace_of, write_trace

PID, MAIN, BEHIND = 4711, 4711, 4715
AHEAD_US = 5e12  # torch's clock
ZERO = 100.0  # s, by ours


def event(name: str, at: float, dur: float, cat: str = "cpu_op", **more) -> dict:
    """As torch writes it; `at`: s by our clock, `dur`: µs."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": PID,
        "tid": MAIN,
        "ts": at * 1e6 + AHEAD_US,
        "dur": dur,
        "args": {},
        **more,
    }


def raw_trace() -> dict:
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 3, "pid": PID, "tid": MAIN, "ts": AHEAD_US + ZERO * 1e6}
    events = [
        {"ph": "M", "name": "process_name", "ts": AHEAD_US, "pid": PID, "tid": 0, "args": {"name": "python"}},
        event("ProfilerStep#3", 100.0, 900.0, "user_annotation"),
        event("graphmill::step", 100.0001, 800.0, "user_annotation"),
        event("graphmill::forward", 100.0001, 300.0, "user_annotation"),
        event("aten::linear", 100.00015, 200.0, args={"Input Dims": [[2, 2]]}),
        event("aten::mm", 100.0002, 120.0),
        event("graphmill::backward", 100.0005, 300.0, "user_annotation"),
        event("aten::mm", 100.00055, 40.0),
        {**event("Profiler", 99.9, 1e6, "Trace"), "pid": "Spans", "tid": "PyTorch Profiler"},
        {"ph": "s", **flow},
        {"ph": "f", "bp": "e", **flow},
    ]
    return {"schemaVersion": 1, "baseTimeNanoseconds": 7, "traceName": "/a/path", "traceEvents": events}


SPANS = [
    SpanRecord("forward", MAIN, 99.0, 99.1),  # of a step before the traced ones
    SpanRecord("forward", MAIN, 100.0001, 100.0004),
    SpanRecord("backward", MAIN, 100.0005, 100.0008),
    SpanRecord("step", MAIN, 100.0001, 100.0009),
    SpanRecord("sample", BEHIND, 90.0, 91.0),
    SpanRecord("sample", BEHIND, 100.0002, 100.0006),
]


def traced(rank: int = 0) -> Trace:
    return trace_of(raw_trace(), SPANS, {BEHIND: "behind"}, rank=rank, host="h", zero=ZERO, thread=MAIN)


def named(trace: Trace, name: str) -> list[dict]:
    return [event for event in trace.events if event["name"] == name]


def test_it_is_on_our_clock_and_names_ranks_and_threads():
    trace = traced(rank=2)
    (forward,) = named(trace, "graphmill::forward")
    assert forward["ts"] == pytest.approx(100.0, abs=0.01)  # µs after ZERO; torch's clock has steps of 1 / 1024 µs here
    assert "traceName" not in trace.header, "a path"
    names = {event["args"]["name"] for event in named(trace, "process_name") + named(trace, "thread_name")}
    assert names == {"rank 2 on h", "rank 2 on h, profiler: Spans", "step", "behind"}


def test_spans_of_threads_that_torch_does_not_record_are_added():
    (sample,) = named(traced(), "graphmill::sample")
    assert (sample["tid"], sample["ph"]) == (BEHIND, "X")
    assert sample["ts"] == pytest.approx(200.0, abs=0.01)
    assert sample["dur"] == pytest.approx(400.0, abs=0.01)


def test_a_thread_that_torch_records_is_not_there_twice():
    raw = raw_trace()
    raw["traceEvents"].append(event("graphmill::sample", 100.0002, 400.0, "user_annotation", tid=BEHIND))
    trace = trace_of(raw, SPANS, {}, rank=0, host="h", zero=ZERO, thread=MAIN)
    assert len(named(trace, "graphmill::sample")) == 1


def test_without_a_span_in_common_there_is_no_clock():
    with pytest.raises(ValueError, match="clock"):
        trace_of(raw_trace(), [], {}, rank=0, host="h", zero=ZERO, thread=MAIN)


def test_operators_have_their_own_time_and_the_phase_they_lie_in():
    found = {(each.name, each.phase): each for each in operators_of(traced().events, thread=MAIN)}
    assert {key: round(each.self_s * 1e6) for key, each in found.items()} == {
        ("aten::mm", "forward"): 120,
        ("aten::linear", "forward"): 80,
        ("aten::mm", "backward"): 40,
    }
    assert found["aten::mm", "forward"].calls == 1


def test_one_slow_step_does_not_make_an_operator_slow():
    events = []
    for step, took in enumerate((10.0, 11.0, 500.0)):
        at = 1000.0 * step
        mark = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": at, "dur": 900.0}
        events += [{**mark, "name": "graphmill::step"}, {**mark, "name": "graphmill::forward"}]
        events.append({**mark, "cat": "cpu_op", "name": "aten::mm", "dur": took})
    (found,) = operators_of(events, thread=1)
    assert (found.self_s, found.calls) == (pytest.approx(11e-6), 1)


def test_kernels_of_a_gpu_are_told_apart_from_operators():
    trace = traced()
    trace.events.append({**named(trace, "aten::linear")[0], "cat": "kernel", "name": "gemm", "dur": 50.0})
    (kernel,) = [each for each in operators_of(trace.events, thread=MAIN) if each.device]
    assert (kernel.name, kernel.phase) == ("gemm", "forward")


def written(folder: Path, rank: int, trace: Trace, max_mib: float = 1.0) -> Path:
    path = folder / f"rank_{rank}.pt.trace.json.gz"
    write_trace(path, trace.header, bounded(trace, max_mib))
    return path


def test_files_are_traces_and_the_merged_one_is_all_of_them(tmp_path):
    paths = [written(tmp_path, rank, traced(rank)) for rank in (0, 1)]
    merged = tmp_path / "merged.trace.json.gz"
    assert merge(paths, merged, max_mib=1, between=lambda: None) == []
    parts = [assert_trace(path) for path in paths]
    whole = assert_trace(merged)
    assert whole["traceEvents"] == [event for part in parts for event in part["traceEvents"]]
    ids = [{event["pid"] for event in part["traceEvents"]} for part in parts]
    assert not ids[0] & ids[1]
    flows = [{event["id"] for event in part["traceEvents"] if event["ph"] == "s"} for part in parts]
    assert not flows[0] & flows[1]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_merged_file_that_would_be_too_large_leaves_ranks_out_and_says_which(tmp_path):
    paths = [written(tmp_path, rank, traced(rank)) for rank in (0, 1, 2)]
    merged = tmp_path / "merged.trace.json.gz"
    assert merge(paths, merged, max_mib=0.001, between=lambda: None) == [1, 2]
    assert assert_trace(merged)["traceEvents"] == assert_trace(paths[0])["traceEvents"]


def test_a_trace_within_the_limit_is_whole():
    trace = traced()
    assert len(bounded(trace, 1.0)) == len(trace.events)
    assert trace.notes == []


def test_a_large_trace_loses_calls_then_shapes_then_the_shortest_events(tmp_path):
    call = {**event("torch.nn.linear", 100.0, 5.0, "python_function"), "args": {"Call stack": "x" * 2000}}
    shaped = [{**event("aten::add", 100.0, float(number)), "args": {"Input Dims": [[0] * 50]}} for number in range(100)]

    def large() -> Trace:
        raw = raw_trace()
        raw["traceEvents"] += [*(dict(call) for _ in range(20)), *(json.loads(json.dumps(each)) for each in shaped)]
        return trace_of(raw, SPANS, {}, rank=0, host="h", zero=ZERO, thread=MAIN)

    def cut(limit_kib: float) -> tuple[Trace, dict]:
        trace = large()
        path = written(tmp_path, 0, trace, limit_kib / 1024)
        found = assert_trace(path, ends_of_flows=False)
        assert len(gzip.decompress(path.read_bytes())) <= (limit_kib + 1) * 1024  # the header is not counted
        return trace, found

    trace, found = cut(40)
    assert [note.split(" ")[0] for note in trace.notes] == ["Python"]
    assert all(event.get("cat") != "python_function" for event in found["traceEvents"])
    trace, found = cut(20)
    assert [note.split(" ")[0] for note in trace.notes] == ["Python", "shapes"]
    assert len([each for each in found["traceEvents"] if each["name"] == "aten::add"]) == 100
    trace, found = cut(8)
    assert "events were cut" in trace.notes[-1]
    kept = [each["dur"] for each in found["traceEvents"] if each["name"] == "aten::add"]
    assert kept == [float(number) for number in range(100 - len(kept), 100)], "the longest"
    assert {"graphmill::forward", "graphmill::sample", "process_name"} <= {
        each["name"] for each in found["traceEvents"]
    }
