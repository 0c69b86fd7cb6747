"""A dev cluster comes and goes: exit statuses, several at once, nothing left behind however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from graphmill_devcluster import requirements
from graphmill_devcluster.description import Description

GRAPHMILL = [sys.executable, "-m", "graphmill.cli", "devcluster"]
SMALL = ["--hosts", "1", "--no-ssh", "--no-accounting"]


@pytest.fixture(autouse=True)
def _can_run():
    refusal = requirements.why_not()
    if refusal:
        pytest.skip(refusal)


@pytest.fixture
def devcluster(source_environ, tmp_path):
    """Runs `graphmill devcluster …`, as from outside any cluster, with the state of `up` in the test's own folder."""
    environ = {**source_environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    environ.pop("GRAPHMILL_DEVCLUSTER", None)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*GRAPHMILL, *words], capture_output=True, text=True, env=environ, check=False)

    run.environ = environ
    yield run
    run("down")


def processes_with(word: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (path / "cmdline").read_bytes() and (path / "exe").exists():
                found.append(int(path.name))
        except OSError:
            continue
    return [process for process in found if process != os.getpid()]


@pytest.mark.parametrize(
    ("command", "code"), [pytest.param("exit 7", 7, marks=pytest.mark.slow), ("kill -TERM $$", 143)]
)
def test_the_exit_status_is_the_commands(devcluster, command, code):
    assert devcluster("run", *SMALL, "--", "sh", "-c", command).returncode == code


@pytest.mark.slow
def test_a_program_that_is_not_there(devcluster):
    result = devcluster("run", *SMALL, "--", "no-such-program")
    assert (result.returncode, "no-such-program cannot be started" in result.stderr) == (127, True)


@pytest.mark.slow
def test_standard_input_output_and_folder_are_the_commands(devcluster, tmp_path):
    words = [*GRAPHMILL, "run", *SMALL, "--", "sh", "-c", "cat; pwd"]
    options = {"capture_output": True, "text": True, "env": devcluster.environ, "cwd": tmp_path}
    done = subprocess.run(words, input="said\n", check=True, **options)
    assert done.stdout == f"said\n{tmp_path}\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_nothing_is_left_however_the_launcher_ends(devcluster, tmp_path, number):
    mark = f"{tmp_path}/mark-{int(number)}"
    job = f"sbatch --wrap='srun sh -c \"touch {mark}; sleep 300 # {mark}\"' -o /dev/null; sleep 300 # {mark}"
    process = subprocess.Popen([*GRAPHMILL, "run", *SMALL, "--", "sh", "-c", job], env=devcluster.environ)
    wait_until(Path(mark).exists, "the job runs")
    assert len(processes_with(mark)) > 2
    process.send_signal(number)
    process.wait()
    wait_until(lambda: not processes_with(mark), f"all processes are gone: {processes_with(mark)}")
    assert "graphmill" not in Path("/proc/mounts").read_text() or os.environ.get("GRAPHMILL_DEVCLUSTER")


@pytest.mark.slow
def test_two_at_once_do_not_see_each_other(devcluster):
    script = "sbatch -J mine -o /dev/null --wrap 'sleep 20'; sleep 1; squeue -h -o %j | wc -l"
    words = [*GRAPHMILL, "run", *SMALL, "--", "sh", "-c", script]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=devcluster.environ) for _ in range(2)]
    assert [process.communicate()[0].splitlines()[-1] for process in both] == ["1", "1"]


@pytest.mark.slow
def test_up_stays_and_down_leaves_nothing(devcluster):
    first = devcluster("up", *SMALL)
    assert (first.returncode, first.stdout.startswith("1 hosts are up;")) == (0, True), first.stderr
    assert devcluster("up", *SMALL).stdout.startswith("1 hosts are up already")
    other = devcluster("up", *SMALL, "--gpus", "1")
    assert (other.returncode, "another shape" in other.stderr) == (2, True)
    assert devcluster("node", "head", "--", "srun", "-N1", "hostname").stdout == "host1\n"
    assert devcluster("node", "host1", "hostname").stdout == "host1\n"
    assert devcluster("status").returncode == 0
    assert devcluster("crash", "host1").returncode == 0
    assert devcluster("status").returncode == 1
    assert "has no power" in devcluster("node", "host1", "hostname").stderr
    assert devcluster("boot", "host1").returncode == 0
    assert [devcluster(word, "host1").returncode for word in ("cut", "heal")] == [0, 0]
    assert devcluster("down").stdout == "the dev cluster is down\n"
    assert devcluster("status").returncode == 2
    assert devcluster("down").stdout == "no dev cluster was up\n"


@pytest.mark.slow
@pytest.mark.parametrize(("how", "state"), [("polled", "FAILED"), ("cgroup", "OUT_OF_MEMORY")])
def test_a_job_above_its_memory_is_killed(devcluster, tmp_path, how, state):
    if how == "cgroup" and requirements.why_not(Description(out_of_memory="cgroup")):
        pytest.skip(requirements.why_not(Description(out_of_memory="cgroup")))
    greedy = "x = b'x' * 300_000_000; import time; time.sleep(60)"
    (tmp_path / "job").write_text(f'#!/bin/sh\n#SBATCH --mem=60 -o {tmp_path}/out\n{sys.executable} -c "{greedy}"\n')
    ended = "squeue -h -t all -j $j -o %T | grep -vE 'RUN|PEND|COMPLETING'"
    watch = f"j=$(sbatch --parsable {tmp_path}/job); until {ended}; do sleep 0.2; done"
    result = devcluster("run", *SMALL, "--out-of-memory", how, "--", "sh", "-c", watch)
    assert result.stdout.split() == [state], result.stderr


def test_a_private_folder_is_as_big_as_asked(devcluster):
    command = "srun sh -c 'df --output=size -m /run/mine | tail -1; head -c 9M /dev/zero >/run/mine/x'"
    result = devcluster("run", *SMALL, "--private", "/run/mine", "--private-mib", "8", "--", "sh", "-c", command)
    assert result.stdout.split() == ["8"]
    assert "No space left" in result.stderr


def test_logs_are_kept_where_asked(devcluster, tmp_path):
    assert devcluster("run", *SMALL, "--keep-logs", str(tmp_path / "logs"), "--", "true").returncode == 0
    assert {"slurmctld.log", "slurmd.host1.log", "munged.log"} <= {path.name for path in (tmp_path / "logs").iterdir()}
