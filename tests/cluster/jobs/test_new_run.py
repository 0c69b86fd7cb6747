"""The run that a script's job makes for itself."""

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.new_run import find_or_make
from graphmill.tasks.node_classification.data.prepare import prepare


def made(tmp_path, toy, environ):
    words = ["--python=python", f"--experiment={toy}", f"--run-id=toy-{environ.get('SLURM_JOB_ID')}"]
    words += [f"--logs-root={tmp_path}/logs", f"--dataset-root={tmp_path}", "--override=train.epochs=1"]
    arguments = parse_arguments([*words, "--override=train.seed=40"])
    folder = find_or_make(arguments, environ)
    assert find_or_make(arguments, environ).path == folder.path, "an attempt that follows finds it"
    return folder.read_plan()


def test_tasks_of_an_array_are_repetitions_with_seeds_of_their_own(tmp_path, toy):
    """Equal ones would be one run, several times over, and a spread of zero."""
    prepare("synthetic/sbm", root=tmp_path, options={"num_nodes": 400, "num_edges": 1600, "features": 2})
    plans = [
        made(tmp_path, toy, {"SLURM_JOB_ID": f"1{index}", "SLURM_ARRAY_TASK_ID": str(index)}) for index in (0, 1, 3)
    ]
    assert [plan.seed for plan in plans] == [40, 41, 43]
    assert len({plan.run_id for plan in plans}) == 3
    assert made(tmp_path, toy, {"SLURM_JOB_ID": "20"}).seed == 40


def test_with_roles_the_ranks_are_what_samplers_leave_of_the_processes(tmp_path, toy):
    prepare("synthetic/sbm", root=tmp_path, options={"num_nodes": 400, "num_edges": 1600, "features": 2})
    words = [f"--experiment={toy}", f"--logs-root={tmp_path}/logs", f"--dataset-root={tmp_path}"]
    words += ["--override=roles.samplers=2", "--override=roles.trainers=4"]
    environ = {"SLURM_JOB_NUM_NODES": "2"}
    plan = find_or_make(parse_arguments([*words, "--run-id=r", "--ranks-per-host=2"]), environ).read_plan()
    assert (plan.ranks, plan.roles.samplers, plan.roles.trainers, plan.hosts) == (2, 2, 2, 2)
    with pytest.raises(UserError, match=r"starts 2 processes, and roles\.samplers takes 2"):
        find_or_make(parse_arguments([*words, "--run-id=s", "--ranks-per-host=1"]), environ)
