"""The commands that the driver gives to srun, without srun: what they start, as it would."""

import subprocess
from pathlib import Path

import pytest

from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.steps import JobHere, Rendezvous, rank_command, single_python, staging_command


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
