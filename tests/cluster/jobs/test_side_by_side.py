"""Cells that share a job: each is what it would be alone, whatever befalls its neighbours."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.driver import Driver, port_key
from graphmill.cluster.jobs.side_by_side import _has_failed_for_good, train_side_by_side
from graphmill.cluster.jobs.srun_step import Signals
from graphmill.cluster.jobs.steps import JobHere, Rendezvous, environment, rank_command
from graphmill.cluster.jobs.study import _tasks, _tasks_at_once
from graphmill.cluster.launch.attempt import Decision
from graphmill.record.documents import Attempt, Outcome
from graphmill.record.events import Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WeightsFile
from graphmill.tasks.node_classification.data.prepare import prepare

WORDS = ["--python=python", "--ranks-per-host=2", "--cpus-per-rank=3"]
LONG_S = 240.0  # for a machine that others use as well


def test_a_step_takes_its_share_and_no_more(tmp_path):
    here = JobHere("17", 1, tmp_path, memory_mib=700)
    shared = parse_arguments([*WORDS, "--side-by-side=4", "--gpus-per-host=2", str(tmp_path)])
    command = rank_command(shared, tmp_path, here, Rendezvous("localhost", 12345), 1)
    assert {"--exact", "--mem=700", "--gres=gpu:2", "--cpus-per-task=3", "--ntasks=2"} <= set(command)
    without = parse_arguments([*WORDS, "--side-by-side=4", str(tmp_path)])
    assert "--gres=none" in rank_command(without, tmp_path, here, Rendezvous("localhost", 12345), 1)
    alone = rank_command(parse_arguments([*WORDS, str(tmp_path)]), tmp_path, here, Rendezvous("localhost", 12345), 1)
    assert not {word.partition("=")[0] for word in alone} & {"--exact", "--mem", "--gres"}
    given = {"SLURM_GPUS_PER_NODE": "8", "PATH": "/bin"}
    assert environment(shared, given, None) == {"PATH": "/bin"}, "srun would ask for the GPUs of all of them"
    assert environment(parse_arguments([*WORDS, str(tmp_path)]), given, None) == given


@pytest.mark.parametrize(
    ("environ", "share"),
    [
        ({"SLURM_MEM_PER_NODE": "801"}, 400),
        ({}, None),
        ({"SLURM_MEM_PER_CPU": "500"}, None),
        ({"SLURM_MEM_PER_NODE": "0"}, 0),
    ],
)
def test_memory_is_shared_out(environ, share, tmp_path):
    two = parse_arguments([*WORDS, "--side-by-side=2", str(tmp_path)])
    assert Driver(two, environ, Signals()).job_here.memory_mib == share
    assert Driver(parse_arguments([*WORDS, str(tmp_path)]), environ, Signals()).job_here.memory_mib is None


def test_runs_of_a_job_look_for_ports_apart_from_each_other():
    assert len({port_key(17, number) for number in range(64)}) == 64


@pytest.mark.parametrize(
    ("number", "together", "tasks", "counts"),
    [
        (5, 2, [0, 0, 1, 1, 2], [2, 2, 2, 2, 1]),
        (3, 3, [0, 0, 0], [3, 3, 3]),
        (2, 1, [0, 1], [1, 1]),
    ],
)
def test_every_cell_is_in_one_task(number, together, tasks, counts):
    found = list(_tasks("9", number, together))
    assert [each["job_id"] for each in found] == [f"9_{task}" for task in tasks]
    assert [each["side_by_side"] for each in found] == counts


def test_at_once_counts_cells():
    assert (_tasks_at_once(9, 4), _tasks_at_once(None, 4)) == (2, None)
    with pytest.raises(UserError, match="--at-once 3 is less than the 4 cells"):
        _tasks_at_once(3, 4)


@pytest.mark.parametrize(
    ("status", "is_left"),
    [
        ("bad_request", True),
        ("failed", True),
        ("out_of_time", False),
        ("lost", False),
        ("preempted", False),
        ("done", False),
        (None, False),
    ],
)
def test_a_run_that_failed_is_not_tried_again_for_the_sake_of_others(new_run, status, is_left):
    folder, _ = new_run(1)
    begun = Attempt(time=1.0, hostname="h", pid=1, resumed=False, command=(), job_id="17", code="c")
    folder.attempts_path.write_text(begun.model_dump_json() + "\n")
    if status is not None:
        folder.write_outcome(Outcome(status=status, exit_code=1, epochs=0, steps_per_rank=0, wall_s=1.0))
    assert _has_failed_for_good(folder, {"SLURM_JOB_ID": "17"}) == is_left
    assert not _has_failed_for_good(folder, {"SLURM_JOB_ID": "18"}), "a person has submitted it again"
    folder.ask_to_stop()
    assert _has_failed_for_good(folder, {"SLURM_JOB_ID": "17"}) == (status not in (None, "done"))


def test_a_cell_that_a_signal_ended_is_tried_again_with_the_others(new_run):
    folder, _ = new_run(1)
    begun = Attempt(time=1.0, hostname="h", pid=1, resumed=False, command=(), job_id="17", code="c")
    folder.attempts_path.write_text(begun.model_dump_json() + "\n")
    ended = Outcome(status="failed", exit_code=1, epochs=0, steps_per_rank=0, wall_s=1.0, may_pass=True)
    folder.write_outcome(ended)
    assert _has_failed_for_good(folder, {"SLURM_JOB_ID": "17"}, 0)
    assert not _has_failed_for_good(folder, {"SLURM_JOB_ID": "17"}, 1)


FINISH = Decision("finish", "the run is done", 0)
RETRY = Decision("retry", "by requeue", 75)
FAILED = Decision("give_up", "not retried", 1)


@pytest.mark.parametrize(
    ("decisions", "code"),
    [
        ((FINISH, FINISH), 0),
        ((RETRY, FINISH), 75),
        ((RETRY, FAILED), 1),
        ((FAILED, RETRY, RETRY), 1),
    ],
)
def test_a_job_of_several_runs_ends_as_the_worst_and_is_noted_in_all_that_go_on(new_run, stand_ins, decisions, code):
    folders = [new_run(1, run_id=f"cell-{number}")[0] for number in range(len(decisions))]
    environ = {**os.environ, "SLURM_JOB_ID": "17"}
    arguments = parse_arguments([*WORDS, f"--side-by-side={len(folders)}", *(str(each.path) for each in folders)])

    class Decided(Driver):
        def train(self, folder):
            return decisions[self.number]

    drivers = [Decided(arguments, environ, Signals(), number) for number in range(len(folders))]
    assert train_side_by_side(drivers, folders, environ) == code
    goes_on = [decision is RETRY for decision in decisions]
    assert [[(job.job_id, job.how) for job in folder.jobs()] for folder in folders] == [
        [("17", "requeue")] if each else [] for each in goes_on
    ]
    assert len([words for words in stand_ins.asked("scontrol") if words.startswith("requeue")]) == any(goes_on)


BREAKS = """
import torch

class Breaks(torch.nn.Linear):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)

    def forward(self, x, edge_index):
        assert len(x) < 20, "too many nodes"
        return super().forward(x)
"""
TOY = """
name: toy
dataset: {name: synthetic/sbm}
model: {hidden_channels: 8}
train: {epochs: 60, batch_size: 30, num_neighbors: [4, 4], threads: 1, device: cpu, evaluate_every_epochs: 20,
        checkpoint: {every_steps: 20}}
slurm: {site: devcluster, time: 5, mem: 600M, cpus_per_host: 1, ranks_per_host: 1}
"""
GRID = """
name: grid
experiment: toy.yaml
cells: [{name: small, model.hidden_channels: 4}, {name: large, model.hidden_channels: 12}]
seeds: [1, 2]
"""


def graphmill(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphmill.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=dict(os.environ))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("grid")
    prepare("synthetic/sbm", root=root / "data", options={"num_nodes": 1500, "num_edges": 6000, "features": 16})
    (root / "toy.yaml").write_text(TOY)
    (root / "grid.yaml").write_text(GRID)
    return root


def submitted(root: Path, logs: str, *words: str) -> list[RunFolder]:
    done = graphmill(
        "study", "submit", "grid.yaml", "--dataset-root", "data", "--logs-root", logs, "--json", *words, cwd=root
    )
    assert done.returncode == 0, done.stderr
    return [RunFolder(Path(job["run"])) for job in json.loads(done.stdout)["jobs"]]


def last_weights(folder: RunFolder) -> dict[str, str]:
    last = max(folder.checkpoints_dir.glob("step_*"))
    return {path.name: WeightsFile.read(path).compute_checksum() for path in sorted(last.glob("*.safetensors"))}


def statuses(folders) -> list[str | None]:
    outcomes = [folder.read_outcome() for folder in folders]
    return [None if outcome is None else outcome.status for outcome in outcomes]


def steps_done(folder: RunFolder) -> int:
    path = folder.events_path(0)
    return max((event.steps_done for event in events_in(path, Sync)), default=0) if path.exists() else 0


@pytest.mark.slow
def test_cells_that_share_jobs_end_as_they_would_alone(slurm, root):
    alone = graphmill("study", "run", "grid.yaml", "--dataset-root", "data", "--logs-root", "alone", cwd=root)
    assert alone.returncode == 0, alone.stderr
    folders = submitted(root, "logs", "--pack", "2")
    numbers = [folder.jobs()[0].job_id.partition("_")[2] for folder in folders]
    assert numbers == ["0", "0", "1", "1"]
    slurm.wait_until(lambda: statuses(folders) == ["done"] * 4, "all cells", LONG_S)
    for folder in folders:
        assert last_weights(folder) == last_weights(RunFolder(root / "alone" / "grid" / folder.path.name))
    first, second = (events_in(folder.events_path(0)) for folder in folders[:2])
    assert first[0].time < second[-1].time, "they ran at the same time"
    assert second[0].time < first[-1].time
    for folder in folders:
        verified = graphmill("verify", folder.path, cwd=root)
        assert verified.returncode == 0, verified.stdout
    epilog = json.loads(folders[0].epilog_path.read_text())
    assert epilog["asked"]["memory_mib"] == 600, "of this run, not of both"


@pytest.mark.slow
def test_what_has_not_finished_is_requeued_once_and_what_failed_is_left(slurm, root):
    """One fails at once; the other is warned of a limit, and goes on in the same job's next run."""
    (root / "own.py").write_text(BREAKS)
    (root / "two.yaml").write_text(
        "name: two\nexperiment: toy.yaml\nseeds: [1]\n"
        "cells: [{name: breaks, model: {kind: custom, target: own.Breaks}}, {name: goes-on, train.epochs: 300}]\n"
    )
    words = ("study", "submit", "two.yaml", "--dataset-root", "data", "--logs-root", "two", "--pack", "2", "--json")
    done = graphmill(*words, cwd=root)
    assert done.returncode == 0, done.stderr
    breaks, goes_on = (RunFolder(Path(job["run"])) for job in json.loads(done.stdout)["jobs"])
    job = goes_on.jobs()[0].job_id
    slurm.wait_until(lambda: steps_done(goes_on) > 24, "some steps", LONG_S)
    slurm.wait_until(lambda: statuses([breaks]) == ["failed"], "the failure", LONG_S)
    one = graphmill("stop", goes_on.path, cwd=root)
    assert one.returncode == 2
    assert f"graphmill stop {job}" in one.stderr
    slurm.call("scontrol", "update", f"jobid={job}", "endtime=now+6seconds")
    slurm.call("scancel", "--signal=USR2", job)
    slurm.wait_until(lambda: len(goes_on.jobs()) > 1, "the requeue", LONG_S)
    slurm.call("scontrol", "update", f"jobid={job}", "timelimit=10")
    slurm.wait_until(lambda: statuses([goes_on]) == ["done"], "the end", LONG_S)
    assert [each.how for each in goes_on.jobs()] == ["submit", "requeue"]
    assert len(breaks.attempts()) == 1
    log = next(goes_on.path.parent.glob("slurm-*.out")).read_text()
    assert len(re.findall(r"graphmill: breaks\S*: not tried again", log)) == 1
    slurm.wait_until(lambda: not slurm.call("squeue", "--noheader"), "an empty queue", LONG_S)
