import errno
import json
import math
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.record.events import (
    Checkpoint,
    DamagedCheckpoint,
    Epoch,
    Evaluation,
    EventWriter,
    Failure,
    Finish,
    Start,
    Stop,
    Sync,
    UnknownEvent,
    events_in,
    last_event,
)

START = Start(
    resumed=False,
    steps_done=0,
    parameters=7,
    hostname="h",
    world_size=1,
    backend=None,
    plan_hash="ab",
    process_s=1.0,
    data="/d",
)
SYNC = Sync(
    epoch=1,
    steps_done=3,
    parameter_hash="cd",
    replicas_agree=True,
    payload_bytes=np.int64(12),
    sync_s=0.5,
    loss_sum=1.5,
)
EVENTS = [
    START,
    SYNC,
    Epoch(epoch=1, steps_done=3, loss=0.5, num_seeds=9, train_s=1.0, clocks={"wait_s": 0.25}),
    Evaluation(epoch=1, set="val", measures={"micro_f1": 0.5, "loss": 1.0}),
    Checkpoint(epoch=1, step=0, steps_done=3),
    DamagedCheckpoint(checkpoint="step_3", problem="a byte differs"),
    Stop(steps_done=3, status="out_of_time"),
    Failure(message="line\u2028break\x85", exit_code=1),
    Finish(steps_done=9, status="done", seal={"metrics.csv": "00"}),
]


def bare(event):
    return event.model_copy(update={"time": 0.0, "rank": 0})


def test_events_are_appended_in_order_and_read_as_they_were_written(tmp_path):
    path = tmp_path / "events" / "rank_1.jsonl"
    for _ in range(2):
        with EventWriter(path, rank=1) as events:
            for event in EVENTS:
                events.write(event)
    read = events_in(path)
    assert [bare(event) for event in read] == EVENTS * 2
    assert {event.rank for event in read} == {1}
    assert [event.time for event in read] == sorted(event.time for event in read)
    assert events_in(path, type(EVENTS[0])) == [event for event in read if type(event) is type(EVENTS[0])]


def test_what_json_cannot_carry_becomes_text(tmp_path):
    with EventWriter(tmp_path / "e.jsonl", rank=1) as events:
        events.write(Epoch(epoch=1, steps_done=1, loss=float("nan"), num_seeds=1, train_s=float("inf"), clocks={}))
    line = json.loads((tmp_path / "e.jsonl").read_text())
    assert (line["loss"], line["train_s"]) == ("nan", "inf")
    (event,) = events_in(tmp_path / "e.jsonl")
    assert math.isnan(event.loss)
    json.loads((tmp_path / "e.jsonl").read_text(), parse_constant=pytest.fail)


def test_an_event_of_a_later_version_is_passed_over(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"time": 1.0, "rank": 0, "kind": "of a later version", "x": 1}\n')
    (event,) = events_in(path)
    assert isinstance(event, UnknownEvent)


def test_a_field_that_is_missing_is_refused_with_its_line(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"kind": "sync", "epoch": 1}\n')
    with pytest.raises(UserError, match=r"e\.jsonl:1: .*steps_done"):
        events_in(path)


def test_a_line_is_out_when_write_returns(tmp_path, source_environ):
    program = (
        "import os, sys; from pathlib import Path; from graphmill.record.events import Checkpoint, EventWriter\n"
        "EventWriter(Path(sys.argv[1]), rank=0).write(Checkpoint(epoch=1, step=0, steps_done=1))\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "e.jsonl")], env=source_environ, check=False)
    assert [event.kind for event in events_in(tmp_path / "e.jsonl")] == ["checkpoint"]


def test_a_line_that_is_taken_in_part_is_an_error(tmp_path):
    """A limit stands for the disk: a write takes what fits below it, and only the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EventWriter(tmp_path / "e.jsonl", rank=0) as events:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                events.write(SYNC)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "e.jsonl").stat().st_size == 10


@pytest.mark.parametrize("share", [0, 0.5, 1], ids=["nothing", "a part", "all"])
def test_an_event_stands_once_whatever_was_written_of_it_before_the_error(tmp_path, monkeypatch, share):
    write, failed = os.write, []

    def fails_once(fd: int, data: memoryview) -> int:
        if failed:
            return write(fd, data)
        failed.append(fd)
        write(fd, data[: int(share * len(data))])
        raise OSError(errno.EIO, "no answer")

    monkeypatch.setattr("graphmill.base.retries._WRITE_AGAIN_AFTER_S", (0.0,))
    with EventWriter(tmp_path / "e.jsonl", rank=0) as events:
        events.write(START)
        with monkeypatch.context() as failing:
            failing.setattr(os, "write", fails_once)
            events.write(SYNC)
        events.write(EVENTS[-1])
    assert failed
    assert [bare(event) for event in events_in(tmp_path / "e.jsonl")] == [START, SYNC, EVENTS[-1]]


def test_a_torn_last_line_is_not_counted_and_is_cut_off_later(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"kind": "stop", "steps_done": 1, "status": "stopped"}\n{"kind": "sy')
    assert [type(event) for event in events_in(path)] == [Stop]
    with EventWriter(path, rank=0) as events:
        events.write(EVENTS[-1])
    assert [type(event) for event in events_in(path)] == [Stop, type(EVENTS[-1])]


@pytest.mark.parametrize("torn", ["x" * 10, "x" * (1 << 16), "x" * 200_000])
@pytest.mark.parametrize("whole", ["", '{"kind": "start"}\n'])
def test_a_long_torn_line_is_cut_off_too(tmp_path, torn, whole):
    path = tmp_path / "e.jsonl"
    path.write_text(whole + torn)
    EventWriter(path, rank=0).close()
    assert path.read_text() == whole


@pytest.mark.parametrize("line", ["{broken", "[1]", "3", ""])
def test_damage_inside_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "e.jsonl"
    path.write_text(f'{{"kind": "?"}}\n{line}\n{{"kind": "?"}}\n')
    with pytest.raises(UserError, match=r"e\.jsonl:2: not an event"):
        events_in(path)


def test_closing_twice_is_harmless(tmp_path):
    events = EventWriter(tmp_path / "e.jsonl", rank=0)
    events.close()
    events.close()


@pytest.mark.parametrize("before", [0, 800])
def test_the_last_event_is_found_at_the_end_of_a_file_of_any_size(tmp_path, before):
    path = tmp_path / "rank_0.jsonl"
    assert last_event(path) is None
    with EventWriter(path, rank=0) as events:
        for steps in range(before):
            events.write(Checkpoint(epoch=0, step=steps, steps_done=steps))
        events.write(Failure(message="the last one", exit_code=74))
    assert (path.stat().st_size > 1 << 16) == (before > 0)
    with path.open("a") as file:
        file.write('{"half": ')
    found = last_event(path)
    assert isinstance(found, Failure)
    assert (found.message, found.exit_code) == ("the last one", 74)
