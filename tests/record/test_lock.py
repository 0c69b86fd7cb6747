"""Who owns a run: with flock and without it, on one host and on several, dead and alive."""

import errno
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import HANG_S, wait_until

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.record import lock
from graphmill.record.lock import OwnedError, Owner, hold, owner_of

HOLD = """
import sys, time
from pathlib import Path
from graphmill.record.lock import OwnedError, hold
try:
    with hold(Path(sys.argv[1]), job_id="17") as owner:
        print(owner.model_dump_json(), flush=True)
        time.sleep(float(sys.argv[2]))
except OwnedError as error:
    print(f"refused: {error.message}", flush=True)
"""
NO_FLOCK = errno.ENOSYS


@pytest.fixture(params=["flock", "lock file"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def start(tmp_path, kind, failing_disk, source_environ):
    """Starts a process that owns the folder; returns it and the first line that it says."""
    started = []

    def start(seconds: float = 60.0) -> tuple[subprocess.Popen, str]:
        environ = failing_disk(flock=NO_FLOCK if kind == "lock file" else None)
        command = [sys.executable, "-c", HOLD, str(tmp_path), str(seconds)]
        environ = {**environ, "PYTHONPATH": source_environ["PYTHONPATH"]}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ)
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()}


def test_a_second_one_is_told_who_owns_it_and_changes_nothing(tmp_path, start, kind):
    holder, said = start()
    owner = Owner.model_validate_json(said)
    assert (owner.pid, owner.kind, owner.job_id) == (holder.pid, kind, "17")
    before = everything(tmp_path)
    _, second = start()
    assert second.startswith("refused: ")
    for known in (str(holder.pid), owner.hostname, "job 17", kind):
        assert known in second
    assert everything(tmp_path) == before
    assert owner_of(tmp_path) == owner


def test_it_goes_with_a_killed_process(tmp_path, start):
    holder, _ = start()
    holder.kill()
    holder.wait()
    assert owner_of(tmp_path).is_dead()
    _, said = start()
    assert not said.startswith("refused")


def test_it_is_let_go_at_the_end(tmp_path, start):
    holder, _ = start(0.1)
    holder.wait()
    assert owner_of(tmp_path) is None
    with hold(tmp_path):
        assert owner_of(tmp_path).pid == os.getpid()
    assert owner_of(tmp_path) is None


def test_an_owner_that_is_about_to_leave_is_waited_for(tmp_path, start, kind, monkeypatch, caplog):
    if kind == "lock file":
        monkeypatch.setattr(lock.fcntl, "flock", _no_flock)
    start(2.0)
    with hold(tmp_path, wait_s=HANG_S):
        waiting, *without_flock = caplog.messages
        assert "process" in waiting
        assert [lock.OWNER in text for text in without_flock] == [True] * (kind == "lock file")


def test_a_folder_without_flock_is_told_once(tmp_path, monkeypatch, caplog):
    """A search takes its lock for each line that it writes."""
    monkeypatch.setattr(lock.fcntl, "flock", _no_flock)
    others = tmp_path / "others"
    others.mkdir()
    for folder in (tmp_path, others, tmp_path, others):
        with hold(folder):
            pass  # it is given back
    assert len(caplog.messages) == 2
    assert str(others) in caplog.messages[1]


def test_who_is_refused_reads_which_process_has_the_folder_and_nothing_of_what_it_does(
    tmp_path, start, kind, monkeypatch
):
    """It may be a run's, a search's, or a pipeline's."""
    if kind == "lock file":
        monkeypatch.setattr(lock.fcntl, "flock", _no_flock)
    holder, _ = start()
    with pytest.raises(OwnedError, match=f"{tmp_path} is in use by process {holder.pid}") as refused, hold(tmp_path):
        pass
    assert "train" not in str(refused.value)


def test_of_many_that_follow_a_dead_owner_one_wins(start):
    holder, _ = start()
    holder.kill()
    holder.wait()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: start(HANG_S), range(4)))
    assert sum(not said.startswith("refused") for _, said in answers) == 1


def _no_flock(*_):
    raise OSError(NO_FLOCK, os.strerror(NO_FLOCK))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Writes a lock file of a process on another host, whose last heartbeat is so long ago; no flock here."""
    monkeypatch.setattr(lock.fcntl, "flock", _no_flock)
    monkeypatch.setattr(lock, "BEAT_S", 0.2)

    def make(age_s: float) -> Owner:
        owner = lock._myself("18", "lock file").model_copy(update={"hostname": "elsewhere"})
        (tmp_path / lock.OWNER).write_text(owner.model_dump_json())
        os.utime(tmp_path / lock.OWNER, (time.time() - age_s,) * 2)
        return owner

    return make


def test_an_owner_on_another_host_with_a_heartbeat_is_left_alone(tmp_path, elsewhere):
    owner = elsewhere(5.0)
    with pytest.raises(OwnedError, match="elsewhere") as refused, hold(tmp_path):
        pass
    assert refused.value.owner == owner
    assert owner_of(tmp_path) == owner


def test_an_owner_on_another_host_without_a_heartbeat_is_replaced(tmp_path, elsewhere):
    elsewhere(lock.STALE_S + 100)
    with hold(tmp_path) as owner:
        assert owner_of(tmp_path) == owner
    assert not (tmp_path / lock.OWNER).exists()


def test_a_heartbeat_is_seen_from_outside(tmp_path, elsewhere):
    del elsewhere
    with hold(tmp_path):
        os.utime(tmp_path / lock.OWNER, (0, 0))
        wait_until(lambda: (tmp_path / lock.OWNER).stat().st_mtime > 0, "a heartbeat")


def test_any_other_error_is_not_taken_for_a_missing_lock(tmp_path, failing_disk, source_environ):
    environ = {**failing_disk(flock=errno.EIO), "PYTHONPATH": source_environ["PYTHONPATH"]}
    once = "import graphmill.base.retries\ngraphmill.base.retries._WRITE_AGAIN_AFTER_S = ()\n"
    command = [sys.executable, "-c", once + HOLD, str(tmp_path), "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode != 0
    assert "OSError" in done.stderr


def test_a_heartbeat_that_comes_while_it_is_looked_for_counts(tmp_path, elsewhere, monkeypatch):
    """However old it looks: the hosts' clocks may differ by more than that."""
    owner = elsewhere(lock.STALE_S + 100)

    def beat(_) -> None:
        then = (tmp_path / lock.OWNER).stat().st_mtime + 1
        os.utime(tmp_path / lock.OWNER, (then, then))

    monkeypatch.setattr(lock.time, "sleep", beat)
    with pytest.raises(OwnedError), hold(tmp_path):
        pass
    assert owner_of(tmp_path) == owner


def test_a_process_of_the_same_number_is_not_the_owner(tmp_path, elsewhere):
    owner = elsewhere(0.0).model_copy(update={"hostname": socket.gethostname(), "process_start": 1})
    assert owner.pid == os.getpid()
    (tmp_path / lock.OWNER).write_text(owner.model_dump_json())
    with hold(tmp_path) as new:
        assert new.process_start != 1


def test_a_lock_that_was_taken_over_is_not_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(lock.fcntl, "flock", _no_flock)
    monkeypatch.setattr(lock, "BEAT_S", 3600.0)  # a heartbeat would find it, and end this process
    with hold(tmp_path) as owner:
        other = owner.model_copy(update={"hostname": "elsewhere"})
        (tmp_path / lock.OWNER).write_text(other.model_dump_json())
    assert owner_of(tmp_path) == other


def test_an_owner_that_came_while_a_dead_one_was_looked_at_keeps_the_run(tmp_path, elsewhere, monkeypatch):
    """Two saw the same dead owner; the other one has taken over by the time that this one may."""
    dead, create = elsewhere(lock.STALE_S + 100), lock._create
    other = dead.model_copy(update={"hostname": "a third", "pid": 4711})

    def create_late(path: Path, owner: Owner) -> bool:
        if path.name == lock._TAKEOVER:
            (tmp_path / lock.OWNER).write_text(other.model_dump_json())
        return create(path, owner)

    monkeypatch.setattr(lock, "_create", create_late)
    with pytest.raises(OwnedError), hold(tmp_path):
        pass
    assert owner_of(tmp_path) == other
    assert not (tmp_path / lock._TAKEOVER).exists()


def test_a_process_whose_lock_was_taken_over_ends_before_it_writes(tmp_path, failing_disk, source_environ):
    environ = {**failing_disk(flock=NO_FLOCK), "PYTHONPATH": source_environ["PYTHONPATH"]}
    quick = HOLD.replace("try:", "import graphmill.record.lock\ngraphmill.record.lock.BEAT_S = 0.1\ntry:", 1)
    command = [sys.executable, "-c", quick, str(tmp_path), str(HANG_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        try:
            owner = Owner.model_validate_json(process.stdout.readline())
            other = owner.model_copy(update={"hostname": "elsewhere"})
            (tmp_path / "new").write_text(other.model_dump_json())
            (tmp_path / "new").replace(tmp_path / lock.OWNER)  # there is an owner at every moment
            assert process.wait(HANG_S) == exits.LOST_A_RANK
            assert "taken over" in process.stderr.read()
        finally:
            process.kill()
    assert owner_of(tmp_path) == other


@pytest.mark.parametrize("is_folder", [False, True], ids=["to a file", "to a folder"])
@pytest.mark.parametrize("name", [".lock", "metrics.csv", "events", "checkpoints/step_0000000001/rank_0.pt"])
def test_nothing_is_written_through_a_link_that_leads_out(tmp_path, name, is_folder):
    """A folder that was copied may hold links to anything that its owner may write."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / name).parent.mkdir(parents=True)
    if is_folder:
        outside.mkdir()
    mine = outside / "mine" if is_folder else outside
    mine.write_text("mine")
    (run / name).symlink_to(outside)
    with pytest.raises(UserError, match="a link that leads out of") as refused, hold(run):
        pass
    assert f"rm {run / name}" in refused.value.fix
    assert mine.read_text() == "mine"


def test_a_link_within_the_folder_and_a_folder_that_is_reached_by_one_are_well(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "latest").symlink_to("metrics.csv")
    (tmp_path / "name").symlink_to(run)
    with hold(tmp_path / "name"):
        pass
