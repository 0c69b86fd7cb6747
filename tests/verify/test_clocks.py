"""Times only go forward: of one host. Clocks of two hosts may be minutes apart, and no run is untrue for that."""

from types import SimpleNamespace

import pytest

from graphmill.record.documents import Attempt
from graphmill.record.events import Finish, Start
from graphmill.verify.distributed import _clock


def started(time: float, host: str) -> Start:
    return Start(
        time=time, resumed=False, steps_done=0, parameters=1, hostname=host, world_size=1, backend=None, plan_hash="",
        process_s=0.0, data="",
    )  # fmt: skip


def begun(time: float, host: str) -> Attempt:
    return Attempt(time=time, hostname=host, pid=1, resumed=False, command=(), code="c")


@pytest.mark.parametrize(
    ("later", "host", "problems"),
    [(100.0, "a", 0), (-30.0, "a", 0), (-120.0, "a", 2), (-120.0, "b", 0), (-3600.0, "b", 0)],
)
def test_an_attempt_on_another_host_may_be_behind(later: float, host: str, problems: int):
    first = 1e9
    log = SimpleNamespace(rank=0, events=[started(first, "a"), started(first + later, host)])
    evidence = SimpleNamespace(logs=[log], attempts=[begun(first, "a"), begun(first + later, host)])
    assert len(list(_clock(evidence))) == problems  # one of the events, one of the attempts


def test_within_an_attempt_they_go_forward_on_every_host():
    log = SimpleNamespace(
        rank=0,
        events=[started(100.0, "a"), started(10.0, "b"), Finish(time=5.0, steps_done=1, status="done", seal={})],
    )
    assert len(list(_clock(SimpleNamespace(logs=[log], attempts=[])))) == 1
