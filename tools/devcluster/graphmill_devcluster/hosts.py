"""The hosts of the dev cluster that this process is in: their network, their power, and programs on them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill_devcluster.description import (
    ENVIRONMENT_NAME,
    HOME,
    Description,
    Host,
    environment,
    head_address,
)

_PID1: Final = Path(__file__).with_name("pid1.py")
_BRIDGE: Final = "switch"
_MS_BIND: Final = 4096


def lay_network(cluster: Description) -> None:
    """A switch, and a cable from it to each host. Network namespaces outlive their hosts' power, as cards do."""
    _ip(
        "link set lo up",
        f"link add {_BRIDGE} type bridge",
        f"addr add {head_address()}/24 dev {_BRIDGE}",
        f"link set {_BRIDGE} up",
    )
    Path("/run/netns").mkdir(exist_ok=True)
    for host in cluster.hosts:
        _ip(
            f"netns add {host.name}",
            f"link add {host.cable} type veth peer name eth0 netns {host.name}",
            f"link set {host.cable} master {_BRIDGE}",
        )
        _ip(
            f"addr add {host.address}/24 dev eth0",
            "link set lo up",
            "link set eth0 up",
            f"route add default via {head_address()}",
            netns=host.name,
        )


def share_names() -> None:
    """Let the names of the cluster's hosts resolve here, and in the hosts made later. No name server is asked."""
    from graphmill_devcluster.pid1 import mount

    for name in ("hosts", "resolv.conf"):
        target = Path("/etc", name).resolve()
        if target.exists():
            mount(str(HOME / "etc" / name), str(target), flags=_MS_BIND)


def make_disks(cluster: Description) -> None:
    """The private folders: a small file system for each folder of each host."""
    from graphmill_devcluster.pid1 import mount

    for folder in cluster.private_folders:
        if folder.is_relative_to("/run"):
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise UserError(
                f"{folder} cannot be private to each host: there is no such folder",
                fix=f"mkdir {folder}, or a folder below /run, which is made",
            )
        for host in cluster.hosts:
            disk = host.disk(folder)
            disk.mkdir(parents=True, exist_ok=True)
            mount("tmpfs", str(disk), "tmpfs", data=f"mode=1777,size={cluster.private_mib}m")


def power_on(cluster: Description, host: Host) -> None:
    """Plug in the cable and start the host's first process, unless it runs. No daemon runs on it yet."""
    heal(host)
    if first_process(host) is not None:
        return
    disks = [f"{folder}={host.disk(folder)}" for folder in cluster.private_folders]
    command = [
        *("nsenter", f"--net=/run/netns/{host.name}", "--"),
        *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--"),
        *(sys.executable, "-I", "-S", str(_PID1), "host", host.name, *disks),
    ]
    log = (HOME / "log" / f"{host.name}.log").open("ab")
    with log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    assert process.stdout is not None
    with process.stdout:
        if process.stdout.readline() != b"up\n":
            raise UserError(f"{host.name} does not start: {log_tail(host.name)}", fix="graphmill devcluster down")
    host.init_path.write_text(str(first_child(process.pid)), encoding="ascii")


def first_child(process: int) -> int:
    """The process that `unshare --fork` has started."""
    return int(Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()[0])


def first_process(host: Host) -> int | None:
    """The id of the host's first process, or None while it is off."""
    try:
        number = int(host.init_path.read_text(encoding="ascii"))
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return number if host.name.encode() in words else None


def crash(host: Host) -> None:
    """Power off: the links go down first, so that no peer sees a closed connection, then every process is killed."""
    cut(host)
    number = first_process(host)
    if number is not None:
        os.kill(number, signal.SIGKILL)
        while Path(f"/proc/{number}/exe").exists():
            time.sleep(0.01)
    host.init_path.unlink(missing_ok=True)


def cut(host: Host) -> None:
    """Unplug the network cable."""
    _ip(f"link set {host.cable} down")


def heal(host: Host) -> None:
    """Plug the network cable in."""
    _ip(f"link set {host.cable} up")


def enter(host: Host, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` on the host, in the folder this process is in."""
    number = first_process(host)
    if number is None:
        raise UserError(f"{host.name} has no power", fix=f"graphmill devcluster boot {host.name}")
    namespaces = ("--net", "--mount", "--uts", "--ipc", "--pid")
    return ["nsenter", f"--target={number}", *namespaces, "--", "env", f"--chdir={Path.cwd()}", *command]


def run_on(host: Host, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
    """Run a program on the host and wait for it; `options` are those of subprocess.run."""
    options = {"text": True, "stdin": subprocess.DEVNULL, "check": False, **options}
    return subprocess.run(enter(host, command), **options)  # noqa: PLW1510  # check is given


def log_tail(name: str, num_lines: int = 3) -> str:
    """The end of a daemon's log, on one line."""
    path = HOME / "log" / f"{name}.log"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return " | ".join(lines[-num_lines:]) or "it left no log"


def inside() -> bool:
    """Whether this process is in a dev cluster."""
    return os.environ.get(ENVIRONMENT_NAME) == str(HOME) and (HOME / "cluster.json").exists()


def _ip(*lines: str, netns: str = "") -> None:
    command = ["ip", *(["-n", netns] if netns else []), "-batch", "-"]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=False, env=environment(dict(os.environ))
    )
    if done.returncode:
        raise UserError(
            f"the dev cluster's network cannot be made: {done.stderr.strip()}",
            fix="run it where network namespaces, veth and bridge are allowed",
        )
