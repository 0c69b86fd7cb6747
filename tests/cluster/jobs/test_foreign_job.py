"""A job's script, and what it is made of, is submitted again by who submitted it on this machine, and nobody else."""

import json
import shutil
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.command import command_again, plan_command
from graphmill.cluster.jobs.sites import find_site
from graphmill.cluster.jobs.submit import _job_to_wait_for, folder_for, plan_request, request_of
from graphmill.record.documents import SubmittedJob
from graphmill.record.run_folder import RunFolder, make_empty_folder
from graphmill.runtime import trust
from graphmill.runtime.trust import TRUST_VARIABLE
from graphmill.spec.load import load_experiment
from graphmill.tasks.node_classification.data.prepare import prepare

TOY = """
name: toy
dataset: {name: synthetic/sbm}
train: {epochs: 1, batch_size: 60, num_neighbors: [4, 4], threads: 1, ranks: 1, device: cpu}
slurm: {site: devcluster, time: 10}
"""


@pytest.fixture(autouse=True)
def _of_this_person(tmp_path, monkeypatch):
    be(monkeypatch, tmp_path / "config")


def be(monkeypatch, config: Path) -> None:
    """Be the person with this configuration, who has not named anything since."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    monkeypatch.setattr(trust, "_named", set())


@pytest.fixture
def submitted(tmp_path) -> RunFolder:
    """As `submit` leaves a run, without a job."""
    (tmp_path / "toy.yaml").write_text(TOY)
    options = {"num_nodes": 300, "num_edges": 1500, "features": 8}
    prepare("synthetic/sbm", root=tmp_path / "data", options=options)
    experiment, logs = load_experiment(tmp_path / "toy.yaml"), tmp_path / "logs"
    site, folder = find_site("devcluster"), folder_for("a", logs)
    request = plan_request(experiment, site, dataset_root=tmp_path / "data", folder=folder, logs_root=logs)
    RunFolder.create(request.plan, logs)
    request.write()
    return folder


def test_ones_own_is_submitted_again_as_it_was_and_with_other_options(submitted):
    assert request_of(submitted).script == submitted.script_path.read_text()
    request_of(submitted, options=["slurm.time=20"]).write()
    assert request_of(submitted).job.time_s == 1200


@pytest.mark.parametrize("options", [[], ["slurm.time=20"]], ids=["verbatim", "rendered anew"])
def test_of_a_copy_on_another_machine_nothing_is_submitted_until_it_is_named(submitted, tmp_path, monkeypatch, options):
    there = RunFolder(tmp_path / "copied" / "a")
    shutil.copytree(submitted.path, there.path)
    be(monkeypatch, tmp_path / "of another")
    with pytest.raises(UserError, match=r"job\.sbatch and .*job\.json was not submitted by you") as refused:
        request_of(there, options=options)
    assert f"{TRUST_VARIABLE}=job.sbatch,job.json" in refused.value.fix
    monkeypatch.setenv(TRUST_VARIABLE, "job.sbatch,job.json")
    request_of(there, options=options)


@pytest.mark.parametrize("which", ["job.sbatch", "job.json"])
def test_what_was_changed_since_is_not_ones_own(submitted, which, tmp_path, monkeypatch):
    be(monkeypatch, tmp_path / "config")
    path = submitted.path / which
    if which == "job.sbatch":
        path.write_text(path.read_text() + "\nid > /tmp/x\n")
    else:
        path.write_text(json.dumps({**json.loads(path.read_text()), "setup_lines": ["id > /tmp/x"]}))
    for options in ([], ["slurm.time=20"]):
        with pytest.raises(UserError, match=rf"{which} was not submitted by you on this machine, or was changed"):
            request_of(submitted, options=options)


def test_a_command_of_a_copied_folder_is_not_submitted(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "jobs" / "c")
    request = plan_command(["sh", "-c", "id"], ["slurm.site=devcluster", "slurm.time=10"], folder)
    make_empty_folder(folder.path)
    request.write()
    assert command_again(folder, []).command.words == ("sh", "-c", "id")
    assert command_again(folder, [], dependency="afterok:17").submission.options == ("--dependency=afterok:17",)
    be(monkeypatch, tmp_path / "of another")
    with pytest.raises(UserError, match="was not submitted by you"):
        command_again(folder, [])


def test_who_waits_for_a_run_waits_for_the_last_of_its_jobs(submitted):
    request_of(submitted, options=["slurm.on_time_limit=requeue"]).write()
    for job_id in ("17", "18"):
        submitted.note_job(SubmittedJob(job_id=job_id, time=1.0))
    assert _job_to_wait_for(submitted).job_id == "18"
