"""The first process of the cluster, and of each of its hosts. It reaps orphans, and does little else.

Standard library only, and run as a file: there is one on every host, and it should use little memory.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_BIND, _MS_REC, _MNT_DETACH = 4096, 16384, 2


def main(arguments: list[str]) -> int:
    """`head LIFELINE_FD CONTROLLER=FOLDER,… ROOT BUILDER… -- COMMAND…`, or `host NAME FOLDER=DISK…`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    kind, *rest = arguments
    if kind == "host":
        return _be_host(*rest)
    lifeline, groups, root, *rest = rest
    split = rest.index("--")
    if root:
        lay_over(Path(root))
    return _be_head(int(lifeline), groups, rest[:split], rest[split + 1 :])


def _be_host(name: str, *private: str) -> int:
    socket.sethostname(name)
    _own_view_of_devices()
    mount("tmpfs", "/dev/shm", "tmpfs")  # process ids repeat across hosts, and so would names of shared memory
    for pair in private:
        folder, _, disk = pair.partition("=")
        mount(disk, folder, flags=_MS_BIND)
    os.write(1, b"up\n")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    return _wait_for_orphans(until=None)


def _be_head(lifeline: int, groups: str, builder: list[str], command: list[str]) -> int:
    if lifeline >= 0:
        os.set_inheritable(lifeline, False)
    socket.sethostname("head")
    mount("tmpfs", "/run", "tmpfs", data="mode=755")
    _own_view_of_devices()
    for pair in filter(None, groups.split(",")):  # the cluster's own control group serves as the root of the hierarchy
        controller, _, folder = pair.partition("=")
        mount(folder, f"/sys/fs/cgroup/{controller}", flags=_MS_BIND)
    built = _wait_for_orphans(until=_start(builder), lifeline=lifeline)
    if built or not command:
        return built or _wait_for_orphans(until=None, lifeline=lifeline)
    return _wait_for_orphans(until=_start(command), lifeline=lifeline)


def lay_over(root: Path) -> None:
    """Lay the programs and libraries below root/usr over this machine's, for the processes of this mount namespace.

    What is not there is found in this machine's. Folders of Slurm's plugins are the root's alone: others do not fit.
    """
    for folder in sorted((root / "usr").iterdir()):
        under = f"/usr/{folder.name}"
        mount("overlay", under, "overlay", data=f"lowerdir={folder}:{under}")
    for plugins in root.glob("usr/lib/*/slurm*"):
        mount(str(plugins), str(Path("/", plugins.relative_to(root))), flags=_MS_BIND)


def mount(source: str, target: str, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    if _LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _own_view_of_devices() -> None:
    """/sys shows the network of the process that mounted it; the control groups below it are kept."""
    if not Path("/sys/fs/cgroup").is_dir():
        return
    aside = Path("/run/graphmill-cgroup")
    aside.mkdir(exist_ok=True)
    mount("/sys/fs/cgroup", str(aside), flags=_MS_BIND | _MS_REC)
    mount("sysfs", "/sys", "sysfs")
    mount(str(aside), "/sys/fs/cgroup", flags=_MS_BIND | _MS_REC)
    _LIBC.umount2(str(aside).encode(), _MNT_DETACH)


def _start(command: list[str]) -> int:
    """Like subprocess, which would not let us wait for its children."""
    process = os.fork()
    if process:
        return process
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores, and its children would
    try:
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]} cannot be started: {error.strerror}\n")
        os._exit(126 if isinstance(error, PermissionError) else 127)


def _wait_for_orphans(*, until: "int | None", lifeline: int = -1) -> int:
    """Wait until the process `until` ends; returns its exit status, or 128 + the signal that ended it, as shells do.

    The other end of the lifeline is held by the launcher alone: however that ends, this end reads end-of-file.
    """
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    watched = select.poll()
    for fd in (woken, lifeline):
        if fd >= 0:
            watched.register(fd, select.POLLIN)
    while True:
        code = _reap(until)
        if code is not None:
            return code
        if any(fd == lifeline for fd, _ in watched.poll(1000)):
            return 137
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 512)


def _reap(until: "int | None") -> "int | None":
    """Reap exited children. Returns the exit status of `until`, if it was among them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return None
            if process == until:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
