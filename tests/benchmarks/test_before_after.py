"""before_after.py: a slower version loses, a faster one wins, and each figure says of which code it is."""

import sys

import pytest

import before_after
from before_after import Turn, Worker, summary, take_turns

CHILD = """
import json, sys, time
print(json.dumps({"package": "", "isa": ""}), flush=True)
for line in sys.stdin:
    calls = int(line.split()[1])
    cpu, begin = time.process_time(), time.perf_counter()
    for _ in range(calls * int(sys.argv[1])):
        sum(range(50_000))
    took = {"wall_s": (time.perf_counter() - begin) / calls, "cpu_s": (time.process_time() - cpu) / calls}
    print(json.dumps(took), flush=True)
"""


@pytest.mark.parametrize(("before", "after"), [(1, 8), (8, 1)])
def test_the_side_that_does_more_work_loses(tmp_path, before, after):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    make = {
        side: lambda work=work: Worker([sys.executable, str(script), str(work)], 2)
        for side, work in (("before", before), ("after", after))
    }
    found = take_turns(make, rounds=3, sessions=2)
    assert (found["cpu_s"]["before_over_after"].median > 1) == (before > after)
    assert len(found["wall_s"]["by_session"]) == 2


def test_ratios_are_taken_within_rounds_and_sessions():
    turns = {
        "before": [Turn(2.0, 1.0), Turn(20.0, 1.0), Turn(3.0, 1.0), Turn(3.0, 1.0)],
        "after": [Turn(1.0, 2.0), Turn(10.0, 2.0), Turn(1.0, 2.0), Turn(1.0, 2.0)],
    }
    found = summary(turns, rounds=2)
    assert found["wall_s"]["by_session"] == [2.0, 3.0]
    assert found["cpu_s"]["before_over_after"].median == 0.5


def test_a_child_that_dies_is_an_error():
    with pytest.raises(SystemExit):
        Worker([sys.executable, "-c", "raise SystemExit(3)"], 1)


@pytest.mark.slow
def test_runs_with_the_same_installation_twice(bench):
    words = ("--before", sys.executable, "--workloads", "sampler", "import", "--graph", "tiny", "--rounds", "1")
    entries = bench("before_after", *words, "--sessions", "1", "--bar", "0")
    assert set(entries) == {"sampler", "import"}
    for entry in entries.values():
        assert entry["result"]["before"]["checksum"] == entry["result"]["after"]["checksum"]
        assert entry["result"]["wall_s"]["before_over_after"]["median"] > 0


def test_a_slower_version_is_exit_status_1(bench):
    """No version is a thousand times as fast as itself."""
    words = ("--before", sys.executable, "--workloads", "import", "--rounds", "1", "--sessions", "1", "--bar", "1000")
    bench("before_after", *words, status=1)


def test_every_workload_is_one_that_a_side_can_start():
    named = {*before_after.CALLS, *before_after.COMMANDS, *before_after.RUNS, "list", "submit"}
    assert set(before_after.WORKLOADS) == named
