"""A collective of a device is timed by the device's own clock, which is read when its work is over."""

import pytest
import torch
import torch.distributed as dist

from graphmill.sync.group import Group


class Clock:
    """In the place of torch.cuda.Event: it goes on by what the device does, and is read after it is over."""

    device_ms = 0.0

    def __init__(self, *, enable_timing):
        assert enable_timing
        self.is_over = False

    def record(self):
        self.at_ms = Clock.device_ms

    def synchronize(self):
        self.is_over = True

    def elapsed_time(self, other):
        assert other.is_over, "a clock was read too early"
        return other.at_ms - self.at_ms


@pytest.fixture
def pair(monkeypatch):
    def all_reduce(tensor, operation, group):
        Clock.device_ms += 250

    monkeypatch.setattr(torch.cuda, "Event", Clock)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    return Group(0, 2, torch.device("meta"))


def test_the_host_reads_it_later(pair):
    tensor = torch.empty(10, device="meta")
    pair.all_reduce(tensor)
    pair.all_reduce(tensor)
    assert pair.spans.seconds["sync"] == 0
    assert pair.traffic.payload_bytes == 80
    assert pair.read_clocks() == 0.5
    assert pair.spans.seconds["sync"] == 0.5
    assert pair.read_clocks() == 0, "each counts once"
