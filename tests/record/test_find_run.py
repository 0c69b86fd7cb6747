"""Which run is meant where nobody names one."""

import time

from graphmill.record.find_run import latest_run


def test_the_latest_run_is_the_one_that_was_begun_or_resumed_last(new_run, monkeypatch):
    (resumed, _), (later, _) = new_run(run_id="resumed"), new_run(run_id="later")
    for moment, folder in ((1.0, resumed), (5.0, later)):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        folder.begin_attempt(resumed=False, command=("x",))
    assert latest_run(later.path.parent).path == later.path
    monkeypatch.setattr(time, "time", lambda: 9.0)
    resumed.begin_attempt(resumed=True, command=("x",))
    assert latest_run(later.path.parent).path == resumed.path
