"""The tree of commands."""

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

import graphmill
from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cli.tree import Commands, tell_bug

_GROUPS: Final = {
    "Data": {
        **dict.fromkeys(("datasets", "prepare", "inspect"), "data"),
        "convert": "convert",
        "baseline": "baseline",
        "partition": "partition",
        "presample": "presample",
        "stage": "stage",
    },
    "Training": {
        "recipes": "recipes",
        "plan": "plan",
        "batch-size": "batch_size",
        "train": "train",
        "study": "study",
        "tune": "tune",
        "pipeline": "pipeline",
    },
    "Cluster": {
        "site": "site",
        "script": "script",
        "submit": "submit",
        "launch": "launch",
        "watch": "watch",
        "logs": "logs",
        "shell": "shell",
        "stop": "stop",
        "pull": "pull",
    },
    "Results": {
        "list": "list_runs",
        "verify": "verify",
        **dict.fromkeys(("evaluate", "predict"), "predict"),
        "detect": "detect",
        "compare": "compare",
        "report": "report",
        **dict.fromkeys(("merge", "pareto", "figures"), "reports"),
        "scaling": "scaling",
        "export": "export",
    },
    "Tools": {
        "doctor": "doctor",
        "profile": "profile",
        "bottleneck": "bottleneck",
        "solve": "solve",
        "bench": "bench",
        "devcluster": "devcluster",
        "schema": "schema",
        "completion": "completion",
    },
}
"""The commands by what one does, each with the module here that registers it."""
COMMANDS: Final = {name: module for group in _GROUPS.values() for name, module in group.items()}
COMPLETION_VARIABLE: Final = "_GRAPHMILL_COMPLETE"
"""A shell sets it to ask what could stand at the cursor: `completion`."""


_MEANT: Final = {
    "sweep": "graphmill study: runs over lists of values",
    **dict.fromkeys(("search", "hpo", "optimize"), "graphmill tune: a search for the best values"),
    "resume": "graphmill train --resume RUN, or graphmill submit --resume RUN",
    **dict.fromkeys(
        ("info", "show", "describe", "status"), "graphmill inspect RUN, or graphmill watch RUN while it runs"
    ),
    "metrics": "graphmill inspect RUN, or graphmill merge: one table of many runs",
    **dict.fromkeys(("test", "eval", "score"), "graphmill evaluate RUN"),
    "infer": "graphmill predict RUN",
    "serve": "graphmill predict RUN, or graphmill.load in Python; nothing serves a model",
    "notebook": "graphmill.train and others in Python: docs/howto/python.md",
    "cancel": "graphmill stop RUN",
}
"""Commands that people look for under other names."""


class _AllCommands(Commands):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  # typer's, old and new
        """The command that the first word names; the error for another tool's name says which command is meant."""
        _refuse_undecoded(sys.argv[1:])
        if args[0] in _MEANT and self.get_command(ctx, args[0]) is None:
            raise UserError(f"there is no command {args[0]!r}", fix=_MEANT[args[0]])
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  # typer's Context, old and new
        """Names in the order of COMMANDS; typer has groups after all commands."""
        return sorted(super().list_commands(ctx), key=list(COMMANDS).index)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # typer's, old and new
        """The commands under a heading each group."""
        known = {
            name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name)) is not None
        }
        width = max(len(name) for name in known)
        for heading, names in _GROUPS.items():
            rows = [(name.ljust(width), known[name].get_short_help_str(200)) for name in names if name in known]
            with formatter.section(heading):
                formatter.write_dl(rows)


def _refuse_undecoded(words: Sequence[str]) -> None:
    """Refuse paths that Python could not decode: records are UTF-8, and none could hold such a path."""
    with suppress(FileNotFoundError):  # a folder that was removed: whoever needs it tells
        words = (*words, str(Path.cwd()))
    for text in words:
        if not any("\ud800" <= character <= "\udfff" for character in text):
            continue
        told = ascii(os.fsencode(text))[2:-1]
        if sys.getfilesystemencoding() != "utf-8":
            raise UserError(
                f"{told} cannot be read in the locale of this shell, with Python's UTF-8 mode off",
                fix="export PYTHONUTF8=1, or LC_ALL=C.UTF-8",
            )
        raise UserError(f"{told} is not UTF-8, as records of runs are", fix="give the file or folder another name")


def commands(words: Sequence[str] = ()) -> typer.Typer:
    """The tree of all commands; of the one that the command line `words` names, if it does.

    Typer reads the signature of every command in the tree, and that of one is all that a command line needs.
    """
    app = typer.Typer(
        name="graphmill",
        cls=_AllCommands,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # plain help: it starts fast, and reads the same in a log, a test and the reference
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    )
    app.callback()(_graphmill)
    names = words[:1] if words and words[0] in COMMANDS else COMMANDS
    for module in dict.fromkeys(COMMANDS[name] for name in names):
        importlib.import_module(f"graphmill.cli.{module}").register(app)
    return app


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"graphmill {graphmill.__version__}")
        raise typer.Exit


def _graphmill(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train graph neural networks, from a laptop to a Slurm cluster.

    \b
    Example:
      graphmill train debian-packages-sage --ranks 2
      graphmill merge && graphmill pareto && graphmill figures

    Exit status: 0 done; 1 it ran, and the answer is no; 2 the request was wrong; 75 out of time, resume me.
    """


def run() -> None:
    """Run the command line: what escapes the commands is a bug of ours, and is reported as one."""
    interrupt = _Interrupt()
    try:
        if COMPLETION_VARIABLE in os.environ:
            from graphmill.cli.completion import answer, written

            answer(commands(written()))
        tree = commands(sys.argv[1:])
        with interrupt.raised():
            tree()
    except KeyboardInterrupt:  # before typer was ready for it
        typer.echo("interrupted", err=True)
        sys.exit(exits.INTERRUPTED)
    except Exception:  # noqa: BLE001  # the outermost frame: whatever comes here is a bug, and is reported as one
        if interrupt.came:  # native code that it struck, such as pydantic's, made another error of it
            typer.echo("interrupted", err=True)
            sys.exit(exits.INTERRUPTED)
        traceback.print_exc()
        tell_bug()
        sys.exit(1)


_AGAIN_S: Final = 0.05  # until an interrupt that was lost is sent again


class _Interrupt:
    """Ctrl-C while a command runs: it raises KeyboardInterrupt, so that nothing is left half done.

    One that struck where Python has to ignore errors, such as a finalizer, is lost there, and so is sent again.
    """

    def __init__(self) -> None:
        self.came = False

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise on Ctrl-C within the block, unless it is ignored; after the block Ctrl-C does what it did before."""
        before, ignore = signal.getsignal(signal.SIGINT), sys.unraisablehook
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._raise)

        def unraisable(args: "sys.UnraisableHookArgs") -> None:
            if self.came and args.exc_type is KeyboardInterrupt:
                again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
                again.daemon = True
                again.start()
            else:
                ignore(args)

        sys.unraisablehook = unraisable
        try:
            yield
        finally:
            sys.unraisablehook = ignore
            signal.signal(signal.SIGINT, before)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.came = True
        raise KeyboardInterrupt
