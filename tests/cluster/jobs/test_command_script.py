"""The script of `submit --run`: its words as they are, whatever is in them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.command import name_of, plan_command
from graphmill.cluster.jobs.script import render_script
from graphmill.cluster.jobs.sites import site_folders
from graphmill.record.run_folder import RunFolder
from graphmill.spec.job.resolve import Job, resolve_job
from graphmill.spec.job.site import load_site
from graphmill.spec.job.work import Command, RunCommand
from graphmill.spec.load import inline_experiment

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)
HOSTILE = ("graphmill", "prepare", "two words", "$(touch pwned)", "it's", "first\nsecond", "--", "--command=x", "")
AS_PYTHON = "import sys; sys.stdout.buffer.write(b'\\0'.join(map(str.encode, sys.argv[1:])))"


def job_of(*words: str, data: str | None = None) -> Job:
    value = {
        "name": "x", "train": {"device": "cpu", "max_steps": 1}, "staging": {"to": "host_local" if data else "nowhere"},
        "slurm": {"account": "PAS1266", "cpus_per_host": 8, "mem": "32G", "on_time_limit": "stop",
                  "job_name_prefix": name_of(words)},
    }  # fmt: skip
    site = load_site("pitzer", folders=site_folders()[-1:])
    folder = "/home/me/logs/jobs/my command"
    job = resolve_job(inline_experiment(value, "the test"), site, run_folders=[folder], called_in="/home/me/project")
    return job.model_copy(update={"work": RunCommand(folder=folder, command=Command(words=words, data=data))})


def test_the_script_stays_as_it_is(golden: Callable[[str, str], None]):
    job = job_of(*HOSTILE, data="/data/ogbn products")
    text = render_script(job)
    golden("scripts/command.sbatch", text)
    assert text == render_script(Job.model_validate_json(job.model_dump_json()))


def test_shellcheck_has_nothing_to_say():
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    text = render_script(job_of(*HOSTILE))
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS, max_size=5))
def test_bash_hands_the_driver_the_words_that_were_given(tmp_path: Path, words: list[str]):
    driver = tmp_path / "python"
    driver.write_text(f"#!{sys.executable} -S\n{AS_PYTHON}\n")
    driver.chmod(0o755)
    job = job_of("tool", *words).model_copy(update={"python": str(driver), "work_dir": str(tmp_path), "modules": ()})
    environ = {"SLURM_JOB_ID": "1", "PATH": os.environ["PATH"], "TMPDIR": "/tmp"}
    script = job.model_copy(update={"setup_lines": ()})
    done = subprocess.run(["bash", "-c", render_script(script)], env=environ, capture_output=True, check=True)
    seen = [word.decode() for word in done.stdout.split(b"\0")]
    work = parse_arguments(seen[2:]).work  # after -m and the module
    assert work == RunCommand(folder="/home/me/logs/jobs/my command", command=Command(words=("tool", *words)))


def test_what_is_asked_for_twice_and_alike_is_no_contradiction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    asked = ['slurm.job_name_prefix="mine"', "slurm.hosts=1", 'slurm.on_time_limit="stop"', "slurm.time=7"]
    job = plan_command(["x" * 300], [*asked, 'slurm.site="devcluster"'], RunFolder(tmp_path / "folder")).job
    assert (job.name, job.hosts, job.on_time_limit, job.time_s) == ("mine-n1", 1, "stop", 420)
    job = plan_command(["x" * 300], ['slurm.site="devcluster"'], RunFolder(tmp_path / "folder")).job
    assert job.name == f"{'x' * 60}-n1"
    with pytest.raises(UserError, match="on_time_limit"):
        plan_command(["true"], ['slurm.on_time_limit="requeue"'], RunFolder(tmp_path / "folder"))


def test_a_search_goes_on_after_its_time_limit_and_other_commands_do_not(tmp_path: Path):
    def way(words: list[str], *asked: str) -> str:
        asked_for = [*asked, 'slurm.site="devcluster"', "slurm.time=7"]
        return plan_command(words, asked_for, RunFolder(tmp_path / "folder")).job.on_time_limit

    tune = ["graphmill", "tune", "cora-sage"]
    assert way(tune) == "requeue"
    assert [way(tune, f"slurm.on_time_limit={each}") for each in ("stop", "resubmit")] == ["stop", "resubmit"]
    assert [way(words) for words in (["graphmill", "evaluate", "x"], ["tune"])] == ["stop", "stop"]


def test_words_that_no_process_can_be_handed_are_refused():
    with pytest.raises(UserError, match="the command"):
        render_script(job_of("tool", "a\0b"))


def test_without_a_command_there_are_no_words(capsys: pytest.CaptureFixture[str]):
    for words in (["run", "--", "tool"], ["--command", "folder"], ["--command", "folder", "--"]):
        with pytest.raises(SystemExit):
            parse_arguments(words)
    assert "go together" in capsys.readouterr().err
