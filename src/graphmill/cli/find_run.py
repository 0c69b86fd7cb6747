"""Find the run that a person means: by folder, by run id, or the latest."""

from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.run_folder import RunFolder, find_runs


def find_run(text: str, logs_root: Path) -> RunFolder:
    """The run folder at the path `text`, or the run of that id in the logs root."""
    for path in (Path(text), logs_root / text):
        if RunFolder(path).plan_path.is_file():
            return RunFolder.open(path)
    known = [str(run.path.relative_to(logs_root)) for run in find_runs(logs_root)]
    hint = did_you_mean(text, known) if known else f"{logs_root} holds no runs"
    raise UserError(
        f"{text!r} is neither a run folder nor a run in {logs_root}; {hint}", fix="name a run, or give --logs-root"
    )


def find_several(text: str | None, logs_root: Path) -> list[RunFolder]:
    """All runs in the folder `text`, a study's for example; the latest run of the logs root where it is None."""
    if text is None:
        return [latest_run(logs_root)]
    for path in (Path(text), logs_root / text):
        runs = find_runs(path) if path.is_dir() else []
        if runs:
            return runs
    return [find_run(text, logs_root)]


def find_by_name_or_job(text: str | None, logs_root: Path) -> list[RunFolder]:
    """The runs that `text` names: by folder, by run id, by study, or by the number of a job that was submitted."""
    if text is not None and _is_job_id(text) and not any(path.exists() for path in (Path(text), logs_root / text)):
        found = [run for run in find_runs(logs_root) if any(_belongs(job.job_id, text) for job in run.jobs())]
        if not found:
            raise UserError(
                f"no run in {logs_root} was submitted as job {text}", fix="name the run, or give --logs-root"
            )
        return found
    return find_several(text, logs_root)


def _is_job_id(text: str) -> bool:
    return all(part.isascii() and part.isdecimal() for part in text.split("_", 1))


def _belongs(job_id: str, text: str) -> bool:
    """17 names the job 17 and all tasks of the array 17."""
    return text in (job_id, job_id.partition("_")[0])


def latest_run(logs_root: Path) -> RunFolder:
    """The run that was started last."""
    runs = find_runs(logs_root)
    if not runs:
        raise UserError(f"{logs_root} holds no runs", fix="train one with `graphmill train`, or give --logs-root")
    return max(runs, key=_last_start)


def _last_start(run: RunFolder) -> float:
    attempts = run.attempts()
    return attempts[-1].time if attempts else run.plan_path.stat().st_mtime
