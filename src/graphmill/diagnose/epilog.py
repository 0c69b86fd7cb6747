"""The epilog of a job: what it asked for, what was measured while it ran, what Slurm accounted, what to ask next time.

`python -m graphmill.diagnose.epilog RUN_FOLDER [--job ID]` writes epilog.json, epilog.txt, sacct.json and
sacct_summary.txt into the run folder, and prints epilog.txt. It can be written again at any time: accounting is more
complete later than in the job's last seconds. A part that is not available is left out, and the epilog says why.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.files import write_json, write_text
from graphmill.base.foreign import printable
from graphmill.base.messages import show_messages
from graphmill.diagnose.advice import JobUsage, advise
from graphmill.diagnose.bottleneck_facts import measured_of
from graphmill.diagnose.epilog_text import epilog_text
from graphmill.diagnose.rules import Finding, find_bottleneck
from graphmill.monitor.summary import HostSummary, MonitorSummary, read_monitors, summarise
from graphmill.record.checksums import renew_checksums
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import StagedHost, read_staged
from graphmill.runtime.job_environment import JobEnvironment
from graphmill.slurm.accounting import Spent, all_runs, ask_for_rows, commands_that_show, last_run, summary_text
from graphmill.slurm.commands import SlurmError
from graphmill.spec.job.resolve import Job

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 8.0  # for accounting that lags behind
_PHASES: Final = ("sample_s", "gather_s", "wait_s", "compute_s", "sync_s", "eval_s")

__all__ = ["Epilog", "epilog_text", "write_epilog"]


class Epilog(BaseModel):
    """epilog.json. Of one run of a job (an attempt); null: not known."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    time: float = Field(description="Unix time at which it was written, s")
    run_id: str
    job_id: str | None
    state: str | None = Field(description="Slurm's word; RUNNING where the job writes its own epilog")
    outcome: str | None = Field(description="of the run, from outcome.json")
    attempt: int
    of: Literal["run", "command"] = "run"
    asked: dict[str, float | None] = Field(description="of a host: cores, memory_mib, gpus; hosts, time_s in all")
    used: dict[str, float | None] = Field(description="the same, of the fullest host, as the monitors measured it")
    accounted: dict[str, float | None] = Field(description="the same, as sacct has it; max_rss_mib: of one rank")
    peak_mib_by_rank: dict[int, float]
    peak_mib_by_sampler: dict[int, float] = Field({}, description="of processes that sample for the ranks")
    hosts: list[dict[str, Any]] = Field(description="what the monitor of each host measured")
    phases: dict[str, float] | None = Field(
        description="seconds of rank 0, of the epochs that ended in this attempt, with what earlier ones did of them"
    )
    all_attempts: dict[str, float | None] = Field(
        {}, description="attempts; epochs_s of rank 0, training and evaluation; jobs_s and cpu_s, as sacct has them"
    )
    staging: list[StagedHost]
    runs: list[dict[str, Any]] = Field(description="all runs of all jobs of this run, from sacct")
    advice: list[dict[str, Any]]
    job_commands: list[str] = Field(description="commands that show more of the job")
    notes: list[str] = Field(description="what could not be had, and why")


def write_epilog(
    folder: RunFolder, job_id: str | None, *, patience_s: float = PATIENCE_S, environ: Mapping[str, str] | None = None
) -> Epilog:
    """Sum up the last run of the job (or of the run's last attempt, if there is no job) and write it down."""
    notes: list[str] = []
    spent, runs = _accounts(folder, job_id, patience_s, notes)
    monitors, epilog_hosts = _measured(folder, spent, notes)
    attempts = folder.attempts()
    phases = _phases(folder, len(attempts), notes)
    staging = _staged(folder, notes)
    number = _sharing(folder, job_id)
    if number > 1:
        notes.append(f"{number} runs shared the job: asked is the share of this one, and sacct's sums are left out")
        spent = None if spent is None else spent.share(number)
    facts = _facts(folder, spent, monitors, staging, os.environ if environ is None else environ)
    outcome = folder.read_outcome()
    epilog = Epilog(
        time=time.time(),
        run_id=str(_plan(folder).get("run_id", folder.path.name)),
        job_id=job_id,
        state=spent.state if spent else None,
        outcome=outcome.status if outcome else None,
        attempt=len(attempts),
        of="command" if folder.is_command() else "run",
        asked=dict(facts.requested),
        used=_used(facts, monitors),
        accounted=_accounted(spent),
        peak_mib_by_rank=monitors.peak_mib_by_rank,
        peak_mib_by_sampler=monitors.peak_mib_by_sampler,
        hosts=epilog_hosts,
        phases=phases,
        all_attempts=_all_attempts(folder, len(attempts), runs),
        staging=staging,
        runs=[asdict(run) for run in runs],
        advice=[_advice(found) for found in advise(facts, _findings(folder, notes) if phases else ())],
        job_commands=_job_commands(folder, job_id, notes),
        notes=notes,
    )
    write_json(folder.epilog_path, epilog.model_dump(mode="json"))
    write_text(folder.epilog_text_path, epilog_text(epilog))
    written = (folder.epilog_path, folder.epilog_text_path, folder.sacct_path, folder.sacct_summary_path)
    renew_checksums(folder, [path.name for path in written])
    return epilog


def _sharing(folder: RunFolder, job_id: str | None) -> int:
    """How many runs the last job held side by side."""
    jobs = folder.jobs()
    return jobs[-1].side_by_side if jobs and job_id is not None else 1


def _accounts(
    folder: RunFolder, job_id: str | None, patience_s: float, notes: list[str]
) -> tuple[Spent | None, list[Spent]]:
    if job_id is None:
        return None, []
    ids = sorted({job_id, *(job.job_id for job in folder.jobs())})
    try:
        rows = ask_for_rows(ids, patience_s=patience_s)
    except SlurmError as error:
        notes.append(f"no accounts: {error.message}")
        return None, []
    spent = last_run(rows, job_id)
    if spent is None or spent.state == "PENDING":  # the job has begun, or there were nothing to sum up: sacct lags
        what = "know job" if spent is None else "know of the start of job"
        notes.append(f"sacct does not {what} {job_id} yet: python -m graphmill.diagnose.epilog {folder.path}")
        return None, []
    write_json(folder.sacct_path, [dict(row) for row in rows])
    write_text(folder.sacct_summary_path, summary_text(rows))
    return spent, all_runs(rows)


def _measured(folder: RunFolder, spent: Spent | None, notes: list[str]) -> tuple[MonitorSummary, list[dict[str, Any]]]:
    """What the monitors saw since the job started, or the last attempt did."""
    attempts = folder.attempts()
    begin = spent.start if spent and spent.start else attempts[-1].time if attempts else float("-inf")
    summary = summarise(read_monitors(folder.monitor_dir), begin=begin)
    if not summary.hosts:
        notes.append("nothing was measured: the monitors left no rows in monitor/")
    return summary, [asdict(host) for host in summary.hosts]


def _phases(folder: RunFolder, attempt: int, notes: list[str]) -> dict[str, float] | None:
    """Sums over the epochs that ended in the last attempt: times of its rows hold what earlier ones did of them."""
    try:
        rows = read_metrics(folder.metrics_path) if folder.metrics_path.exists() else []
        own = [row for row in rows if row.get("attempt", str(attempt)) == str(attempt)]
        sums = {name: sum(float(row.get(name) or 0) for row in own) for name in (*_PHASES, "train_s")}
    except (UserError, UnreadableError, ValueError) as error:
        notes.append(f"no phases: {error.message if isinstance(error, UserError) else error}")
        return None
    total = sums.pop("train_s") + sums["eval_s"]
    return {"total_s": total, **sums} if total > 0 else None


def _all_attempts(folder: RunFolder, number: int, runs: Sequence[Spent]) -> dict[str, float | None]:
    """Sums over all attempts, also those that were cut and left no epilog."""
    try:
        rows = read_metrics(folder.metrics_path, is_growing=True) if folder.metrics_path.exists() else []
        epochs_s = sum(float(row.get(name) or 0) for row in rows for name in ("train_s", "eval_s"))
    except (UserError, UnreadableError, ValueError):  # `_phases` has noted it
        epochs_s = None
    cpu = [run.total_cpu_s for run in runs if run.total_cpu_s is not None]
    return {
        "attempts": number,
        "epochs_s": epochs_s,
        "jobs_s": sum(run.elapsed_s for run in runs) if runs else None,
        "cpu_s": sum(cpu) if cpu else None,
    }


def _findings(folder: RunFolder, notes: list[str]) -> tuple[Finding, ...]:
    """What slows the run down, over all its attempts."""
    try:
        return find_bottleneck(measured_of(folder)).findings
    except UserError as error:
        notes.append(f"no bottleneck: {error.message}")
        return ()


def _staged(folder: RunFolder, notes: list[str]) -> list[StagedHost]:
    try:
        return read_staged(folder)
    except UserError as error:
        notes.append(error.message)
        return []


def _facts(
    folder: RunFolder,
    spent: Spent | None,
    monitors: MonitorSummary,
    staging: Sequence[StagedHost],
    environ: Mapping[str, str],
) -> JobUsage:
    plan, outcome, allocated = _plan(folder), folder.read_outcome(), spent.allocated if spent else None
    fullest = _fullest(monitors)
    cpu_hosts = allocated.hosts if allocated else max(1, len(monitors.hosts))
    elapsed = _elapsed_s(spent, monitors, environ)
    measured = _most([host.ranks_cores_avg for host in monitors.hosts])
    accounted = spent.total_cpu_s / cpu_hosts / elapsed if spent and spent.total_cpu_s and elapsed else None
    return JobUsage(
        is_done=(outcome is not None and outcome.status == "done") or bool(spent and spent.state == "COMPLETED"),
        state=spent.state if spent else "",
        num_ranks=1 if folder.is_command() else folder.world().processes_per_host,
        uses_gpus=plan.get("device") == "cuda",
        requested={name: getattr(allocated, name, None) for name in ("hosts", "cores", "memory_mib", "gpus", "time_s")},
        used={
            "memory_mib": _most([fullest.ranks_peak_mib if fullest else None, spent.host_rss_mib if spent else None]),
            "cores": measured if measured is not None else accounted,
            "cores_p90": _most([host.ranks_cores_p90 for host in monitors.hosts]),
            "busy_percent": _most([host.host.busy_percent_avg for host in monitors.hosts]),
            "time_s": elapsed,
            "gpu_busy_percent": monitors.gpu_util_avg,
            "staging_s": _most([host.seconds for host in staging if host.outcome == "copied"]),
            "staged_mib": _most([host.bytes / 2**20 for host in staging]),
        },
    )


def _plan(folder: RunFolder) -> dict[str, Any]:
    """The fields of any task's plan that matter here; a command has none."""
    return {} if folder.is_command() else folder.read_plan().model_dump(mode="json")


def _fullest(monitors: MonitorSummary) -> HostSummary | None:
    known = [host for host in monitors.hosts if host.ranks_peak_mib is not None]
    return max(known, key=lambda host: host.ranks_peak_mib or 0.0, default=None)


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _elapsed_s(spent: Spent | None, monitors: MonitorSummary, environ: Mapping[str, str]) -> float | None:
    """Elapsed time of the job by Slurm; of a job that is just ending by our own clock, since the accounting lags."""
    if spent and spent.start and spent.state in ("RUNNING", "COMPLETING") and JobEnvironment(environ).job_id:
        return max(spent.elapsed_s, time.time() - spent.start)
    if spent:
        return spent.elapsed_s
    return _most([host.host.seconds for host in monitors.hosts])


def _used(facts: JobUsage, monitors: MonitorSummary) -> dict[str, float | None]:
    fullest = _fullest(monitors)
    uses = [use for host in monitors.hosts for use in (*host.ranks.values(), *host.samplers.values())]
    cpu = [use.cpu_s for use in uses if use.cpu_s is not None]
    return {
        "cores": _most([host.ranks_cores_avg for host in monitors.hosts]),
        "memory_mib": fullest.ranks_peak_mib if fullest else None,
        "max_rss_mib": max((*monitors.peak_mib_by_rank.values(), *monitors.peak_mib_by_sampler.values()), default=None),
        "cpu_s": sum(cpu) if cpu else None,
        "gpu_busy_percent": monitors.gpu_util_avg,
        "cpu_busy_percent": monitors.cpu_util_avg,
        "time_s": facts.used["time_s"],
    }


def _accounted(spent: Spent | None) -> dict[str, float | None]:
    if spent is None:
        return {}
    return {
        "max_rss_mib": spent.max_rss_mib,
        "memory_mib": spent.host_rss_mib,
        "cpu_s": spent.total_cpu_s,
        "time_s": spent.elapsed_s,
    }


def _advice(finding: Finding) -> dict[str, Any]:
    amounts = {name: finding.amounts.get(name) for name in ("asked", "used", "suggested")}
    told = {"resource": finding.subject, "finding": finding.text, "suggestion": "; ".join(finding.fixes)}
    return {**told, **amounts, "unit": finding.unit, "text": str(finding)}


def _job_commands(folder: RunFolder, job_id: str | None, notes: list[str]) -> list[str]:
    """Commands that show more: the site's, from job.json, and those installed here."""
    if job_id is None:
        return []
    templates: list[str] = []
    if folder.job_path.exists():
        try:
            templates += Job.model_validate_json(folder.job_path.read_bytes()).job_commands
        except (OSError, ValueError):
            notes.append("job.json is damaged")
    sites = [template.replace("{job_id}", job_id) for template in templates]
    return list(dict.fromkeys([*sites, *commands_that_show(job_id)]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the epilog and print it."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.diagnose.epilog", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--job", metavar="ID", help="else the last one of the run")
    options = parser.parse_args(arguments)
    show_messages()
    try:
        folder = RunFolder.open(options.run)
        known = [attempt.job_id for attempt in folder.attempts() if attempt.job_id]
        job_id = options.job or JobEnvironment(os.environ).job_id or (known[-1] if known else None)
        sys.stdout.write(printable(epilog_text(write_epilog(folder, job_id))))
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    return exits.DONE


if __name__ == "__main__":
    sys.exit(main())
