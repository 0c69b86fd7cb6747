"""Fetching runs: what is named, what is wanted, and a real rsync over a real sshd (in tests/cluster/launch/ssh)."""

import json
import sys
from pathlib import PurePosixPath

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster import remote
from graphmill.cluster.jobs.pipeline_record import PipelineFolder
from graphmill.cluster.pull import Pull, PulledRun, _entry, _is_of_runs_in, _prune
from graphmill.cluster.remote import Source, answer_of, ssh_for_rsync
from graphmill.record.run_folder import RunFolder


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
    assert ssh_for_rsync(tmp_path / "it's a file").endswith(f"-F '{tmp_path}/it''s a file'")


# Not fetched: a request to the jobs there; what a host there has read; where a job's search is. Checkpoints have an
# option of their own.
LEFT_BEHIND = {"stop_path", "checked_path", "pulled_path", "runs_of_command_path", "checkpoints_dir"}
ARGUMENTS = {"source_path": "a", "job_log_path": "17", "monitor_path": "h", "staged_path": "h"}


def paths_of(folder: RunFolder | PipelineFolder) -> dict[str, str]:
    """Every path that the class knows, below its folder. Each folder of it holds files of a method of its own."""
    found = {}
    members = {name: member for base in type(folder).__mro__ for name, member in vars(base).items()}
    for name, member in members.items():
        if name.endswith(("_path", "_dir")) and not name.startswith("_"):
            of_one = isinstance(member, property)
            path = getattr(folder, name) if of_one else getattr(folder, name)(ARGUMENTS.get(name, 0))
            found[name] = str(path.relative_to(folder.path))
    assert "plan_path" in found or "record_path" in found
    folders = {name: path for name, path in found.items() if name.endswith("_dir") and name not in LEFT_BEHIND}
    for name, path in folders.items():
        assert any(other.startswith(f"{path}/") for other in found.values()), f"{name} holds no file that is known"
    return {name: path for name, path in found.items() if name not in folders}


def test_every_file_of_a_run_is_fetched_or_left_behind_on_purpose(tmp_path):
    pull, paths = Pull(Source("h", "/x"), tmp_path), paths_of(RunFolder(tmp_path / "run"))
    assert set(paths) >= LEFT_BEHIND
    for name, path in paths.items():
        assert pull._is_wanted(f"run/{path}", "run", set()) == (name not in LEFT_BEHIND), name


def test_every_file_above_the_runs_of_a_pipeline_is_fetched(tmp_path):
    folder = PipelineFolder(tmp_path)
    jobs = (folder.jobs.jobs_path, folder.jobs.job_log_path("17"), folder.jobs.evaluations_path)
    for name in [*paths_of(folder).values(), *(path.name for path in jobs)]:
        assert _is_of_runs_in({PurePosixPath("pipe")}, f"pipe/{name}"), name
    assert not _is_of_runs_in({PurePosixPath("pipe")}, f"pipe/{folder.jobs.stop_path.name}")


@pytest.mark.parametrize("had_them", [True, False])
def test_that_checkpoints_were_fetched_once_is_not_forgotten(tmp_path, had_them):
    """`verify` asks for them where they were."""
    folder = RunFolder(tmp_path / "run")
    (folder.checkpoints_dir if had_them else folder.path).mkdir(parents=True)
    Pull(Source("h", "/x"), tmp_path)._mark(PulledRun("run", "changed", 1, is_finished=True))
    assert json.loads(folder.pulled_path.read_text())["checkpoints"] is had_them


def test_only_older_checkpoints_that_are_not_there_any_more_are_removed(tmp_path):
    for steps in (1, 2, 3, 4):
        (tmp_path / "run" / "checkpoints" / f"step_{steps}").mkdir(parents=True)
    _prune(tmp_path / "run" / "checkpoints" / "step_3", tmp_path, {"run/checkpoints/step_2"})
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["step_2", "step_3", "step_4"]


@pytest.mark.parametrize("name", ["../plan.json", "/etc/plan.json", "a/../../plan.json", r"a/\#056./plan.json", ".."])
def test_a_name_that_leads_out_is_refused(name):
    """rsync refuses it among files, and prints it in a message of the other machine's."""
    with pytest.raises(UserError, match="leads out of the folder that is fetched"):
        _entry(f">f+++++++++ {name}")


@pytest.mark.parametrize("name", ["a..b/plan.json", "..a/plan.json", "a/...", "a b/ c"])
def test_a_name_that_only_looks_so_is_a_name(name):
    assert _entry(f">f+++++++++ {name}").path == name


def test_what_another_machine_says_may_be_any_bytes():
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()); sys.stderr.buffer.write(b'\\xff')"
    found = answer_of([sys.executable, "-c", echo], stdin=b"\xfe\x1b" * 200_000)
    assert (found.returncode, found.out, found.complaint) == (0, b"\xfe\x1b" * 200_000, "\ufffd")
    assert answer_of([sys.executable, "-c", "exit(3)"], stdin=b"x" * 200_000).returncode == 3


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_answer_without_end_is_cut_off(stream, monkeypatch):
    monkeypatch.setattr(remote, "_MOST_ANSWER", 1 << 20)
    flood = f"import sys\nwhile True: sys.{stream}.write('x' * 4096)"
    with pytest.raises(UserError, match="sent more than 1 MiB"):
        answer_of([sys.executable, "-c", flood])
