"""`submit --run`: a command as a job of Slurm, in place of an experiment."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.cli.agree import agree_to_job
from graphmill.cli.show import print_json, print_line

if TYPE_CHECKING:
    from graphmill.cluster.jobs.command import CommandRequest

_log = logging.getLogger(__name__)

_FIX: Final = "graphmill submit --run -- graphmill prepare ogbn-products"

Run = Annotated[bool, typer.Option("--run", help="Run the command that follows --, in place of EXPERIMENT.")]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DATASET",
        show_default=False,
        help="With --run and --staging: the prepared data that the command reads, which are copied first.",
    ),
]


@dataclass(frozen=True, slots=True)
class CommandArguments:
    """What is asked for besides the options of Slurm."""

    words: Sequence[str] | None  # None: of a command that was submitted before
    data: str | None
    dataset_root: Path
    logs_root: Path
    run_id: str | None
    dependency: str


def is_command(named: str | None, run_id: str | None, logs_root: Path) -> bool:
    """Whether `--resume` means a command."""
    from graphmill.cli.find_run import named_command

    return any(text is not None and named_command(text, logs_root) is not None for text in (named, run_id))


def submit_command(
    arguments: CommandArguments, overrides: Sequence[str], given: Mapping[str, object], *, dry_run: bool, json: bool
) -> None:
    """Submit the command, or show what would be. `given`: options that may not go with it, by name."""
    from graphmill.api.submitting import say_what_counts
    from graphmill.cli.submit import tell_submitted
    from graphmill.cluster.jobs.submit import resubmit, submit_new

    is_new = not given["--resume"]
    request = _new(arguments, overrides, given) if is_new else _again(arguments, overrides, given)
    if request is None:
        return
    if dry_run:
        _show(request, json=json)
        return
    say_what_counts(request)
    if request.changes:
        _log.info(f"asked for otherwise than before: {'; '.join(request.changes)}")
    job = submit_new(request, os.environ) if is_new else resubmit(request, os.environ)
    tell_submitted(request.folder, job, json=json)


def _new(arguments: CommandArguments, overrides: Sequence[str], given: Mapping[str, object]) -> "CommandRequest":
    from graphmill.cluster.jobs.command import FOLDER, name_of, plan_command
    from graphmill.cluster.jobs.submit import folder_for
    from graphmill.graph.header import is_prepared, read_header
    from graphmill.record.run_folder import default_run_id

    if arguments.words is None:
        raise UserError("--data names what a command reads, and there is none", fix=_FIX)
    if not arguments.words or not arguments.words[0]:
        raise UserError("--run needs a command", fix=_FIX)
    _refuse_given(given, ("EXPERIMENT", "--ranks", "--code-snapshot"))
    _refuse_unknown(arguments.words)
    name = arguments.run_id or default_run_id(f"{FOLDER}/{name_of(arguments.words)}", arguments.logs_root)
    data = None
    if arguments.data is not None:
        data = Path(arguments.data) if is_prepared(Path(arguments.data)) else arguments.dataset_root / arguments.data
        read_header(data)
    folder = folder_for(name, arguments.logs_root)
    return plan_command(arguments.words, overrides, folder, data=data, dependency=arguments.dependency)


def _again(
    arguments: CommandArguments, overrides: Sequence[str], given: Mapping[str, object]
) -> "CommandRequest | None":
    from graphmill.cli.find_run import named_command
    from graphmill.cluster.jobs.command import command_again
    from graphmill.cluster.jobs.submit import refuse_alive
    from graphmill.record.run_folder import RunFolder

    if arguments.words is not None or arguments.data is not None:
        raise UserError("a command is run again as it was: --resume takes no other", fix="leave out --run and --data")
    _refuse_given(given, ("--ranks", "--code-snapshot"))
    named = given["EXPERIMENT"] if arguments.run_id is None else arguments.run_id
    if arguments.run_id is not None and given["EXPERIMENT"] is not None:
        raise UserError(f"two are named: {given['EXPERIMENT']} and --run-id {arguments.run_id}", fix="name one")
    command = named_command(str(named), arguments.logs_root)
    assert command is not None, "is_command has found it"
    folder = RunFolder(command.path.absolute())
    if folder.is_done():
        print_line(f"{folder.path} is done already")
        return None
    refuse_alive(folder)
    agree_to_job(folder)
    return command_again(folder, overrides, dependency=arguments.dependency)


def _refuse_given(given: Mapping[str, object], names: Sequence[str]) -> None:
    for name in names:
        if given[name] is not None:
            raise UserError(f"{name} is of a run, and --run runs a command", fix=f"leave it out, as in: {_FIX}")


def _refuse_unknown(words: Sequence[str]) -> None:
    """Refuse a graphmill command or option that does not exist: a job need not start to find that out."""
    from graphmill.cli.app import COMMANDS
    from graphmill.spec.job.work import OURS

    if words[0] != OURS or len(words) == 1 or words[1].startswith("-"):
        return
    if words[1] not in COMMANDS:
        raise UserError(
            f"graphmill has no command {words[1]!r}; {did_you_mean(words[1], list(COMMANDS))}",
            fix="`graphmill --help` lists them",
        )
    if not {"--help", "-h"} & set(words):
        _refuse_unread(words)


def _refuse_unread(words: Sequence[str]) -> None:
    """Read the words as the job will, and do nothing."""
    from graphmill.cli.app import commands

    command: Any = typer.main.get_command(commands(words[1:]))
    title, rest, context = words[0], list(words[1:]), None
    while hasattr(command, "get_command") and rest and not rest[0].startswith("-"):  # a group
        context = command.make_context(title, [], parent=context, resilient_parsing=True)
        found = command.get_command(context, rest[0])
        if found is None:
            names = command.list_commands(context)
            raise UserError(
                f"{title} has no command {rest[0]!r}; {did_you_mean(rest[0], names)}",
                fix=f"`{title} --help` lists them",
            )
        title, command = f"{title} {rest.pop(0)}", found
    try:
        command.make_context(title, rest)
    except Exception as error:
        if not hasattr(error, "format_message"):  # of typer's errors, old and new
            raise
        raise UserError(f"{title}: {error.format_message()}", fix=f"`{title} --help` says what it takes") from None


def _show(request: "CommandRequest", *, json: bool) -> None:
    from graphmill.cli.submit import print_request, request_as_json, slurms_answers

    with slurms_answers([request.submission]) as (answer,):
        if json:
            print_json({"run": request.folder.path, "words": request.command.words, **request_as_json(request, answer)})
        else:
            print_request(request, answer)
