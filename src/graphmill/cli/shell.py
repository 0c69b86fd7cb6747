"""`shell`: a shell beside the ranks of a running job."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from graphmill.base.errors import UserError
from graphmill.cli.options import LogsRoot
from graphmill.cli.show import print_line


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(shell)


def shell(
    run: Annotated[str, typer.Argument(metavar="RUN|JOB", help="A run, or the number of its job.")],
    *,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", show_default=False, help="One of the job's hosts; else the first."),
    ] = None,
    logs_root: LogsRoot = Path("logs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command and stop.")] = False,
) -> None:
    """Open a shell on a host of a running job, beside its ranks, for `top`, `nvidia-smi` or `py-spy`.

    It takes no CPU and no memory from what the job was given (`srun --overlap`), and ends with the job.

    \b
    Example:
      graphmill shell 4711
      graphmill shell my-run --host node3
    """
    from graphmill.cli.find_run import find_by_name_or_job
    from graphmill.cluster.jobs.steps import shell_command
    from graphmill.cluster.stop import find_targets
    from graphmill.slurm.commands import find_program
    from graphmill.slurm.hostlist import expand_hostlist

    targets = find_targets(find_by_name_or_job(run, logs_root))
    running = [job for target in targets for job in target.jobs if job.phase == "runs"]
    if not running:
        raise UserError(f"no job of {run} runs at the moment", fix="`graphmill watch` shows what it waits for")
    if len(running) > 1:
        raise UserError(f"{run} has {len(running)} running jobs", fix=f"name one: {running[0].job_id}")
    hosts = expand_hostlist(running[0].hosts)
    if host is not None and host not in hosts:
        raise UserError(f"job {running[0].job_id} does not run on {host}", fix=f"--host {', or '.join(hosts)}")
    command = shell_command(running[0].job_id, host or hosts[0], os.environ.get("SHELL") or "bash")
    if dry_run:
        print_line(shlex.join(command))
        return
    os.execv(find_program(command[0]), command)  # a list of arguments, no shell of ours
