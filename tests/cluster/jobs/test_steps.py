"""The commands that the driver gives to srun, without srun: what they start, as it would."""

import os
import subprocess
from pathlib import Path

import pytest

from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.steps import JobHere, Rendezvous, rank_command, single_python, staging_command
from graphmill.spec.world import World


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_the_schedulers_warning_does_not_kill_what_has_no_handler_for_it_yet(tmp_path: Path, launcher: str):
    """It reaches all processes of a step, and python takes a while to begin; here it comes before anything else."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -USR2 $$\n")
    python.chmod(0o755)
    words = [f"--python={python}", f"--launcher={launcher}", f"--staging-to={tmp_path}", str(tmp_path)]
    arguments, here = parse_arguments(words), JobHere("17", 1, tmp_path)
    commands = [
        rank_command(arguments, tmp_path, here, Rendezvous("localhost", 12345), 1),
        staging_command(arguments, tmp_path, here),
        single_python(arguments, tmp_path, here),
    ]
    started = [command[command.index("bash") :] for command in commands]
    assert [subprocess.run(words, check=False).returncode for words in started] == [0, 0, 0]


def test_each_process_of_a_run_with_roles_has_a_log_of_its_own(tmp_path: Path):
    """srun counts samplers among the ranks."""
    python = tmp_path / "py thon"
    python.write_text('#!/bin/sh\necho "task $SLURM_PROCID: $@"\necho error >&2\n')
    python.chmod(0o755)
    world = World(hosts=2, ranks=2, threads=1, samplers=2)
    arguments = parse_arguments([f"--python={python}", "--ranks-per-host=2", str(tmp_path)])
    run = tmp_path / "a run, 100 %"
    run.mkdir()
    command = rank_command(arguments, run, JobHere("17", 2, tmp_path), Rendezvous("localhost", 12345), 1, world)
    assert command[: command.index("bash")].count("--ntasks=4") == 1
    assert not any(word.startswith("--output") for word in command)
    for task in range(4):
        subprocess.run(command[command.index("bash") :], check=True, env={**os.environ, "SLURM_PROCID": str(task)})
    said = {path.stem: path.read_text() for path in run.iterdir()}
    assert sorted(said) == ["rank_0", "rank_1", "sampler_0", "sampler_1"]
    words = f"-P -m graphmill.train.worker {run} --resume\nerror\n"
    assert [said[stem] for stem in ("rank_0", "sampler_0", "rank_1", "sampler_1")] == [
        f"task {task}: {words}" for task in range(4)
    ]
