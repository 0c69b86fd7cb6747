"""Options that `submit`, `study submit` and `pipeline submit` share, and the same command elsewhere (`--on`)."""

import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Final

import typer

import graphmill
from graphmill.cli.options import CodeSnapshot, DatasetRoot, Json, LogsRoot, Overrides, SshConfig
from graphmill.cli.show import print_line, print_table
from graphmill.cli.words import words_of

_log = logging.getLogger(__name__)

_FOR_HERE: Final = ("--on", "--remote-graphmill", "--ssh-config", "--overwrite")


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """Options of `submit`, `study submit` and `pipeline submit` alike."""

    override: Overrides = None
    code_snapshot: CodeSnapshot = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the jobs, their scripts and commands; ask Slurm, change nothing."),
    ] = False
    root: DatasetRoot = None
    logs_root: LogsRoot = Path("logs")
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="[USER@]HOST:FOLDER",
            show_default=False,
            help="Send the experiment and your own code there, over ssh, and submit there.",
        ),
    ] = None
    remote_graphmill: Annotated[
        str, typer.Option("--remote-graphmill", metavar="PROGRAM", help="With --on: how graphmill is called there.")
    ] = "graphmill"
    ssh_config: SshConfig = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="With --on: also files that were changed there.")] = (
        False
    )
    json: Json = False


def remote_words(words: Sequence[str]) -> list[str]:
    """The words without what is meant for this machine. `words`: each with the value that it takes.

    >>> remote_words(["my.yaml", "--on=host:x", "--hosts=2", "--overwrite", "--comment=--on"])
    ['my.yaml', '--hosts=2', '--comment=--on']
    >>> remote_words(["--run", "--on=host:x", "--", "tool", "--on", "x"])
    ['--run', '--', 'tool', '--on', 'x']
    """
    own = list(takewhile(lambda word: word != "--", words))  # what follows it is a command's, with --run
    return [*(word for word in own if word.partition("=")[0] not in _FOR_HERE), *words[len(own) :]]


def submit_remotely(
    ctx: typer.Context, command: Sequence[str], named: Sequence[str], overrides: Sequence[str], options: SubmitOptions
) -> None:
    """Send what is named, call `command` there with the words of this call, exit with its status; if --on is given."""
    if options.on is None:
        return
    from graphmill.cluster.push import RemoteFolder, files_to_send, refuse_changed_remotely
    from graphmill.cluster.remote import Source

    remote = RemoteFolder(Source.parse(options.on), options.remote_graphmill, options.ssh_config)
    files = files_to_send(named, overrides, os.environ)
    version, own = remote.version(), f"graphmill {graphmill.__version__}"
    if version != own:
        _log.warning(f"{remote.folder.login} has {version or 'a graphmill that names no version'}, and this is {own}")
    states = remote.compare(files)
    words = [*command, *remote_words(words_of(ctx))]
    is_quiet = "--json" in words
    if files and not is_quiet:
        print_table(("file", f"in {options.on}"), [(name, states[name]) for name in sorted(files)])
    if not options.overwrite:
        refuse_changed_remotely(states, remote.folder)
    is_there = all(state == "same" for state in states.values())
    if options.dry_run and not is_there:
        _log.info("nothing was sent, and nothing submitted: the script is shown once the files are there")
        raise typer.Exit
    if not is_there:
        remote.send(files)
    _log.info(f"on {remote.folder.login}: {shlex.join([options.remote_graphmill, *words])}")
    status = remote.run(words)
    if status == 0 and not options.dry_run and not is_quiet:
        follow = f"cd {shlex.quote(remote.folder.path)} && {shlex.quote(options.remote_graphmill)} watch"
        config = [] if options.ssh_config is None else [str(options.ssh_config)]
        ssh = shlex.join(["ssh", *(["-F", *config] if config else []), remote.folder.login, follow])
        logs = [f"{remote.folder.login}:{remote.folder.path}/logs", *(["--ssh-config", *config] if config else [])]
        print_line(f"from here: watch it with `{ssh}`")
        print_line(f"from here: fetch it with `{shlex.join(['graphmill', 'pull', *logs])}`")
    raise typer.Exit(status)
