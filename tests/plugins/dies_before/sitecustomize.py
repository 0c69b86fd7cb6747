"""For a run whose launcher is killed: by rank 0, before its first checkpoint at or past the step in `DIES_BEFORE_STEP`.

Python imports this when it starts, where the folder is on PYTHONPATH: also in the fork server, from which ranks are
forked with what it has. Whoever polls for a moment to kill may sleep through it on a busy machine; a rank cannot.
"""

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

STEP = int(os.environ["DIES_BEFORE_STEP"])


def before(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "os.rename" or os.environ.get("RANK") != "0":
        return
    found = re.fullmatch(r"step_(\d+)", Path(os.fsdecode(arguments[1])).name)
    if found and int(found[1]) >= STEP:
        _, _, of_fork_server = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(") ")
        os.kill(int(of_fork_server.split()[1]), signal.SIGKILL)
        time.sleep(600)  # the kernel ends this process with its launcher


sys.addaudithook(before)
