"""`python -m graphmill.cluster.jobs.command_here FOLDER -- WORD…`: the step of a job that runs a command.

It starts the monitor of its host, then becomes the command. No shell reads the words. `graphmill` is run by this
interpreter; any other program is looked for on the PATH.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from graphmill.base.python import python_m
from graphmill.monitor.sampler import start_monitor
from graphmill.record.run_paths import COMMAND_VARIABLE
from graphmill.spec.job.work import OURS

_NOT_FOUND: Final = 127  # as a shell says it
_NOT_RUN: Final = 126


def main(arguments: Sequence[str]) -> int:
    """Become the command. Returns only if that cannot be run."""
    folder, _, *words = arguments
    start_monitor(Path(folder), of_command=True)
    environ = {"PYTHONUNBUFFERED": "1", **os.environ, COMMAND_VARIABLE: folder}  # its log is followed while it runs
    command = python_m("graphmill.cli", *words[1:]) if words[0] == OURS else list(words)
    try:
        os.execvpe(command[0], command, environ)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]} cannot be run: {error.strerror}\n")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
