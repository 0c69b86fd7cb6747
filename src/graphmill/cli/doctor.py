"""`doctor`: what this machine has, or the hosts of a job, and what would fail there."""

import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cli.job_options import JobOptions
from graphmill.cli.options import DatasetRoot, Json, LogsRoot, Overrides, resolved_dataset_root, takes_groups
from graphmill.cli.show import Cell, print_json, print_line, print_table

if TYPE_CHECKING:
    from graphmill.cluster.jobs.examine import Examination
    from graphmill.diagnose.job_hosts import HostReport
    from graphmill.runtime.checks import CheckResult

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(takes_groups(doctor))


def doctor(
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
    override: Overrides = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --hosts: show the script and what Slurm says of it; submit nothing.")
    ] = False,
    json: Json = False,
    job: JobOptions,
) -> None:
    """Show what this machine has, and what would fail; with --hosts N, what N hosts of the cluster have.

    Cores, memory, GPUs, backends, versions, disk. With --hosts a job of a minute looks at each of its hosts: whether
    they know each other's names, see the same files, meet and run the same program; the time of a sum over all, their
    clocks, TMPDIR, GPUs that torch has code for. Ctrl-C ends the job.
    Exit status 1 if something needed is missing.

    \b
    Example:
      graphmill doctor
      graphmill doctor --json --dataset-root /scratch/data
      graphmill doctor --hosts 2 --site perlmutter --account m1234 --dry-run
      graphmill doctor --hosts 4 --site perlmutter --account m1234 --gpus-per-host 1
    """
    overrides = [*(override or []), *job.overrides()]
    if any(text.partition("=")[0] == "slurm.hosts" for text in overrides):
        _doctor_of_hosts(overrides, logs_root, dry_run=dry_run, json=json)
        return
    if overrides or dry_run:
        raise UserError(
            f"{overrides[0].partition('=')[0] if overrides else '--dry-run'} is for hosts of a cluster, and this looks"
            " at the machine here",
            fix="add --hosts N",
        )
    from graphmill.runtime.checks import examine

    findings = examine(dataset_root=resolved_dataset_root(root), logs_root=logs_root, environ=os.environ)
    if json:
        print_json({"ok": _is_healthy(findings), "findings": findings})
    else:
        _tell(findings)
    if not _is_healthy(findings):
        raise typer.Exit(exits.ANSWER_IS_NO)


def _doctor_of_hosts(overrides: Sequence[str], logs_root: Path, *, dry_run: bool, json: bool) -> None:
    from graphmill.cluster.jobs.examine import examine_hosts, plan_examination
    from graphmill.diagnose.job_hosts import findings_of

    folder = logs_root.absolute() / "doctor" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    examination = plan_examination(overrides, folder)
    if dry_run:
        _show(examination, json=json)
        return
    report = examine_hosts(examination, os.environ, _log.info)
    findings = findings_of(report)
    if json:
        print_json({"ok": _is_healthy(findings), "findings": findings, "report": report, "folder": folder})
    else:
        _tell_hosts(report)
        _tell(findings)
    if not _is_healthy(findings):
        raise typer.Exit(exits.ANSWER_IS_NO)


def _show(examination: "Examination", *, json: bool) -> None:
    """The script and Slurm's answer to it; nothing is written."""
    from graphmill.cli.submit import slurms_answers

    with slurms_answers([examination.submission]) as (answer,):
        if json:
            print_json({"job": examination.job, "script": examination.submission.script, "slurm_says": answer})
            return
        print_line(examination.submission.script)
        if answer is not None:
            print_line(f"slurm says: {answer}")
        print_line("nothing was written, and nothing submitted")


def _tell_hosts(report: "HostReport") -> None:
    rows: list[list[Cell]] = [
        [
            host.host,
            host.num_cores,
            f"{host.memory_bytes / 2**30:.1f}",
            len(host.gpus),
            f"{host.temporary.free_bytes / 2**30:.1f}",
            host.temporary.file_system,
        ]
        for host in report.hosts
    ]
    print_table(("host", "cores", "GiB", "GPUs", "TMPDIR, GiB free", "of type"), rows)


def _tell(findings: "Sequence[CheckResult]") -> None:
    print_table(("what", "result", "detail"), [[each.name, each.result, each.detail] for each in findings])
    troubles = [finding for finding in findings if finding.result != "ok"]
    for finding in troubles:
        print_line(f"{finding.result}: {finding.name}: what would fail: {finding.would_fail}")
    if not troubles:
        print_line("nothing would fail")


def _is_healthy(findings: "Sequence[CheckResult]") -> bool:
    return all(finding.result != "fail" for finding in findings)
