"""The exceptions a user may see.

`UserError`: a mistake of the user, shown without a traceback; anything else that escapes is a bug of ours.
"""

import errno
from pathlib import Path


class UserError(Exception):
    """A request that cannot be met. It says what clashes, then what to type.

    The command line prints it without a traceback and exits with 2.
    """

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.fix}"


class InvalidInputError(UserError, ValueError):
    """Arguments of a call from Python that do not fit: also a `ValueError`, as numpy and torch raise."""


class AbsentDataError(UserError):
    """The data that are asked for are not prepared, or there are none of that sort among them."""


class UnreadableError(Exception):
    """A file that cannot be read now. It may be whole, so the only consequence is a retry. Exit status 71."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path} cannot be read: {error.strerror or error} ({errno.errorcode.get(error.errno or 0)})")
        is_refused = error.errno in (errno.EACCES, errno.EPERM)
        why = "you may not read it" if is_refused else "the disk answered with an I/O error"
        self.fix = f"{why}; nothing was changed: try again when it can be read"
