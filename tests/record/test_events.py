import json
import subprocess
import sys
import time

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.record.events import EventWriter, read_events


def test_events_are_appended_in_order(tmp_path):
    path, began = tmp_path / "events" / "rank_0.jsonl", time.time()
    for attempt in range(2):
        with EventWriter(path, rank=0) as events:
            events.write("start", attempt=attempt)
            events.write("sync", bytes=np.int64(3), hash="ab", waited_s=0.5, nested={"a": [1, (2, 3)]})
    read = read_events(path)
    assert [event["kind"] for event in read] == ["start", "sync"] * 2
    assert read[1]["bytes"] == 3
    assert read[1]["nested"] == {"a": [1, [2, 3]]}
    assert began - 1e-3 <= read[0]["time"] <= read[-1]["time"] <= time.time() + 1e-3, "Unix times, in ms"


def test_what_json_cannot_carry_becomes_text(tmp_path):
    with EventWriter(tmp_path / "e.jsonl", rank=1) as events:
        events.write("epoch", loss=float("nan"), val_loss=np.float32("inf"), path=tmp_path, text="line\u2028break\x85")
    (event,) = read_events(tmp_path / "e.jsonl")
    assert event["loss"] == "nan"
    assert event["val_loss"] == "inf"
    assert event["text"] == "line\u2028break\x85"
    json.loads((tmp_path / "e.jsonl").read_text(), parse_constant=pytest.fail)


def test_a_line_is_out_when_write_returns(tmp_path, source_environ):
    program = (
        "import os, sys; from pathlib import Path; from graphmill.record.events import EventWriter\n"
        "EventWriter(Path(sys.argv[1]), rank=0).write('start'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "e.jsonl")], env=source_environ, check=False)
    assert [event["kind"] for event in read_events(tmp_path / "e.jsonl")] == ["start"]


def test_a_torn_last_line_is_not_counted_and_is_cut_off_later(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"kind": "start"}\n{"kind": "sy')
    assert [event["kind"] for event in read_events(path)] == ["start"]
    with EventWriter(path, rank=0) as events:
        events.write("finish")
    assert [event["kind"] for event in read_events(path)] == ["start", "finish"]


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
    path.write_text(f'{{"kind": "start"}}\n{line}\n{{"kind": "finish"}}\n')
    with pytest.raises(UserError, match=r"e\.jsonl:2: not an event"):
        read_events(path)


def test_closing_twice_is_harmless(tmp_path):
    events = EventWriter(tmp_path / "e.jsonl", rank=0)
    events.close()
    events.close()
