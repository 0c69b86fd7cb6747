"""What Slurm's programs print, read; what its words mean. And when a program is missing, silent or refuses."""

import re
from pathlib import Path

import pytest

from graphmill.record.documents import SubmittedJob
from graphmill.slurm.accounting import sacct
from graphmill.slurm.commands import (
    SlurmMissingError,
    SlurmRefusedError,
    SlurmSilentError,
    environment,
    sbatch,
    scancel,
    squeue,
)
from graphmill.slurm.queue import Queue
from graphmill.slurm.states import explain_reason, phase


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs that say what a real one once said: `programs(squeue="…")`; all others are absent."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(**bodies: str) -> None:
        for name, body in bodies.items():
            path = folder / name
            path.write_text(f"#!/bin/bash\n{body}\n")
            path.chmod(0o755)

    return make


SQUEUE_22_05 = """1|COMPLETED|0:00|2:00|4|node[1-4]|1795259310|1795259310|1795259310|debug|None|sh
2|PENDING|0:00|10:00|2||1795259310|N/A|N/A|debug|ReqNodeNotAvail, UnavailableNodes:node[1-2]|/tmp/a|b/job.sbatch
3_4|RUNNING|1-02:03:04|UNLIMITED|1|node1|1795259310|1795259311|N/A|debug|None|/tmp/ok.sh
"""


def test_what_squeue_prints(programs):
    programs(squeue=f"echo '{SQUEUE_22_05}'")
    done, waits, runs = squeue(["1", "2", "3_4"])
    assert (done.state, done.num_hosts, done.hosts, done.end) == ("COMPLETED", 4, "node[1-4]", 1795259310)
    assert (waits.reason, waits.start, waits.command) == (
        "ReqNodeNotAvail, UnavailableNodes:node[1-2]", None, "/tmp/a|b/job.sbatch",
    )  # fmt: skip
    assert (runs.job_id, runs.elapsed_s, runs.limit_s) == ("3_4", 93784, None)


def accounts(*lines: str) -> str:
    """What sacct prints, cells between bars: it is told to put another character there."""
    head = "JobID|State|ExitCode|ElapsedRaw|TimelimitRaw|Submit|Start|End|NNodes|NodeList"
    return "; ".join(f"echo '{line}'" for line in (head, *lines)).replace("|", "\x1f")


def test_what_sacct_prints(programs):
    programs(
        sacct=accounts(
            "7|REQUEUED|0:0|13|2|10|11|24|2|node[1-2]",
            "7|CANCELLED by 1000|0:15|5|2|25|26|31|2|node3",
            "7_[3-9]|PENDING|0:0|0||10|Unknown|Unknown|1|None assigned",
        )
    )
    first, last = sacct(["7"])
    assert (first.state, last.state, last.signal, last.limit_s) == ("REQUEUED", "CANCELLED", 15, 120)
    assert sacct([]) == []


def test_one_forgotten_job_is_no_error(programs):
    programs(squeue="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert squeue(["77"]) == []


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            SlurmSilentError,
        ),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", SlurmSilentError),
        ("sbatch: error: Munge encode failed: Failed to connect to munged", SlurmSilentError),
        ("sbatch: error: invalid partition specified: nope", SlurmRefusedError),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination",
            SlurmRefusedError,
        ),
        ("Slurm accounting storage is disabled", SlurmMissingError),
    ],
)
def test_kinds_of_failure(programs, said, kind):
    programs(sbatch=f"echo '{said}' >&2; exit 1")
    with pytest.raises(kind, match=re.escape(said)):
        sbatch(Path("/tmp/x"))


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: fetch_config: DNS SRV lookup failed\nsbatch: fatal: Could not establish a configuration source",
        "sbatch: error: s_p_parse_file: unable to status file /etc/slurm/slurm.conf: No such file or directory\n"
        "sbatch: fatal: Unable to process configuration file",
    ],
)
def test_a_machine_of_no_cluster(programs, said):
    """Slurm's programs are installed, and nothing says where the controller is."""
    programs(sbatch=f"echo '{said}' >&2; exit 1")
    with pytest.raises(SlurmMissingError, match="no Slurm cluster from here") as refused:
        sbatch(Path("/tmp/x"))
    assert said.rpartition("fatal: ")[2] in refused.value.message
    assert "login node" in refused.value.fix


def test_an_absent_program_and_one_that_hangs(programs):
    with pytest.raises(SlurmMissingError, match="sbatch is not on PATH"):
        sbatch(Path("/tmp/x"))
    programs(sbatch="while :; do :; done")
    with pytest.raises(SlurmSilentError, match="gave no answer"):
        sbatch(Path("/tmp/x"), timeout_s=0.2)


@pytest.mark.parametrize("said", ["17", "17;pitzer", "Welcome!\\n17"])
def test_the_number_of_a_job(programs, said):
    programs(sbatch=f"echo -e '{said}'")
    assert sbatch(Path("/tmp/x")).job_id == "17"


@pytest.mark.parametrize("why", ["Invalid job id specified", "Job/step already completing or completed"])
def test_cancelling_what_is_gone(programs, why):
    programs(scancel=f"echo 'scancel: error: Kill job error on job id 2_0: {why}' >&2; exit 1")
    scancel(["2_0"])


def test_no_variable_of_the_person_changes_an_answer():
    kept = environment(
        {"SQUEUE_FORMAT": "x", "SLURM_JOB_ID": "1", "SLURM_CONF": "/c", "PATH": "/bin", "SACCT_FORMAT": ""}
    )
    assert kept == {"SLURM_CONF": "/c", "PATH": "/bin", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def test_state_comes_from_squeue_else_sacct_else_nobody_knows(programs):
    job = SubmittedJob(job_id="7", time=0.0)
    queue = Queue()
    assert queue.read([job]) == {}
    assert len(queue.troubles) == 2
    programs(sacct=accounts("7|RUNNING|0:0|13|2|10|11|Unknown|2|node1"))
    assert queue.read([job])["7"].source == "sacct"
    programs(squeue="echo '7|PENDING|0:00|1:00|1||10|N/A|N/A|debug|Priority|x'")
    reading = queue.read([job])["7"]
    assert (reading.source, reading.reason, reading.is_alive, queue.troubles) == ("squeue", "Priority", True, ())


def test_a_silent_queue_is_one_that_may_answer_yet(programs):
    job = SubmittedJob(job_id="7", time=0.0)
    queue = Queue()
    assert (queue.read([job]), queue.is_silent) == ({}, False), "an absent program will not answer"
    programs(squeue="echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    assert (queue.read([job]), queue.is_silent) == ({}, True)
    programs(squeue="exit 0")
    assert (queue.read([job]), queue.is_silent) == ({}, False)


def test_accounts_that_lag_do_not_revive_a_job_that_left_the_queue(programs):
    programs(squeue="exit 0", sacct=accounts("7|RUNNING|0:0|13|2|10|11|Unknown|2|node1"))
    assert Queue().read([SubmittedJob(job_id="7", time=0.0)]) == {}


def test_an_ended_job_is_asked_for_once(programs, tmp_path):
    programs(squeue="exit 0", sacct=f"echo x >>{tmp_path}/count; {accounts('7|FAILED|3:0|13|2|10|11|24|2|node1')}")
    queue = Queue()
    for _ in range(3):
        assert queue.read([SubmittedJob(job_id="7", time=0.0)])["7"].exit_code == 3
    assert (tmp_path / "count").read_text() == "x\n"


@pytest.mark.parametrize(
    ("reason", "told", "is_hopeless"),
    [
        ("Priority", "higher priority", False),
        ("Resources", "hosts to become free", False),
        ("QOSMaxJobsPerUserLimit", "as many jobs of one user", False),
        ("QOSMaxWallDurationPerJobLimit", "more run time than the quality of service allows a job", True),
        ("PartitionTimeLimit", "more time than its Slurm partition allows", True),
        ("PartitionNodeLimit", "more hosts than one job may have", True),
        ("AssocGrpCPUMinutesLimit", "your account has used up its budget of minutes of cores", True),
        ("AssocGrpCPURunMinutesLimit", "running jobs use all the cores", False),
        ("AssocGrpWallLimit", "your account has used up its budget of run time", True),
        ("AssocMaxCpuMinutesPerJobLimit", "more minutes of cores than your account allows a job", True),
        ("QOSMinGRES", "less GPUs than", True),
        ("ReqNodeNotAvail, UnavailableNodes:node[1-2]", "(node[1-2])", False),
        ("(launch failed requeued held)", "could not be started", True),
        ("DependencyNeverSatisfied", "can never start", True),
        ("BeginTime", "after a requeue", False),
        ("None", "not looked at it yet", False),
        ("", "not looked at it yet", False),
        ("SomethingNew", "Slurm says SomethingNew", False),
    ],
)
def test_reasons_in_words(reason, told, is_hopeless):
    said = explain_reason(reason)
    assert told in said.meaning
    assert said.is_hopeless is is_hopeless
    assert said.advice or not is_hopeless


LIBRARY = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm/libslurmfull.so")


@pytest.mark.skipif(not LIBRARY.exists(), reason="no Slurm here whose words could be listed")
def test_every_limit_that_slurm_knows_has_words():
    words = re.findall(rb"\0((?:Assoc(?:Grp|Max)|QOS(?:Grp|Max|Min))[A-Za-z]+)(?=\0)", LIBRARY.read_bytes())
    assert len(words) > 100
    assert [word for word in words if explain_reason(word.decode()).meaning.startswith("Slurm says")] == []


def test_phases():
    assert (phase("PENDING"), phase("COMPLETING"), phase("NODE_FAIL")) == ("waits", "runs", "ended")
