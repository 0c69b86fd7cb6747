"""Find the runs that the user means: by folder, by run id, by study, by job, or the latest."""

from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.record.find_run import find_run, find_several, latest_run, name_of_runs
from graphmill.record.run_folder import PIPELINE_FILE, RunFolder, find_runs_and_commands

__all__ = [
    "find_by_name_or_job",
    "find_run",
    "find_several",
    "latest_run",
    "name_of_runs",
    "named_command",
    "named_pipeline",
    "neither_data_nor_run",
]


def neither_data_nor_run(text: str, root: Path, logs_root: Path) -> UserError:
    """The error of a name that is nothing's: what is like it there, and what to type."""
    from graphmill.spec.kinds import default_kind
    from graphmill.spec.partition import PARTS_FOLDER
    from graphmill.tasks.stores import known_dataset, not_prepared

    of_data = not_prepared(default_kind(), text, root)
    is_known = text.startswith(f"{PARTS_FOLDER}/") or known_dataset(default_kind(), text) is not None
    lists = "`graphmill datasets` lists datasets; runs are the folders in the logs root"
    return UserError(
        f"no run in {logs_root} is called {text!r}, and {of_data.message}",
        fix=of_data.fix if is_known else lists,
    )


def find_by_name_or_job(text: str | None, logs_root: Path) -> list[RunFolder]:
    """The runs and commands that `text` names: by folder, run id, study, or the number of a job that was submitted."""
    if text is not None and _is_job_id(text) and not any(path.exists() for path in (Path(text), logs_root / text)):
        everything = find_runs_and_commands(logs_root)
        found = [run for run in everything if any(_belongs(job.job_id, text) for job in run.jobs())]
        if not found:
            raise UserError(
                f"nothing in {logs_root} was submitted as job {text}", fix="name the run, or give --logs-root"
            )
        return found
    command = None if text is None else named_command(text, logs_root)
    return find_several(text, logs_root) if command is None else [command]


def named_command(text: str, logs_root: Path) -> RunFolder | None:
    """The folder of the command that `text` names, by path or by id; None: it names none."""
    found = (RunFolder(path) for path in (Path(text), logs_root / text))
    return next((folder for folder in found if folder.is_command()), None)


def named_pipeline(text: str | None, logs_root: Path) -> RunFolder | None:
    """The folder of the pipeline that `text` names, by path, name or the number of one of its jobs; None: of none."""
    if text is None:
        return None
    for path in (Path(text), logs_root / text):
        if path.exists():
            return RunFolder(path) if (path / PIPELINE_FILE).is_file() else None
    if not _is_job_id(text):
        return None
    folders = [RunFolder(path.parent) for path in sorted(logs_root.glob(f"*/{PIPELINE_FILE}"))]
    return next((folder for folder in folders if any(_belongs(job.job_id, text) for job in folder.jobs())), None)


def _is_job_id(text: str) -> bool:
    return all(part.isascii() and part.isdecimal() for part in text.split("_", 1))


def _belongs(job_id: str, text: str) -> bool:
    """17 names the job 17 and all tasks of the array 17."""
    return text in (job_id, job_id.partition("_")[0])
