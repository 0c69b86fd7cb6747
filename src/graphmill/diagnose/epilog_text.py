"""epilog.txt: the epilog to be read, in plain lines that read the same in a log and on a terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from graphmill.base.amounts import clock_of, gib

if TYPE_CHECKING:
    from graphmill.diagnose.epilog import Epilog

_RAN_ITS_COURSE: Final = ("done", "out_of_time")  # of the others nobody knows what they would have used
_PHASES: Final = (
    *(("compute_s", "compute"), ("wait_s", "wait for batches"), ("sync_s", "sync"), ("eval_s", "evaluate")),
    *(("sample_s", "sample*"), ("gather_s", "gather*")),
)


_WHOSE: Final = {"run": "all ranks", "command": "the command"}


def epilog_text(epilog: "Epilog") -> str:
    """What was asked and used, where the time went, what to ask next time."""
    sections = (
        [_title(epilog)],
        _aligned(resources(epilog)),
        list(_details(epilog)),
        _advice(epilog),
        [f"more about the job: {command}" for command in epilog.job_commands],
        [f"note: {note}" for note in epilog.notes],
    )
    return "\n".join(line for section in sections for line in section) + "\n"


def _title(epilog: "Epilog") -> str:
    job = f", job {epilog.job_id}" if epilog.job_id else ""
    state = f": {epilog.state}" if epilog.state and epilog.state != "RUNNING" else ""  # it is just ending
    outcome = f", the {epilog.of} is {epilog.outcome.replace('_', ' ')}" if epilog.outcome else ""
    return f"epilog of {epilog.run_id}, attempt {epilog.attempt}{job}{state}{outcome}"


def resources(epilog: "Epilog") -> list[list[str]]:
    """Rows of texts under a head: what was asked, measured and accounted. Empty if nothing is known."""
    sources = asked, used, _ = epilog.asked, epilog.used, epilog.accounted
    seconds = "{:.1f}".format
    rows = [
        [label, *(_cell(source.get(name), form) for source, form in zip(sources, forms, strict=True))]
        for label, name, forms in (
            ("memory of a host, GiB", "memory_mib", (gib,) * 3),
            ("largest rank, GiB" if epilog.of == "run" else "the command, GiB", "max_rss_mib", (gib,) * 3),
            ("cores of a host, busy", "cores", ("{:g}".format, "{:.2f}".format, seconds)),
            (f"CPU time of {_WHOSE[epilog.of]}, s", "cpu_s", (seconds,) * 3),
            ("time of the job", "time_s", (clock_of,) * 3),
        )
    ]
    if asked.get("gpus") or used.get("gpu_busy_percent") is not None:
        busy = _cell(used.get("gpu_busy_percent"), "{:.0f} % busy".format)
        rows.append(["GPUs of a host", _cell(asked.get("gpus"), "{:g}".format), busy, ""])
    rows = [row for row in rows if any(row[1:])]
    return [["", "asked", "measured", "sacct"], *rows] if rows else []


def _details(epilog: "Epilog") -> Iterator[str]:
    if epilog.peak_mib_by_rank and epilog.of == "run":
        peaks = (f"{rank}: {gib(peak)}" for rank, peak in epilog.peak_mib_by_rank.items())
        yield f"peak memory by rank, GiB: {'  '.join(peaks)}"
    if epilog.peak_mib_by_sampler:
        peaks = (f"{sampler}: {gib(peak)}" for sampler, peak in epilog.peak_mib_by_sampler.items())
        yield f"peak memory by sampler, GiB: {'  '.join(peaks)}"
    for host in epilog.hosts:
        yield _host(host)
    if epilog.phases:
        total = epilog.phases["total_s"]
        shares = (f"{label} {100 * epilog.phases[name] / total:.0f} %" for name, label in _PHASES)
        yield f"time of rank 0 in its epochs ({total:.1f} s): {', '.join(shares)}   (*: may overlap the step)"
    if (epilog.all_attempts.get("attempts") or 0) > 1:
        yield _all_attempts(epilog.all_attempts)
    for staged in epilog.staging:
        speed = f", {staged.mib_per_s:.0f} MiB/s" if staged.mib_per_s else ""
        yield (
            f"staging on {staged.hostname}: {staged.outcome.replace('_', ' ')}, {gib(staged.bytes / 2**20)} GiB"
            f" in {staged.seconds:.1f} s{speed}, verified by {staged.verified}"
        )
    if len(epilog.runs) > 1:
        runs = (f"{run['job_id']} {run['state']} {clock_of(run['elapsed_s'])}" for run in epilog.runs)
        yield f"jobs of this run so far: {', '.join(runs)}"


def _all_attempts(sums: dict[str, Any]) -> str:
    parts = []
    if sums["jobs_s"]:
        parts.append(f"{clock_of(sums['jobs_s'])} in jobs")
    if sums["epochs_s"] is not None:
        share = f" ({100 * sums['epochs_s'] / sums['jobs_s']:.0f} %)" if sums["jobs_s"] else ""
        parts.append(f"{clock_of(sums['epochs_s'])} in epochs that ended{share}")
    if sums["cpu_s"] is not None:
        parts.append(f"{sums['cpu_s'] / 3600:.2f} CPU hours")
    return f"all {sums['attempts']:.0f} attempts together: {', '.join(parts)}"


def _host(host: dict[str, Any]) -> str:
    use = host["host"]
    parts = [f"{use['busy_percent_avg']:.0f} % of its cores busy"] if use["busy_percent_avg"] is not None else []
    if use["memory_peak_mib"] is not None:
        parts.append(f"memory up to {gib(use['memory_peak_mib'])} of {gib(use['memory_total_mib'])} GiB in use")
    for name, text in (("received_bytes", "received"), ("sent_bytes", "sent"), ("read_bytes", "read from disk")):
        if use[name]:
            parts.append(f"{text} {use[name] / 2**20:.0f} MiB")
    for number, gpu in host["gpus"].items():
        busy = "" if gpu["busy_percent_avg"] is None else f" {gpu['busy_percent_avg']:.0f} % busy"
        memory = "" if gpu["memory_peak_mib"] is None else f" up to {gib(gpu['memory_peak_mib'])} GiB"
        parts.append(f"GPU {number}{busy}{memory}")
    return f"{host['hostname']} (all that ran on it): {', '.join(parts)}"


def _advice(epilog: "Epilog") -> list[str]:
    if not epilog.advice:
        ran = epilog.outcome in _RAN_ITS_COURSE and bool(epilog.asked.get("cores"))
        return ["advice: none; what was asked fits what was used" if ran else "advice: none"]
    return ["advice:", *(f"  {advice['text']}" for advice in epilog.advice)]


def _cell(value: float | None, form: Any) -> str:  # noqa: ANN401  # a function from a number to text
    return "" if value is None else str(form(value))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]  # fmt: skip
