"""Whose attempt it is that ends."""

import shutil
import socket

import pytest

from graphmill.base.errors import UserError
from graphmill.record.attempts import attempt, code_changes, is_ours
from graphmill.record.checksums import checksums_path
from graphmill.record.documents import Attempt
from graphmill.record.run_folder import RunFolder


@pytest.mark.parametrize(
    ("job_id", "hostname", "ours"),
    [("17", socket.gethostname(), True), ("18", socket.gethostname(), False), ("17", "another host", False)],
)
def test_an_attempt_is_that_of_its_job_on_its_host(job_id, hostname, ours):
    """A requeued job keeps its number, and a host that was cut off may outlive it."""
    begun = Attempt(time=0.0, hostname=hostname, pid=1, resumed=False, command=(), job_id=job_id, code="c")
    assert is_ours(begun, "17") is ours


def test_attempts_that_began_with_other_code_are_named():
    def attempts(*codes: str) -> list[Attempt]:
        return [Attempt(time=0.0, hostname="h", pid=1, resumed=False, command=(), code=code) for code in codes]

    assert list(code_changes(attempts("a", "a", "b", "b", "a"))) == [3, 5]
    assert code_changes([]) == {}


def test_attempts_that_began_with_other_code_of_the_users_own_are_named():
    def attempts(*copies: str) -> list[Attempt]:
        begun = {"time": 0.0, "hostname": "h", "pid": 1, "resumed": False, "command": (), "code": "c"}
        return [Attempt(**begun, own_code=copy) for copy in copies]

    changed = code_changes(attempts("", "a", "a", "b", ""))
    assert list(changed) == [4, 5], "the first one began without a copy: of what, is not known"
    assert "no copy" in changed[5]


@pytest.mark.parametrize(("resumed_on", "noted"), [(None, True), ("another host", False)])
def test_a_host_that_was_cut_off_vouches_for_no_file_of_who_went_on(new_run, resumed_on, noted):
    folder, _ = new_run()
    with attempt(folder, command=["x"], job_id="17"):
        if resumed_on:
            later = Attempt(time=9.0, hostname=resumed_on, pid=1, resumed=True, command=(), job_id="17", code="c")
            with folder.attempts_path.open("a") as file:
                file.write(later.model_dump_json() + "\n")
    assert checksums_path(folder).exists() is noted


def test_a_run_that_is_removed_while_it_trains_is_reported(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.command_path.write_text("{}")
    with pytest.raises(UserError, match="was removed while it trained"), attempt(folder, command=["x"]):
        shutil.rmtree(folder.path)
