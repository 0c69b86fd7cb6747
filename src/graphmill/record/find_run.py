"""Find runs: by folder, by run id, by study, or the latest; and the one to resume."""

from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.record.run_folder import RunFolder, find_runs


def find_run(text: str, logs_root: Path) -> RunFolder:
    """The run folder at the path `text`, or the run of that id in the logs root."""
    found = named_run(text, logs_root)
    if found is not None:
        return RunFolder.open(found.path)
    known = [str(run.path.relative_to(logs_root)) for run in find_runs(logs_root)]
    hint = did_you_mean(text, known) if known else f"{logs_root} holds no runs"
    raise UserError(
        f"{text!r} is neither a run folder nor a run in {logs_root}; {hint}", fix="name a run, or give --logs-root"
    )


def named_run(text: str, logs_root: Path) -> RunFolder | None:
    """The run that `text` names, as a path or as an id; None if it names none."""
    found = (RunFolder(path) for path in (Path(text), logs_root / text))
    return next((run for run in found if run.plan_path.is_file()), None)


def run_to_resume(
    named: str | None, run_id: str | None, logs_root: Path, *, changes: bool, verb: str
) -> tuple[RunFolder, bool]:
    """The run that `--resume` means, and whether it was named in place of the experiment.

    A run named so continues as it was planned, so `changes` (overrides) are refused; with `--run-id` the experiment may
    be given again, to be compared with its plan. `verb`: the command, for the suggested fix.
    """
    run = named_run(named, logs_root) if named is not None else None
    if run is not None and run_id is not None:
        raise UserError(f"two runs are named: {run.path} and --run-id {run_id}", fix="name one")
    if run is not None and changes:
        raise UserError(
            f"{run.path} is resumed as it was planned: overrides cannot change its plan",
            fix=f"`graphmill {verb} --resume {run.path}`, without overrides; or start a new run",
        )
    if run is not None:
        return run, True
    if run_id is not None:
        return find_run(run_id, logs_root), False
    runs = find_runs(logs_root)
    latest = f"{max(runs, key=_last_start).path} (the latest)" if runs else f"{logs_root}/RUN"
    if named is None:
        raise UserError("--resume does not say which run", fix=f"graphmill {verb} --resume {latest}")
    raise UserError(
        f"{named!r} is not a run in {logs_root}, and --resume needs one",
        fix=f"graphmill {verb} --resume {latest}, or give --run-id with the experiment",
    )


def latest_run(logs_root: Path) -> RunFolder:
    """The run that was started last."""
    runs = find_runs(logs_root)
    if not runs:
        raise UserError(f"{logs_root} holds no runs", fix="train one with `graphmill train`, or give --logs-root")
    return max(runs, key=_last_start)


def find_several(text: str | None, logs_root: Path) -> list[RunFolder]:
    """All runs in the folder `text`, a study's for example; the latest run of the logs root if it is None."""
    if text is None:
        return [latest_run(logs_root)]
    for path in (Path(text), logs_root / text):
        runs = find_runs(path) if path.is_dir() else []
        if runs:
            return runs
    return [find_run(text, logs_root)]


def name_of_runs(text: str, logs_root: Path) -> str:
    """What the runs of `text` are called: the name of the study, search or pipeline in that file, else `text`."""
    from graphmill.config.yaml_text import read_document
    from graphmill.spec.pipeline import load_pipeline
    from graphmill.spec.recipes import SUFFIXES, kind_of, list_recipes
    from graphmill.spec.search import load_search
    from graphmill.spec.study import load_study

    if Path(text).is_dir() or (logs_root / text).is_dir():
        return text
    kinds = {recipe.name: recipe.kind for recipe in list_recipes()}
    if text.endswith(SUFFIXES):
        kinds[text] = kind_of(read_document(Path(text), holds="a study or a pipeline").value)
    if kinds.get(text) == "search":
        return load_search(text).name
    if kinds.get(text) == "study":
        return load_study(text).name
    return load_pipeline(text).name if kinds.get(text) == "pipeline" else text


def _last_start(run: RunFolder) -> float:
    attempts = run.attempts()
    return attempts[-1].time if attempts else run.plan_path.stat().st_mtime
