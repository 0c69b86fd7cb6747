"""Start a dev cluster from outside: for the time of one command, or until it is taken down."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.files import write_json
from graphmill.base.json_text import parse_json
from graphmill.base.python import python_m
from graphmill_devcluster import control_groups
from graphmill_devcluster.description import HOME, Description, environment
from graphmill_devcluster.hosts import first_child
from graphmill_devcluster.requirements import check_requirements, own_user_namespace

_ENTER: Final = Path(__file__).with_name("enter.py")
_PID1: Final = Path(__file__).with_name("pid1.py")
_DIED_OF: Final = 128
_NAMESPACES: Final = ("--net", "--mount", "--uts", "--ipc", "--pid")


def run(cluster: Description, command: Sequence[str], *, keep_logs: Path | None = None) -> int:
    """Bring a cluster up, run `command` on its head, take everything down. Returns the command's exit status.

    The cluster ends with this process, however that ends. Only the main thread may call this: it takes the signals.
    """
    check_requirements(cluster)
    group = control_groups.make(cluster)
    lifeline, held = os.pipe()  # closed on exec by all but the cluster's first process
    options = [] if keep_logs is None else ["--keep-logs", str(keep_logs.resolve())]
    words = _first_process(cluster, _then_keep_logs(command, keep_logs), options, lifeline=lifeline, group=group)
    process = subprocess.Popen(words, pass_fds=[lifeline], env=environment(dict(os.environ)))
    os.close(lifeline)
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)
        process.kill()  # and with it, by --kill-child, the cluster

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command as well, which decides
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    code = process.wait()
    os.close(held)
    control_groups.remove(group)
    if received:
        return _DIED_OF + received[0]
    return code if code >= 0 else _DIED_OF - code


@dataclass(frozen=True, slots=True)
class Running:
    """The cluster that `up` brought up: its first process as seen from outside, and what it is."""

    process: int
    cluster: Description

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` on its head, in the folder this process is in."""
        return [sys.executable, "-I", "-S", str(_ENTER), str(self.process), str(Path.cwd()), *command]


def up(cluster: Description) -> tuple[Running, bool]:
    """Bring a cluster up that stays until `down`; True if it was not up already."""
    folder = _state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = running()
        if known is None:
            return _start(cluster, folder), True
    if known.cluster != cluster:
        raise UserError("a dev cluster of another shape is up", fix="graphmill devcluster down, and this again")
    return known, False


def down() -> bool:
    """End the cluster that `up` brought up, with all its jobs. False if there was none."""
    known = running()
    if known is not None:
        os.kill(known.process, signal.SIGKILL)
        while running() is not None:
            time.sleep(0.02)
    control_groups.remove_left_ones()
    (_state_folder() / "running.json").unlink(missing_ok=True)
    return known is not None


def running() -> Running | None:
    """The cluster that `up` brought up, while it is alive."""
    try:
        said = parse_json((_state_folder() / "running.json").read_bytes())
        if _created(said["process"]) != said["created"]:  # the process id was reused since
            return None
        Path(f"/proc/{said['process']}/exe").readlink()  # fails for one that has ended and was not waited for
        return Running(said["process"], Description.model_validate(said["cluster"]))
    except (FileNotFoundError, ProcessLookupError):
        return None


def the_running_one() -> Running:
    """The cluster that `up` brought up."""
    known = running()
    if known is None:
        raise UserError("no dev cluster is up", fix="graphmill devcluster up")
    return known


def _start(cluster: Description, folder: Path) -> Running:
    check_requirements(cluster)
    group = control_groups.make(cluster)
    told, report = os.pipe()
    words = _first_process(cluster, [], ["--report-to", str(report)], group=group)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            words, pass_fds=[report], env=environment(dict(os.environ)), cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    os.close(report)
    with os.fdopen(told, "rb") as answer:
        said = parse_json(answer.readline() or b'{"message": "the dev cluster ended while it came up", "fix": ""}')
    if said is not None:
        process.wait()
        raise UserError(said["message"], fix=said["fix"] or f"read {folder / 'log'}")
    first = first_child(process.pid)
    facts = {"process": first, "created": _created(first), "cluster": cluster.model_dump(mode="json")}
    write_json(folder / "running.json", facts)
    return Running(first, cluster)


def _created(process: int) -> str:
    """When a process began, in the kernel's ticks, and the kernel's name: no two processes have both."""
    ticks = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    return f"{ticks} {Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()}"


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "graphmill/devcluster"


def _first_process(
    cluster: Description, command: Sequence[str], options: Sequence[str], *, group: str, lifeline: int = -1
) -> list[str]:
    builder = python_m("graphmill_devcluster.build", cluster.model_dump_json(), *options)
    return [
        *control_groups.join(group),
        *("unshare", *own_user_namespace(), *_NAMESPACES, *(["--cgroup"] if group else [])),
        *("--fork", "--mount-proc", "--kill-child=KILL", "--"),
        *(sys.executable, "-I", "-S", str(_PID1), "head", str(lifeline), control_groups.folders(group)),
        str(cluster.slurm_root or ""),
        *(*builder, "--", *command),
    ]


def _then_keep_logs(command: Sequence[str], folder: Path | None) -> list[str]:
    if folder is None:
        return list(command)
    folder.mkdir(parents=True, exist_ok=True)
    script = f'logs=$1; shift; "$@"; code=$?; cp -r {HOME}/log/. "$logs"; exit $code'
    return ["sh", "-c", script, "sh", str(folder.resolve()), *command]
