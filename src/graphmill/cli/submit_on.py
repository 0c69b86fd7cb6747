"""`--on` of `submit`, `study submit` and `pipeline submit`: the same command on another machine."""

import logging
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand

import graphmill
from graphmill.cli.show import print_line, print_table

_log = logging.getLogger(__name__)

On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="[USER@]HOST:FOLDER",
        show_default=False,
        help="Send the experiment and your own code there, over ssh, and submit there.",
    ),
]
RemoteGraphmill = Annotated[
    str, typer.Option("--remote-graphmill", metavar="PROGRAM", help="With --on: how graphmill is called there.")
]
SshConfig = Annotated[
    Path | None,
    typer.Option("--ssh-config", metavar="FILE", show_default=False, help="In place of ~/.ssh/config."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="With --on: also files that were changed there.")]

_WORDS_KEY: Final = "graphmill.words"
_WITH_VALUE: Final = ("--on", "--remote-graphmill", "--ssh-config")
_FLAGS: Final = ("--overwrite",)


class WordsCommand(TyperCommand):
    """A command that can be called elsewhere with the words that it was called with here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's Context, old and new
        """Keep the words before anything is made of them."""
        keep_words(ctx, args)
        return super().parse_args(ctx, args)


def keep_words(ctx: Any, args: Sequence[str]) -> None:  # noqa: ANN401  # typer's Context, old and new
    """Remember what a command was called with, if nobody has yet."""
    ctx.meta.setdefault(_WORDS_KEY, list(args))


def words_there(words: Sequence[str]) -> list[str]:
    """The words without what is meant for this machine.

    >>> words_there(["my.yaml", "--on", "host:x", "--hosts=2", "--overwrite", "--ssh-config=f"])
    ['my.yaml', '--hosts=2']
    >>> words_there(["--run", "--on", "host:x", "--", "tool", "--on", "x"])
    ['--run', '--', 'tool', '--on', 'x']
    """
    kept: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":  # of a command with --run
            return [*kept, word, *queue]
        if word in _WITH_VALUE:
            del queue[:1]
        elif word.partition("=")[0] not in (*_WITH_VALUE, *_FLAGS):
            kept.append(word)
    return kept


def submit_there(
    ctx: typer.Context,
    command: Sequence[str],
    named: Sequence[str],
    overrides: Sequence[str],
    *,
    on: str,
    remote_graphmill: str,
    ssh_config: Path | None,
    overwrite: bool,
    dry_run: bool,
) -> NoReturn:
    """Send what is named, and call `command` there with the words of this call. Exits with its status."""
    from graphmill.cluster.push import There, files_to_send, refuse_changed_there
    from graphmill.cluster.remote import Source

    there = There(Source.parse(on), remote_graphmill, ssh_config)
    files = files_to_send(named, overrides, os.environ)
    version, own = there.version(), f"graphmill {graphmill.__version__}"
    if version != own:
        _log.warning(f"{there.folder.login} has {version or 'a graphmill that names no version'}, and this is {own}")
    states = there.compare(files)
    words = [*command, *words_there(ctx.meta[_WORDS_KEY])]
    is_quiet = "--json" in words
    if files and not is_quiet:
        print_table(("file", f"in {on}"), [(name, states[name]) for name in sorted(files)])
    if not overwrite:
        refuse_changed_there(states, there.folder)
    is_there = all(state == "same" for state in states.values())
    if dry_run and not is_there:
        _log.info("nothing was sent, and nothing submitted: the script is shown once the files are there")
        raise typer.Exit
    if not is_there:
        there.send(files)
    _log.info(f"on {there.folder.login}: {shlex.join([remote_graphmill, *words])}")
    status = there.run(words)
    if status == 0 and not dry_run and not is_quiet:
        follow = f"cd {shlex.quote(there.folder.path)} && {shlex.quote(remote_graphmill)} watch"
        config = [] if ssh_config is None else [str(ssh_config)]
        ssh = shlex.join(["ssh", *(["-F", *config] if config else []), there.folder.login, follow])
        logs = [f"{there.folder.login}:{there.folder.path}/logs", *(["--ssh-config", *config] if config else [])]
        print_line(f"from here: watch it with `{ssh}`")
        print_line(f"from here: fetch it with `{shlex.join(['graphmill', 'pull', *logs])}`")
    raise typer.Exit(status)
