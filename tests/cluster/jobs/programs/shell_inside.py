"""Runs inside a dev cluster: a JSON line in, the command is run, a JSON line out. It ends at `null`.

Commands of graphmill's are forked from one process: to import them takes longer than what most of them do.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from graphmill.cli.app import COMMANDS
from graphmill.runtime.fork_server import start_program

GRAPHMILL = [sys.executable, "-m", "graphmill.cli"]
IMPORTS = (
    *(f"graphmill.cli.{module}" for module in dict.fromkeys(COMMANDS.values())),
    *("graphmill.api.submitting", "graphmill.cli.study_submit", "graphmill.cluster.follow", "graphmill.cluster.status"),
    *("graphmill.cluster.stop", "graphmill.tasks.node_classification.page"),
)


def forked(asked: dict[str, Any]) -> dict[str, Any]:
    program = [str(Path(__file__).with_name("command.py")), json.dumps(asked["environ"])]
    os.chdir(asked["cwd"])
    with TemporaryFile() as out, TemporaryFile() as err:
        files = (out.fileno(), err.fileno())
        started = start_program([*program, *asked["command"][len(GRAPHMILL) :]], os.environ, files, imports=IMPORTS)
        in_time = started.ended.wait(asked["timeout_s"])
        started.kill_session()
        for file in (out, err):
            file.seek(0)
        return {"code": started.code if in_time else None, "out": out.read().decode(), "err": err.read().decode()}


def started(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            asked["command"], cwd=asked["cwd"], env=asked["environ"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=asked["timeout_s"], check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return {"code": None, "out": (error.stdout or b"").decode(), "err": (error.stderr or b"").decode()}
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked is None:
            break
        is_ours = asked["command"][: len(GRAPHMILL)] == GRAPHMILL
        finds_the_same = (asked["environ"] or os.environ).get("PYTHONPATH") == os.environ.get("PYTHONPATH")
        answer = forked(asked) if is_ours and finds_the_same else started(asked)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
