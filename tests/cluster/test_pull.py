"""Fetching runs: what is named, what is wanted, and a real rsync over a real sshd (in tests/cluster/launch/ssh)."""

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.pull import Pull, Source


@pytest.mark.parametrize(
    ("text", "login", "path"),
    [
        ("me@host:/data/logs", "me@host", "/data/logs"),
        ("host:logs/", "host", "logs"),
        ("me@host:~/logs", "me@host", "logs"),
        ("me@host:", "me@host", "."),
        ("me@host:~", "me@host", "."),
        ("me@host:/", "me@host", "/"),
        ("me@host:-x", "me@host", "./-x"),
        ("me@host:/a b/$(x);'y'", "me@host", "/a b/$(x);'y'"),
        ("me@[::1]:/x", "me@[::1]", "/x"),
    ],
)
def test_a_source(text: str, login: str, path: str):
    assert Source.parse(text) == Source(login, path)


@pytest.mark.parametrize(
    "text",
    ["", "logs", "/logs", "-e:x", "-oProxyCommand=x@h:/x", "me@-h:/x", "rsync://h/m", "h::module", "a b:/x", "h:/x\n"],
)
def test_no_source(text: str):
    with pytest.raises(UserError, match="does not name a folder"):
        Source.parse(text)


def test_the_ssh_config_is_one_word_for_rsync(tmp_path):
    pull = Pull(Source("h", "/x"), tmp_path, ssh_config=tmp_path / "it's a file")
    assert pull._ssh().endswith(f"-F '{tmp_path}/it''s a file'")
