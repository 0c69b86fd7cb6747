"""The files that daemons read, and who may read them while they are written."""

import os
import stat

import pytest

from graphmill_devcluster import configure
from graphmill_devcluster.configure import _write


@pytest.fixture
def umask():
    old = os.umask(0o022)
    yield
    os.umask(old)


def mode_of(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_a_file_never_has_a_wider_mode_than_its_last(tmp_path, monkeypatch, mode):
    """Its mode is looked at before the first byte is in it."""
    seen, opened = [], os.fdopen

    def watched(file, *rest, **options):
        seen.extend(mode_of(each) for each in tmp_path.iterdir())
        return opened(file, *rest, **options)

    monkeypatch.setattr(os, "fdopen", watched)
    _write(tmp_path / "password", "secret", mode=mode)
    monkeypatch.undo()
    assert seen, "it is looked at before something is written"
    assert all(not each & ~mode for each in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["password"]
    assert (mode_of(tmp_path / "password"), (tmp_path / "password").read_text()) == (mode, "secret")


def test_a_narrow_umask_does_not_take_what_a_daemon_needs(tmp_path):
    old = os.umask(0o077)
    try:
        _write(tmp_path / "hosts", "")
    finally:
        os.umask(old)
    assert mode_of(tmp_path / "hosts") == 0o644


@pytest.mark.usefixtures("umask")
def test_what_a_killed_process_left_is_replaced(tmp_path):
    left = tmp_path / ".password.new"
    left.write_text("half of a pass")
    left.chmod(0o644)
    _write(tmp_path / "password", "secret", mode=0o600)
    assert not left.exists()
    assert (mode_of(tmp_path / "password"), (tmp_path / "password").read_text()) == (0o600, "secret")


def test_the_password_is_made_once_and_is_private(tmp_path, monkeypatch):
    monkeypatch.setattr(configure, "HOME", tmp_path)
    (tmp_path / "etc").mkdir()
    password = configure._password()
    assert (configure._password(), mode_of(tmp_path / "etc/password")) == (password, 0o600)
