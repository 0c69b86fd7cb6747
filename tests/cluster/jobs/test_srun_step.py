"""What is read out of the lines that an srun prints."""

import threading
from types import SimpleNamespace

import pytest

from graphmill.cluster.jobs.srun_step import SrunStep


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["srun: error: host1: task 0: Exited with exit code 1", "srun: Terminating StepId=7.0"], ""),
        (["slurmstepd: error: *** STEP 7.0 ON host1 CANCELLED AT 2026-11-23T10:00:00 ***"], ""),
        (
            ["stage host2: error: /run/local: 3 MiB free", "srun: error: host2: task 1: Exited with exit code 1"],
            "/run/local: 3 MiB free",
        ),
        (["error: no interface ib9 on host1", "  → set slurm.interface", "error: other"], "no interface ib9 on host1"),
        (
            ["slurmstepd: error: execve(): /opt/python: No such file or directory"],
            "execve(): /opt/python: No such file or directory",
        ),
        (["srun: error: Unable to create step for job 7: More processors requested than permitted"],
         "Unable to create step for job 7: More processors requested than permitted"),
        (["Traceback (most recent call last):"], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_the_first_error_that_is_a_reason(lines, said):
    step = SrunStep(SimpleNamespace(poll=lambda: 1), lines, threading.Thread())
    assert step.first_error() == said
