"""One vocabulary of endings: names and exit statuses."""

from typing import get_args

import pytest

from graphmill.record.endings import ENDINGS, SAVED, EndingName, Phase, ending_of


def test_every_name_has_one_ending_and_no_phase_is_called_so():
    assert set(ENDINGS) == set(get_args(EndingName))
    assert not set(ENDINGS) & set(get_args(Phase))


@pytest.mark.parametrize("name", ENDINGS)
def test_an_exit_status_and_a_name_give_the_ending_back(name):
    assert ending_of(ENDINGS[name].exit_status, name).name == name


def test_exit_statuses_have_their_endings():
    named = [ending_of(code).name for code in (0, 75, 74, 71, 69, 2, 130)]
    assert named == ["done", "out_of_time", "lost", "io_error", "port_busy", "bad_request", "interrupted"]
    assert {ending_of(code).name for code in (1, 134, 137, 139, -9)} == {"failed"}


def test_only_what_left_a_checkpoint_behind_counts_as_saved():
    assert {ending.name for ending in ENDINGS.values() if ending.exit_status in SAVED} == {
        "done", "out_of_time", "preempted", "stopped",
    }  # fmt: skip


def test_whatever_is_retried_is_resumable():
    assert all(ending.resumable for ending in ENDINGS.values() if ending.retried)
