"""A command of graphmill's, in a process that has its modules already: `command.py ENVIRON WORDS…`, ENVIRON as JSON."""

import json
import os
import signal
import sys

from graphmill.base.python import search_working_folder
from graphmill.cli import main

if __name__ == "__main__":
    os.environ.clear()
    os.environ.update(json.loads(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    del sys.path[0]  # this file's folder
    search_working_folder()
    sys.argv = ["graphmill", *sys.argv[2:]]
    main()
