"""`logs` of runs that have ended; tests/cluster/jobs/test_logs_and_shell.py follows one that runs."""

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.cli import logs
from graphmill.cluster.status import Watcher
from graphmill.record.documents import SubmittedJob


@pytest.fixture
def run(new_run):
    folder, _ = new_run(ranks=2)
    folder.log_path(0).write_bytes("één\nzwei\ndrei\n".encode())
    folder.log_path(1).write_text("of rank 1\n")
    return folder


def test_the_log_of_rank_0_or_of_another(graphmill, run):
    assert graphmill("logs").out == "één\nzwei\ndrei\n"
    assert graphmill("logs", run.path, "--rank", "1").out == "of rank 1\n"
    assert graphmill("logs", "run", "--follow").out == "één\nzwei\ndrei\n", "a run that has ended is not waited for"


@given(
    lines=st.lists(st.sampled_from(["a", "", "ü" * 9, "\x1b[1m"]), max_size=6),
    asked=st.integers(0, 8),
    ends=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_last_lines(graphmill, run, lines, asked, ends):
    text = "\n".join(lines) + ("\n" if lines and ends else "")
    run.log_path(0).write_text(text)
    expected = "".join(text.splitlines(keepends=True)[-asked:]) if asked else ""
    assert graphmill("logs", "run", "-n", str(asked)).out == expected


def test_what_its_job_printed(graphmill, run):
    none = graphmill("logs", "run", "--job")
    assert (none.code, "no job" in none.err) == (2, True)
    run.note_job(SubmittedJob(job_id="7", cluster="", time=0.0))
    assert graphmill("logs", "run", "--job").code == 2
    run.job_log_path("7").write_text("from the script\n")
    assert graphmill("logs", "run", "--job").out == "from the script\n"


def test_of_the_job_that_is_followed_first_the_last_lines_and_of_the_next_all(graphmill, run, monkeypatch):
    looks: list[None] = []

    def begin(job_id: str) -> None:
        run.note_job(SubmittedJob(job_id=job_id, time=float(job_id)))
        run.job_log_path(job_id).write_text(f"first of {job_id}\nlast of {job_id}\n")

    def look(_: Watcher) -> list[SimpleNamespace]:
        looks.append(None)
        if len(looks) == 2:
            begin("8")
        return [SimpleNamespace(is_alive=len(looks) < 3)]

    begin("7")
    monkeypatch.setattr(Watcher, "look", look)
    monkeypatch.setattr(logs, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(logs, "_READ_EVERY_S", 0.0)
    shown = graphmill("logs", "run", "--job", "--follow", "-n", "1").out
    assert shown == "last of 7\nfirst of 8\nlast of 8\n"


def test_what_is_not_there_is_told(graphmill, run, new_run):
    beyond = graphmill("logs", "run", "--rank", "2")
    assert (beyond.code, "--rank 0 to 1" in beyond.err) == (2, True)
    run.log_path(1).unlink()
    assert graphmill("logs", "run", "--rank", "1").code == 2
    new_run(run_id="other")
    both = graphmill("logs", "logs")
    assert (both.code, "2 runs" in both.err) == (2, True)
    assert graphmill("shell", "run").code == 2
