"""What Slurm accounted: read from what a real sacct answered (22.05; two-host jobs, each ended in its own way).

`recorded/*.json` are sacct.json as the epilog writes it, of jobs that ran on a cluster of four hosts.
"""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.record.checksums import note_checksums
from graphmill.record.documents import SubmittedJob
from graphmill.slurm import accounting as spent
from graphmill.slurm.accounting import Accounted
from graphmill.verify.accounting import Accounts, read_accounts

RECORDED = Path(__file__).parent / "recorded"


def rows_of(name: str) -> list[dict[str, str]]:
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "state", "limit_s"),
    [
        ("good", "COMPLETED", 600),
        ("bad", "FAILED", 600),
        ("cancelled", "CANCELLED", 600),
        ("timeout", "TIMEOUT", 60),
        ("node_fail", "NODE_FAIL", 600),
        ("requeued", "CANCELLED", 600),
    ],
)
def test_the_last_run_of_a_job_counts(name, state, limit_s):
    job = Accounts(read_accounts((RECORDED / f"{name}.json").read_bytes()), "sacct", is_record=False).last
    assert (job.state, job.limit_s, job.num_hosts, job.step) == (state, limit_s, 2, "")


def test_a_successor_that_was_cancelled_before_it_started_is_not_the_last_job():
    def job(number: str, state: str, hosts: str, submitted: int) -> Accounted:
        return Accounted(number, "", state, 0, 0, 0, 600, submitted, None, None, 1, hosts)

    ran = job("17", "COMPLETED", "node1", 1)
    never, halfway = job("18", "CANCELLED", "None assigned", 2), job("18", "CANCELLED", "node1", 2)
    assert Accounts([ran, never], "sacct", is_record=False).last == ran
    assert Accounts([ran, halfway], "sacct", is_record=False).last == halfway


def test_steps_belong_to_their_run_of_the_job():
    accounts = Accounts(read_accounts((RECORDED / "requeued.json").read_bytes()), "sacct", is_record=False)
    assert len([entry for entry in accounts.entries if entry.step == "0"]) == 3
    assert [step.step for step in accounts.steps_of(accounts.last)] == ["batch", "0"]


@pytest.fixture
def job_of(run):
    """Makes the run one of Slurm's, with recorded accounts. `hosts`: what the accounts are to say; 2 ran."""

    def make(name: str, *, hosts: int = 2, **changes: str) -> None:
        rows = [{**row, "NNodes": row["NNodes"].replace("2", str(hosts)), **changes} for row in rows_of(name)]
        run.folder.note_job(SubmittedJob(job_id=rows[0]["JobID"], time=1.0))
        run.folder.job_path.write_text("{}")
        run.folder.script_path.write_text("#!/bin/bash\n")
        run.folder.sacct_path.write_text(json.dumps(rows))
        run.folder.sacct_summary_path.write_text("JobID\n")
        note_checksums(run.folder)

    return make


@pytest.fixture
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_slurm")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bad", "FAILED, exit status 3: the script or a step"),
        ("timeout", "TIMEOUT: time limit reached"),
        ("cancelled", "CANCELLED: "),
        ("node_fail", "NODE_FAIL: a host was lost"),
        ("requeued", "CANCELLED: "),
        ("hidden", "COMPLETED, but its step 0 is FAILED"),
    ],
)
def test_a_job_that_did_not_complete(run, job_of, name, words):
    job_of(name)
    assert words in run.failures()["job/state"]


@pytest.mark.usefixtures("no_slurm")
@pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "DEADLINE", "PENDING", "SOMETHING_NEW"])
def test_states_that_the_recorded_jobs_do_not_have(run, job_of, state):
    job_of("good", State=state)
    assert run.failures()["job/state"].startswith(f"{state}: ")


@pytest.mark.usefixtures("no_slurm")
def test_a_job_that_completed_with_an_exit_status_of_its_own(run, job_of):
    job_of("good", hosts=1, ExitCode="3:0")
    assert run.failures()["job/state"].startswith("COMPLETED, exit status 3: ")


@pytest.mark.usefixtures("no_slurm")
def test_a_job_that_was_preempted_is_wrong_only_where_its_run_is_not_done(run, job_of):
    job_of("good", hosts=1, State="PREEMPTED")
    state = next(check for check in run.checks() if check.name == "state")
    assert (state.result, state.detail.startswith("PREEMPTED")) == ("warn", True)
    assert run.failures() == {}
    known = run.folder.read_outcome()
    run.folder.write_outcome(known.model_copy(update={"status": "preempted", "exit_code": 75}))
    assert run.failures()["job/state"].startswith("PREEMPTED: ")


@pytest.mark.usefixtures("no_slurm")
def test_a_job_that_completed_and_who_said_so(run, job_of):
    job_of("good", hosts=1)
    checks = {check.name: check for check in run.checks() if check.group == "job"}
    assert run.failures() == {}
    assert "by sacct.json; sacct is not on PATH" in checks["state"].detail
    assert "of a limit of 0:10:00" in checks["elapsed"].detail


@pytest.mark.usefixtures("no_slurm")
def test_a_record_that_the_job_wrote_itself_cannot_know_its_end(run, job_of):
    job_of("good", hosts=1, State="RUNNING")
    state = next(check for check in run.checks() if check.name == "state")
    assert (state.result, "on the cluster only" in state.detail) == ("warn", True)
    assert run.failures() == {}


@pytest.mark.usefixtures("no_slurm")
def test_more_hosts_than_planned(run, job_of):
    job_of("good", hosts=2)
    assert "had 2 hosts (node[" in run.failures()["job/hosts"]
    assert "but 1 were planned" in run.failures()["job/hosts"]


@pytest.mark.usefixtures("no_slurm")
def test_longer_than_the_limit(run, job_of):
    job_of("good", hosts=1, ElapsedRaw="999")
    assert "ran 0:16:39, longer than its limit of 0:10:00" in run.failures()["job/elapsed"]


@pytest.mark.usefixtures("no_slurm")
def test_without_accounts_that_is_said(run, job_of):
    job_of("good")
    run.folder.sacct_path.unlink()
    run.folder.sacct_summary_path.unlink()
    note_checksums(run.folder)
    state = next(check for check in run.checks() if check.name == "state")
    assert (state.result, "sacct.json is not there" in state.detail) == ("warn", True)
    assert run.failures() == {}


@pytest.mark.usefixtures("no_slurm")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        *((text, "no job in the accounts") for text in ("[]", "{}")),
        *((text, "damaged") for text in ("", "{", "[3]", '{"jobs": 3}', '[{"JobID": "7"}]', "null", '"JobID"')),
    ],
)
def test_a_damaged_sacct_json(run, job_of, content, says):
    job_of("good")
    run.folder.sacct_path.write_text(content)
    assert says in run.failures()["job/state"]


@pytest.mark.usefixtures("no_slurm")
@pytest.mark.parametrize("name", ["job.json", "job.sbatch", "jobs.jsonl", "sacct_summary.txt", "sacct.json"])
def test_a_missing_file_of_a_job(run, job_of, name):
    job_of("good", hosts=1)
    (run.path / name).unlink()
    assert name in run.failures()["files/required"]


def test_sacct_is_asked_first(run, job_of, tmp_path, monkeypatch):
    """A program that says what a real sacct said, later than sacct.json was written."""
    job_of("good", hosts=1)
    rows = [{**row, "JobID": row["JobID"].replace(rows_of("timeout")[0]["JobID"], rows_of("good")[0]["JobID"])}
            for row in rows_of("timeout")]  # fmt: skip
    lines = ["\x1f".join(spent.COLUMNS), *("\x1f".join(row[name] for name in spent.COLUMNS) for row in rows)]
    program = tmp_path / "bin" / "sacct"
    program.parent.mkdir()
    (program.parent / "answer").write_text("\n".join(lines) + "\n")
    program.write_text(f"#!/bin/sh\n{shutil.which('cat')} '{program.parent}/answer'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    found = run.failures()["job/state"]
    assert found.startswith("TIMEOUT: ")
    assert found.endswith("by sacct)")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content):
    assert_read_or_refused(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(spent.COLUMNS), inner, max_size=24),
)


@given(JSON)
def test_any_json_is_read_or_refused(value):
    assert_read_or_refused(json.dumps(value).encode())


def assert_read_or_refused(content: bytes) -> None:
    message = "damaged"
    try:
        read_accounts(content)
    except UserError as error:
        message = error.message
    assert "damaged" in message
