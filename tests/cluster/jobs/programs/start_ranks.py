"""Starts the ranks of a job with the driver's own arguments, command and environment, and no run: RUN_FOLDER WORDS…"""

import os
import subprocess
import sys
from pathlib import Path

from graphmill.cluster.jobs.arguments import parse_arguments
from graphmill.cluster.jobs.steps import JobHere, Rendezvous, environment, rank_command

arguments = parse_arguments(sys.argv[2:])
here = JobHere(os.environ["SLURM_JOB_ID"], int(os.environ["SLURM_JOB_NUM_NODES"]), Path.cwd())
meet = Rendezvous("localhost", 12345)
command = rank_command(arguments, Path(sys.argv[1]), here, meet, 1)
sys.exit(subprocess.run(command, env=environment(arguments, os.environ, meet), check=False).returncode)
