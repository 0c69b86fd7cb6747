"""What a module logs is shown by the entry point of its process, once; a library shows warnings only."""

import errno
import io
import logging
import subprocess
import sys

import pytest

from graphmill.base.messages import each_text_once, show_messages

LOG = logging.getLogger("graphmill.a.module")


def test_levels_and_prefix_where_standard_error_is_at_that_moment(monkeypatch):
    show_messages("stage host1: ")
    monkeypatch.setattr(sys, "stderr", stderr := io.StringIO())
    LOG.debug("not shown")
    LOG.info("100 % of %s")
    LOG.warning("damaged")
    logging.getLogger("__main__").error("no disk")
    assert stderr.getvalue().splitlines() == [
        "stage host1: 100 % of %s",
        "stage host1: warning: damaged",
        "stage host1: error: no disk",
    ]


def test_the_last_call_counts(capsys):
    show_messages("one: ")
    show_messages("two: ")
    LOG.info("text")
    assert capsys.readouterr().err == "two: text\n"


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")


def test_a_log_on_a_full_disk_does_not_end_the_program(monkeypatch):
    show_messages()
    monkeypatch.setattr(sys, "stderr", FullDisk())
    LOG.info("text")


def test_the_same_text_of_one_module_passes_once(caplog):
    with each_text_once(LOG.name):
        for text in ("a", "a", "b", "a"):
            LOG.info(text)
        logging.getLogger("graphmill.another").info("a")
    LOG.info("a")
    assert caplog.messages == ["a", "b", "a", "a"]


def test_a_library_shows_warnings_and_no_remarks(source_environ):
    program = "import logging; log = logging.getLogger('graphmill.x'); log.info('remark'); log.warning('damaged')"
    done = subprocess.run(
        [sys.executable, "-c", f"import graphmill.base.messages; {program}"],
        env=source_environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "damaged\n")


CALLED = """
import logging, sys
from graphmill.base.messages import messages_shown
log = logging.getLogger("graphmill.base.files")
if sys.argv[1] == "theirs":
    logging.basicConfig(format="theirs: %(message)s", level=logging.INFO)
with messages_shown():
    log.info("a remark")
    with messages_shown():
        log.info("within")
log.info("after")
"""


@pytest.mark.parametrize(
    ("whose", "shown"),
    [("ours", "a remark\nwithin\n"), ("theirs", "theirs: a remark\ntheirs: within\ntheirs: after\n")],
)
def test_a_call_from_python_shows_remarks_unless_the_caller_has_set_up_logging(whose, shown, source_environ):
    words = [sys.executable, "-c", CALLED, whose]
    assert subprocess.run(words, env=source_environ, capture_output=True, text=True, check=True).stderr == shown


def test_a_module_that_is_run_shows_its_own_messages(source_environ, tmp_path):
    words = [sys.executable, "-m", "graphmill.cluster.staging.stage", str(tmp_path)]
    done = subprocess.run(words, env=source_environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: " in done.stderr.splitlines()[0]
    assert done.stderr.startswith("stage ")
