"""Another release of Slurm beside this machine's: unpacked without touching anything, and what runs in a cluster."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill_devcluster import releases
from graphmill_devcluster.description import Description
from graphmill_devcluster.requirements import missing_packages, why_not

GRAPHMILL = [sys.executable, "-m", "graphmill.cli"]
TESTS = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "graphmill" / "slurm"


def test_a_release_that_is_not_unpacked_is_not_taken(cache):
    with pytest.raises(UserError) as caught:
        releases.installed("trixie")
    assert caught.value.fix == "graphmill devcluster install trixie"


def test_a_folder_that_cannot_be_mounted_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    with pytest.raises(UserError, match="a:b"):
        releases.root_of("trixie")


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="there is no apt-get")
def test_what_cannot_be_fetched_leaves_what_was_there(cache):
    (cache / "trixie").mkdir(parents=True)
    (cache / "trixie" / "kept").touch()
    with pytest.raises(UserError, match="apt-get"):
        releases.install("trixie", "file:/nowhere")
    assert (cache / "trixie" / "kept").exists()


def test_its_programs_need_not_be_on_the_path(tmp_path, monkeypatch):
    """Nor is a Slurm of this machine's own needed."""
    (tmp_path / "usr/sbin").mkdir(parents=True)
    monkeypatch.setattr("graphmill_devcluster.requirements.environment", lambda _: {"PATH": "/nowhere"})
    before = set(missing_packages(Description(slurm_root=tmp_path)))
    for program in ("slurmd", "slurmctld"):
        (tmp_path / "usr/sbin" / program).touch(mode=0o755)
    assert before - set(missing_packages(Description(slurm_root=tmp_path))) == {"slurmd", "slurmctld"}


def test_what_is_no_such_folder_is_not_laid_over_this_machines(tmp_path):
    if why_not():
        pytest.skip(why_not())
    assert why_not(Description(ssh=False, accounting=False, slurm_root=tmp_path))


def run_on(release: str | None, *command: str) -> subprocess.CompletedProcess[str]:
    words = [] if release is None else [f"--release={release}"]
    start = [*GRAPHMILL, "devcluster", "run", *words, "--", *command]
    return subprocess.run(start, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_its_programs_are_those_of_the_cluster_and_nobody_elses(trixie):
    before = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=False).stdout
    done = run_on("trixie", "sh", "-c", "scontrol --version; slurmd -V; srun -N2 slurmd -V; scontrol show config")
    assert done.stdout.splitlines()[:4] == [trixie] * 4
    assert f"SLURM_VERSION           = {trixie.split()[-1]}\n" in done.stdout
    after = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=False).stdout
    assert before == after


HELD = {
    "hosts, faults, accounts": "tests/cluster/jobs/test_devcluster.py",
    "submit": "tests/cluster/jobs/test_submit.py",
    "watch and stop": "tests/cluster/jobs/test_watch.py",
    "verify": "tests/cluster/jobs/test_verify_job.py",
    "limits and killed ranks": "tests/cluster/jobs/test_lifecycle.py",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", HELD)
def test_what_holds_on_this_machines_slurm_holds_on_it(trixie, what):
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", "--rootdir", str(TESTS.parent)]
    done = run_on("trixie", sys.executable, "-m", "pytest", *options, str(TESTS.parent / HELD[what]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout.splitlines()[-1]
