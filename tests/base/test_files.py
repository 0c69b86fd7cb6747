"""Files and folders that are put in place: nothing of others is written through, nothing half-written stays."""

import os
import signal
from pathlib import Path

import pytest

from graphmill.base.files import replacing, replacing_folder, write_text


def test_a_link_under_the_temporary_name_is_not_written_through(tmp_path):
    """Where others may write, too, they may guess the name: it has the host and the number of the process."""
    (tmp_path / "victim").write_text("precious")
    with replacing(tmp_path / "page.html") as guessed:
        pass
    guessed.symlink_to(tmp_path / "victim")
    write_text(tmp_path / "page.html", "new")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "page.html").read_text() == "new"
    assert not (tmp_path / "page.html").is_symlink()


@pytest.mark.parametrize(("writer", "call"), [(replacing, "open"), (replacing_folder, "mkdir")])
def test_what_is_interrupted_while_its_temporary_is_made_leaves_none(tmp_path, monkeypatch, writer, call):
    """A signal that comes during the system call is raised after it, when the file or folder is there."""
    made, system_call = [], getattr(os, call)

    def interrupted(path, *rest, **options):
        result = system_call(path, *rest, **options)
        made.append(Path(path).name)
        signal.raise_signal(signal.SIGINT)
        return result

    (tmp_path / "in-place").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(os, call, interrupted)
        with pytest.raises(KeyboardInterrupt), writer(tmp_path / "in-place"):
            raise AssertionError("the block is not reached")
    assert made[0].endswith(".tmp")
    assert [path.name for path in tmp_path.iterdir()] == ["in-place"]
