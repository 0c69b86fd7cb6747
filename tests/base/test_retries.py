"""An I/O error is waited for, once where nothing answers; any other error is not."""

import errno

import pytest

from graphmill.base import retries
from graphmill.base.errors import UnreadableError
from graphmill.base.files import write_text
from graphmill.base.retries import insist, is_io_error, retried


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(retries.time, "sleep", found.append)
    monkeypatch.setattr(retries, "_patience", retries._Patience())
    return found


def failing(code: int, times: int):
    tries = iter(range(times))

    def act(*_: object) -> str:
        if next(tries, None) is not None:
            raise OSError(code, "no answer")
        return "done"

    return act


@pytest.mark.parametrize("code", retries.TRANSIENT)
def test_a_moment_is_waited_for(waits, code):
    assert insist(failing(code, 3)) == "done"
    assert waits == list(retries._WRITE_AGAIN_AFTER_S[:3])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.ENOENT])
def test_other_errors_are_not(waits, code):
    with pytest.raises(OSError, match="no answer") as raised:
        insist(failing(code, 1))
    assert not is_io_error(raised.value)
    assert not waits


def test_where_nothing_answers_one_operation_waits_and_the_others_do_not(waits, tmp_path):
    with pytest.raises(OSError, match="no answer") as raised:
        insist(failing(errno.ESTALE, 99))
    assert is_io_error(raised.value)
    waited = len(waits)
    with pytest.raises(UnreadableError) as unread:
        retried(tmp_path, failing(errno.EIO, 99))
    assert is_io_error(unread.value)
    assert len(waits) == waited
    write_text(tmp_path / "well", "again")
    assert insist(failing(errno.ESTALE, 1)) == "done"
    assert len(waits) == waited + 1


def test_a_read_that_is_answered_ends_the_impatience(waits, tmp_path):
    with pytest.raises(UnreadableError):
        retried(tmp_path, failing(errno.EIO, 99))
    waited = len(waits)
    for times in (0, 1):
        assert retried(tmp_path, failing(errno.EIO, times)) == "done"
    assert len(waits) == waited + 1


def test_what_is_not_there_is_no_error_of_the_disk(waits, tmp_path):
    for code in retries._ABSENT:
        with pytest.raises(OSError, match="no answer") as raised:
            retried(tmp_path, failing(code, 1))
        assert not is_io_error(raised.value)
    assert not waits
