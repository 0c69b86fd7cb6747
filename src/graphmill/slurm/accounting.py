"""What a job requested and used, by Slurm's accounting: sacct's rows, and the numbers in them."""

import math
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from graphmill.base.amounts import accounted_mib, span_of
from graphmill.slurm.commands import SlurmRefusedError, call, is_job_id

Row = Mapping[str, str]

COLUMNS: Final = (
    *("JobID", "JobIDRaw", "JobName", "State", "ExitCode", "DerivedExitCode", "NNodes", "NodeList", "NTasks"),
    *("Submit", "Start", "End", "Elapsed", "ElapsedRaw", "TimelimitRaw", "AllocCPUS", "ReqMem", "AllocTRES"),
    *("TotalCPU", "MaxRSS", "MaxRSSNode", "AveRSS", "MaxDiskRead", "MaxDiskWrite", "TRESUsageInTot", "Partition"),
)
_SHOWN: Final = (
    *("JobID", "JobName", "State", "ExitCode", "NNodes", "NodeList", "Elapsed", "TotalCPU", "MaxRSS", "ReqMem"),
    "AllocTRES",
)
_BETWEEN: Final = "\x1f"  # a job may be called anything, "|" included
_UNKNOWN: Final = ("", "Unknown", "None", "N/A", "0")
_STEP: Final = re.compile(r"([0-9]+(?:_[0-9]+)?)\.(\S+)")
_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Accounted:
    """A line of sacct: one run of a job, or of a step of it. A requeued job has several. Times are Unix times, s."""

    job_id: str
    step: str  # "" for the job itself; else batch, extern, 0, 1 …
    state: str  # one word: "CANCELLED by 1000" is CANCELLED here
    exit_code: int
    signal: int
    elapsed_s: int | None
    limit_s: int | None
    submitted: int  # 0: not known
    start: int | None
    end: int | None
    num_hosts: int
    hosts: str  # as Slurm writes them: node[1-2], or None assigned


@dataclass(frozen=True, slots=True)
class AllocatedResources:
    """What the job has on every host, and for how long. None: not reported by Slurm."""

    hosts: int
    cores: float | None  # CPUs as Slurm counts them
    memory_mib: float | None
    gpus: float | None
    time_s: float | None


@dataclass(frozen=True, slots=True)
class Spent:
    """One run of a job; the numbers of its steps taken together. None: not accounted (yet)."""

    job_id: str
    state: str  # one word
    start: float | None  # Unix time, s
    elapsed_s: float
    allocated: AllocatedResources
    total_cpu_s: float | None  # of all steps but the batch script
    max_rss_mib: float | None  # the largest of any one rank, as Slurm sampled it
    host_rss_mib: float | None  # a host's ranks together, on average over the hosts

    def share(self, number: int) -> "Spent":
        """Usage of one of `number` runs that shared the job: its part of what was asked, and no sums."""
        cores, memory, gpus = (
            None if whole is None else whole / number
            for whole in (self.allocated.cores, self.allocated.memory_mib, self.allocated.gpus)
        )
        allocated = replace(self.allocated, cores=cores, memory_mib=memory, gpus=gpus)
        return replace(self, allocated=allocated, total_cpu_s=None, max_rss_mib=None, host_rss_mib=None)


def ask_for_rows(job_ids: Sequence[str], *, patience_s: float = 0.0) -> list[Row]:
    """sacct's rows of all runs of these jobs, steps included. Raises `SlurmError` if sacct does not answer.

    The accounting lags behind: for up to `patience_s` sacct is called until every step that srun started has its end.
    """
    give_up = time.monotonic() + patience_s
    while True:
        program, *options = sacct_command(job_ids)
        rows = rows_in(call(program, options)[0])
        if time.monotonic() >= give_up or _is_settled(rows):
            return rows
        time.sleep(_RETRY_S)


_OPTIONS: Final = (
    "--parsable2",
    f"--delimiter={_BETWEEN}",
    "--duplicates",
    "--noconvert",
    f"--format={','.join(COLUMNS)}",
)


def sacct_command(job_ids: Sequence[str]) -> list[str]:
    """The command whose answer `rows_in` reads."""
    return ["sacct", *_OPTIONS, f"--jobs={','.join(job_ids)}"]


_OF_JOBS: Final = (
    *("JobID", "State", "ExitCode", "ElapsedRaw", "TimelimitRaw", "Submit", "Start", "End", "NNodes", "NodeList"),
)


def sacct(job_ids: Iterable[str], *, cluster: str = "") -> list[Accounted]:
    """What the accounting has of these jobs, all their runs, oldest first; it may lag behind by seconds."""
    ids = sorted(set(job_ids))
    if not ids:
        return []
    options = [
        "--parsable2",
        f"--delimiter={_BETWEEN}",
        "--allocations",
        "--duplicates",
        f"--format={','.join(_OF_JOBS)}",
    ]
    options += [f"--jobs={','.join(ids)}", *([f"--clusters={cluster}"] if cluster else [])]
    try:
        out, _ = call("sacct", [*options, "--array"])
    except SlurmRefusedError as error:
        if "--array" not in error.message and "option" not in error.message:
            raise
        out, _ = call("sacct", options)  # before 22.05 there is no --array
    jobs = (job for job in accounted(rows_in(out)) if is_job_id(job.job_id))
    return sorted(jobs, key=lambda job: (job.submitted, job.start or 0))


def accounted(rows: Iterable[Mapping[str, Any]]) -> list[Accounted]:
    """The entries of sacct's rows. KeyError if a column is missing."""
    return [_accounted(row) for row in rows]


def _accounted(row: Mapping[str, Any]) -> Accounted:
    name, minutes = str(row["JobID"]), _count(row["TimelimitRaw"])
    match = _STEP.fullmatch(name)
    code, _, number = str(row["ExitCode"]).partition(":")
    return Accounted(
        job_id=match[1] if match else name,
        step=match[2] if match else "",
        state=(str(row["State"]).split() or [""])[0],
        exit_code=_count(code) or 0,
        signal=_count(number) or 0,
        elapsed_s=_count(row["ElapsedRaw"]),
        limit_s=None if minutes is None else minutes * 60,
        submitted=_count(row["Submit"]) or 0,
        start=_count(row["Start"]) or None,
        end=_count(row["End"]) or None,
        num_hosts=_count(row["NNodes"]) or 0,
        hosts=str(row["NodeList"]),
    )


def _count(text: object) -> int | None:
    """A number as Slurm writes it; None for its placeholders: UNLIMITED, Unknown, nothing."""
    number = str(text)
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else None


def commands_that_show(job_id: str) -> list[str]:
    """Commands that show more of what a job used, of those installed here."""
    seff = [f"seff {job_id}"] if shutil.which("seff") else []
    return [*seff, f"sacct -D -j {job_id} -o JobID,State,Elapsed,TotalCPU,MaxRSS,ReqMem,AllocCPUS"]


def rows_of_ended(rows: Sequence[Row], job_id: str) -> list[Row]:
    """The rows of one job (17, or 17_3 for a task of an array), steps included; none until all its runs have ended."""
    mine = [row for row in rows if job_id in (row["JobID"].partition(".")[0], row["JobIDRaw"].partition(".")[0])]
    return mine if all(row["End"] not in _UNKNOWN for row in mine if "." not in row["JobID"]) else []


def last_run(rows: Sequence[Row], job_id: str) -> Spent | None:
    """The last run of a job, or None if accounting does not know it."""
    mine = [row for row in rows if job_id in (row["JobID"], row["JobIDRaw"])]
    return _spent(max(mine, key=_order), rows) if mine else None


def all_runs(rows: Sequence[Row]) -> list[Spent]:
    """Every run of every job, in order: a requeued job has several."""
    return [_spent(row, rows) for row in sorted((row for row in rows if "." not in row["JobID"]), key=_order)]


def summary_text(rows: Sequence[Row]) -> str:
    """sacct_summary.txt: the rows as a table."""
    cells = [_SHOWN, *([row[name].replace("\n", " ") for name in _SHOWN] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_SHOWN))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def tres(text: str) -> dict[str, str]:
    """The entries of a list of trackable resources.

    >>> tres("cpu=8,gres/gpu=2,mem=3000M")
    {'cpu': '8', 'gres/gpu': '2', 'mem': '3000M'}
    """
    pairs = (entry.partition("=") for entry in text.split(",") if entry)
    return {name: value for name, _, value in pairs}


def rows_in(text: str) -> list[Row]:
    """What sacct printed."""
    lines = [line.split(_BETWEEN) for line in text.split("\n")]
    header, *rest = lines
    return [dict(zip(header, cells, strict=True)) for cells in rest if len(cells) == len(header)]


def _is_settled(rows: Sequence[Row]) -> bool:
    steps = [row for row in rows if "." in row["JobID"] and row["JobID"].rpartition(".")[2].isdecimal()]
    jobs = [row for row in rows if "." not in row["JobID"]]
    if jobs and all(row["End"] not in _UNKNOWN for row in jobs):
        return True
    started = {row["JobID"] for row in jobs if row["Start"] not in _UNKNOWN}
    is_known = all(row["JobID"].partition(".")[0] in started for row in steps)  # steps may be listed before their job
    return is_known and bool(steps) and all(row["End"] not in _UNKNOWN for row in steps)


def _spent(job: Row, rows: Sequence[Row]) -> Spent:
    steps = [row for row in rows if row["JobID"].startswith(f"{job['JobID']}.") and _order(row)[1] >= _order(job)[1]]
    work = [row for row in steps if row["JobID"].rpartition(".")[2].isdecimal()] or steps
    cpu = [seconds for row in work if (seconds := span_of(row["TotalCPU"])) is not None]
    peaks = [peak for row in work if (peak := accounted_mib(row["MaxRSS"])) is not None]
    return Spent(
        job_id=job["JobID"],
        state=(job["State"].split() or [""])[0],
        start=_order(job)[1] or None,
        elapsed_s=float(job["ElapsedRaw"] or 0),
        allocated=_allocated(job),
        total_cpu_s=sum(cpu) if cpu else None,
        max_rss_mib=max(peaks, default=None),
        host_rss_mib=max((rss for row in work if (rss := _host_rss(row)) is not None), default=None),
    )


def _allocated(job: Row) -> AllocatedResources:
    hosts = max(1, int(job["NNodes"] or 1))
    has = tres(job["AllocTRES"])
    memory = accounted_mib(has.get("mem", ""))
    if memory is None and not job["ReqMem"].endswith("c"):
        per_host = accounted_mib(job["ReqMem"])
    else:
        per_host = None if memory is None else memory / hosts
    cores = float(has.get("cpu") or job["AllocCPUS"] or "nan")
    return AllocatedResources(
        hosts=hosts,
        cores=None if math.isnan(cores) else cores / hosts or None,  # 0: it never ran (Slurm 24.11)
        memory_mib=per_host or None,  # 0: all there is, or not asked
        gpus=float(has.get("gres/gpu", 0)) / hosts,
        time_s=float(job["TimelimitRaw"]) * 60 if job["TimelimitRaw"].isdecimal() else None,
    )


def _host_rss(step: Row) -> float | None:
    """Slurm keeps the sum of the peaks of all ranks; older versions only their mean."""
    hosts, ranks = int(step["NNodes"] or 1), int(step["NTasks"] or 1)
    total = accounted_mib(tres(step["TRESUsageInTot"]).get("mem", ""))
    if total is None:
        mean = accounted_mib(step["AveRSS"])
        total = None if mean is None else mean * ranks
    return None if total is None else total / max(1, hosts)


def _order(row: Row) -> tuple[float, float]:
    submitted, started = (float(row[name]) if row[name].isdecimal() else 0.0 for name in ("Submit", "Start"))
    return submitted, started
