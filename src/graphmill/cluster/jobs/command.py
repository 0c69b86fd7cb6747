"""`graphmill submit --run`: a command as a job, from its words to the queue.

The folder of a command is like that of a run (the same job, script, attempts, log, monitor, outcome and epilog), but
has `command.json` in place of a plan. A command runs once, on one host, and is begun again only by a person; a search
(`graphmill tune`) knows where it was, and the job that follows goes on with it, as long as its runs get on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.cluster.jobs.script import render_script
from graphmill.cluster.jobs.sites import find_site
from graphmill.cluster.jobs.submit import (
    JobRequest,
    kept_for_a_job,
    python_here,
    read_job,
    refuse_foreign_job,
    with_options,
)
from graphmill.record.run_folder import RunFolder, make_empty_folder
from graphmill.spec.dotted import PLAN_FILE
from graphmill.spec.job.change import differences
from graphmill.spec.job.resolve import resolve_job
from graphmill.spec.job.work import OURS, Command, RunCommand
from graphmill.spec.load import DEFAULT_RECIPE, load_experiment

FOLDER: Final = "jobs"
"""In the logs root: where the folders of commands are, unless they are named."""
_LONGEST_NAME: Final = 60
_SECTIONS: Final = ("slurm.", "staging.")
_FIXED: Final = {"slurm.hosts": "1", "slurm.ranks_per_host": "1", "slurm.launcher": "srun"}
_ONCE: Final = {"slurm.on_time_limit": "stop"}  # most commands that were cut off do not know where they were
_BETTER: Final = {
    ("train",): "graphmill submit EXPERIMENT",
    ("launch",): "graphmill submit EXPERIMENT --hosts N",
    ("study", "run"): "graphmill study submit STUDY",
    ("pipeline", "run"): "graphmill pipeline submit PIPELINE",
}
"""Our own commands that are more than a command where a job runs them: they stop in time, and go on in the next job."""


@dataclass(frozen=True, slots=True)
class CommandRequest(JobRequest):
    """The job of one command."""

    @property
    def command(self) -> Command:
        """What the job runs."""
        assert isinstance(self.job.work, RunCommand), "it was made here"
        return self.job.work.command

    def refuse_taken(self) -> None:
        """Raise a `UserError` if the folder would lie in a run. One that is there is refused when it is made."""
        for parent in self.folder.path.parents:
            if (parent / PLAN_FILE).exists():
                raise UserError(f"{parent} is a run, and a run cannot hold a command", fix="give another --run-id")

    @contextmanager
    def new_folder(self) -> Iterator[None]:
        """Make the folder, with command.json, and lock it."""
        folder = self.folder
        make_empty_folder(folder.path)
        write_text(folder.command_path, self.command.model_dump_json(indent=2) + "\n")
        with kept_for_a_job(folder, [folder.script_path, folder.job_path, folder.command_path]), folder.lock():
            yield


def name_of(words: Sequence[str]) -> str:
    """What the folder and the job of a command are called.

    >>> name_of(["graphmill", "study", "list"]), name_of(["/opt/My tool.sh", "x"]), name_of(["graphmill", "--version"])
    ('study', 'My-tool.sh', 'graphmill')
    """
    own = words[1:2] if words[0] == OURS else []
    word = own[0] if own and not own[0].startswith("-") else PurePath(words[0]).name
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in word)
    return plain.lstrip("._-")[:_LONGEST_NAME] or "command"


def plan_command(
    words: Sequence[str], overrides: Sequence[str], folder: RunFolder, *, data: Path | None = None, dependency: str = ""
) -> CommandRequest:
    """The job that runs `words`, with `overrides` of what is asked of Slurm. `data`: prepared data that are staged."""
    _refuse_better(words)
    command = Command(words=tuple(words), data=None if data is None else str(data.absolute()))
    _refuse_overrides(command, overrides)
    given = {text.partition("=")[0] for text in overrides}
    own = {"slurm.job_name_prefix": f'"{name_of(words)}"', **_required(command)}
    if not given & {"slurm.gpus_per_host", "slurm.gres"}:
        own["train.device"] = "cpu"
    unsaid = [f"{key}={value}" for key, value in own.items() if key not in given]
    experiment = load_experiment(DEFAULT_RECIPE, [*unsaid, *overrides])
    _refuse_staging(experiment.staging.to, data)
    site = find_site(experiment.slurm.site)
    resolved = resolve_job(
        experiment, site, run_folders=[str(folder.path)], python=python_here(), called_in=str(Path.cwd())
    )
    job = resolved.model_copy(update={"work": RunCommand(folder=str(folder.path), command=command)})
    return CommandRequest(job, render_script(job), folder, dependency)


def command_again(folder: RunFolder, options: Sequence[str], *, dependency: str = "") -> CommandRequest:
    """The request that runs a command again as it was submitted, with `options` such as `slurm.time=60` changed."""
    refuse_foreign_job(folder)
    before = read_job(folder)
    if not isinstance(before.work, RunCommand):
        raise UserError(f"{folder.job_path} names no command", fix="submit the command again: graphmill submit --run")
    _refuse_overrides(before.work.command, options)
    job = with_options(before, options)
    changes = differences(before, job)
    return CommandRequest(job, render_script(job), folder, dependency, changes)


def _refuse_better(words: Sequence[str]) -> None:
    if words[0] == OURS:
        for verb, instead in _BETTER.items():
            if tuple(words[1 : 1 + len(verb)]) == verb:
                raise UserError(
                    f"graphmill {' '.join(verb)} is no command for --run: a job has ranks of its own, stops them in"
                    " time and continues the run",
                    fix=instead,
                )


def _required(command: Command) -> dict[str, str]:
    return _FIXED if command.goes_on else {**_FIXED, **_ONCE}


def _refuse_overrides(command: Command, overrides: Sequence[str]) -> None:
    fixed = _required(command)
    for text in overrides:
        key, _, value = text.partition("=")
        if not key.startswith(_SECTIONS):
            raise UserError(
                f"{key} is of an experiment, and --run runs a command", fix="give it to the command, after --"
            )
        if key in fixed and value.strip('"') != fixed[key]:
            rule = "runs on one host" if command.goes_on else "runs once, on one host, and is not begun again by itself"
            raise UserError(
                f"{key} is {value}, and {'a search' if command.goes_on else 'a command'} {rule}",
                fix=f"leave it out (it is {fixed[key]}); `graphmill submit --resume FOLDER` runs a command again",
            )


def _refuse_staging(to: str, data: Path | None) -> None:
    if to != "nowhere" and data is None:
        raise UserError(f"staging.to is {to}, but not which data are staged", fix="name them: --data DATASET")
    if to == "nowhere" and data is not None:
        raise UserError(f"{data} is to be staged, but not where", fix="add --staging host_local, or --staging scratch")
