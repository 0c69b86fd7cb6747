"""How commands end: errors of the user without a traceback, our own bugs with one and where to send it."""

import errno
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from graphmill.api.run import EndedError
from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.foreign import printable, without_advice
from graphmill.base.messages import show_messages
from graphmill.base.retries import is_io_error

_NO_PLACE_TO_WRITE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
)  # what a path given by the user may raise, no matter where in the code


class Commands(TyperGroup):
    """A group of commands, listed in the order in which they were registered."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  # typer's Context, old and new
        """Names in the order of registration."""
        del ctx
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # typer's Context, old and new
        """Run the command; what the user can fix ends in one sentence and exit status 2."""
        show_messages()
        try:
            return super().invoke(ctx)
        except EndedError as error:  # what was started has said why
            raise typer.Exit(error.exit_status) from None
        except UserError as error:
            tell_error(error)
            raise typer.Exit(exits.BAD_REQUEST) from None
        except UnreadableError as error:
            tell_error(UserError(str(error), fix=error.fix))
            raise typer.Exit(exits.IO_ERROR) from None
        except OSError as error:
            if is_io_error(error):
                tell_error(UserError(f"{error}", fix="the disk answered with an I/O error: try again when it is well"))
                raise typer.Exit(exits.IO_ERROR) from None
            if error.errno not in _NO_PLACE_TO_WRITE:
                raise
            place = error.filename2 or error.filename or "a file cannot be written"
            tell_error(
                UserError(f"{place}: {error.strerror}", fix="name a place that you may write to, with free space on it")
            )
            raise typer.Exit(exits.BAD_REQUEST) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(exits.INTERRUPTED) from None


def tell_error(error: UserError) -> None:
    """Print what clashes, then what to type: on standard error, in colour on a terminal."""
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(without_advice(error.message), err=True)
    typer.secho("  → ", fg="green", bold=True, err=True, nl=False)
    typer.echo(printable(error.fix), err=True)


def tell_bug() -> None:
    """Print how to report a bug of ours, after its traceback."""
    command = " ".join(sys.argv)
    typer.echo(
        "\nThis is a bug in graphmill, not in your request. Please report it with the traceback above,"
        f"\nthe output of `graphmill doctor --json`, and the command:\n  {command}",
        err=True,
    )
